package member

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sort"

	"github.com/coordd/coord/client"
)

// view is the group as far as one watch has seen it.
type view struct {
	g       *Group
	members map[string]Member
	// read says up to which transaction each part of the list was read: the
	// names up to and with read[i].name were read at read[i].zxid, those behind
	// the last one at end. Events that a part contains already are left out, so
	// that the list never goes back.
	read []page
	end  client.Zxid
}

type page struct {
	name string
	zxid client.Zxid
}

// load reads the whole group, not older than transaction z.
func (g *Group) load(ctx context.Context, z client.Zxid) (*view, error) {
	v := &view{g: g, members: map[string]Member{}, end: z}
	for n, err := range g.c.Walk(ctx, g.path, client.AtLeast(z)) {
		if errors.Is(err, client.ErrNoNode) {
			return &view{g: g, members: map[string]Member{}, end: z}, nil
		}
		if err != nil {
			return nil, err
		}
		if n.Denied && n.Path == g.path {
			return nil, &client.Error{Op: "walk", Path: g.path, Err: client.ErrNoAuth, Index: -1}
		}
		v.end = max(v.end, n.Zxid)
		id := g.id(n.Path)
		if id == "" {
			continue
		}
		if last := len(v.read) - 1; last >= 0 && v.read[last].zxid == n.Zxid {
			v.read[last].name = id
		} else {
			v.read = append(v.read, page{id, n.Zxid})
		}
		if n.Stat.EphemeralOwner != 0 {
			v.members[id] = newMember(id, n.Data, n.Stat)
		}
	}
	return v, nil
}

// known is the transaction up to which the list tells all about id.
func (v *view) known(id string) client.Zxid {
	if i := sort.Search(len(v.read), func(i int) bool { return v.read[i].name >= id }); i < len(v.read) {
		return v.read[i].zxid
	}
	return v.end
}

// apply takes in one change and reports whether the list is another one now.
func (v *view) apply(ctx context.Context, ev client.Event) (changed bool, err error) {
	id := v.g.id(ev.Path)
	if id == "" || ev.Zxid <= v.known(id) {
		return false, nil
	}
	old, in := v.members[id]
	switch ev.Type {
	case client.EventCreated, client.EventChanged:
		if ev.Stat.EphemeralOwner == 0 {
			delete(v.members, id) // of a member that ended with a linger: it is dead
			return in, nil
		}
		m := newMember(id, ev.Data, ev.Stat)
		if ev.DataDropped {
			if m, err = v.refetch(ctx, m); err != nil {
				return false, err
			}
		}
		v.members[id] = m
		return !in || !same(old, m), nil
	case client.EventDeleted:
		delete(v.members, id)
		return in, nil
	default:
		return false, nil
	}
}

// refetch reads the data of a member whose event came without it. What is read
// may be newer than the event; if the member has gone meanwhile that is told by
// a later event.
func (v *view) refetch(ctx context.Context, m Member) (Member, error) {
	n, err := v.g.c.Get(ctx, v.g.node(m.ID))
	switch {
	case errors.Is(err, client.ErrNoNode):
		return m, nil
	case err != nil:
		return m, err
	case n.Stat.Czxid == m.Czxid:
		m.Data = slices.Clone(n.Data)
	}
	return m, nil
}

func same(a, b Member) bool {
	return a.Czxid == b.Czxid && a.Session == b.Session && string(a.Data) == string(b.Data) && (a.Data == nil) == (b.Data == nil)
}

// list is the present list, the caller's to keep.
func (v *view) list() []Member {
	out := sortByID(slices.Collect(maps.Values(v.members)))
	for i := range out {
		out[i].Data = slices.Clone(out[i].Data)
	}
	return out
}
