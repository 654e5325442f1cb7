package barrier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// verdict is what a look at the folder has shown.
type verdict int

const (
	far    verdict = iota // others will open the round: their transaction is what to wait for
	near                  // it may be for this member to open it, when others come or go
	inside                // the round is open and this member belongs to it
)

// wait returns nil when the round has opened with this member. Every event makes
// it look, and only what it sees in the folder counts: an event more, or a
// reconnect, lets nobody through.
func (m *member) wait(outer context.Context) error {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.guard(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-ended
	}()
	at, err := far, error(nil)
	for at != inside && err == nil {
		at, err = m.follow(ctx, at)
	}
	switch {
	case err == nil || ctx.Err() == nil:
		return err
	case outer.Err() != nil:
		return outer.Err()
	default:
		return context.Cause(ctx)
	}
}

// follow looks at the folder whenever it changes, until that has shown that this
// member is inside, or is nearer than the watch is for.
func (m *member) follow(ctx context.Context, at verdict) (verdict, error) {
	opts := []client.WatchOption{client.Initial(client.ReadSession)}
	if at == near {
		opts = append(opts, client.NodeAndChildren())
	}
	for ev, err := range m.d.c.Watch(ctx, m.d.path, opts...) {
		if err != nil {
			return at, err
		}
		seen, err := m.look(ctx, ev.Zxid)
		if err != nil || seen > at {
			return seen, err
		}
	}
	return at, ctx.Err()
}

// guard ends the wait when the entry is deleted by somebody. It ends with ctx.
func (m *member) guard(ctx context.Context, lost context.CancelCauseFunc) {
	for ev, err := range m.d.c.Watch(ctx, m.own.Path, client.Since(m.own.Stat.Czxid)) {
		switch {
		case err != nil:
			lost(err)
			return
		case ev.Type == client.EventDeleted:
			lost(m.removed(ctx))
			return
		case ev.Type == client.EventResync:
			st, ok, err := m.d.c.Exists(ctx, m.own.Path, client.Mode(client.Linearizable))
			if err == nil && (!ok || !m.own.Same(st)) {
				lost(m.removed(ctx))
				return
			}
		}
	}
}

// reasonWait is how long the end of the session is waited for when its entry has
// gone: often that is seen first.
const reasonWait = time.Second

// removed is why the entry is not there any more.
func (m *member) removed(ctx context.Context) error {
	session := m.d.c.Session().Context()
	t := time.NewTimer(reasonWait)
	defer t.Stop()
	select {
	case <-session.Done():
		return context.Cause(session)
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return fmt.Errorf("barrier %s: %w", m.d.path, ErrRemoved)
	}
}

// look finds out where the member stands, and opens the round if that is for it
// to do. It sees at least transaction z.
func (m *member) look(ctx context.Context, z client.Zxid) (verdict, error) {
	n, err := m.d.c.Get(ctx, m.d.path, client.Mode(client.ReadSession), client.AtLeast(z))
	if errors.Is(err, client.ErrNoNode) || err == nil && n.Stat.Czxid != m.folder {
		return far, m.removed(ctx)
	}
	if err != nil {
		return far, err
	}
	s, ok, err := decode(m.d.path, n.Data)
	switch {
	case err != nil:
		return far, err
	case !ok || s.Members != m.d.n:
		return far, fmt.Errorf("barrier %s: %w: it was set meanwhile", m.d.path, ErrContent)
	case s.inside(m.number):
		m.last = s.Last
		return inside, nil
	}
	place, err := m.d.c.Predecessor(ctx, m.own.Path, client.Mode(client.ReadSession), client.AtLeast(n.Zxid))
	switch {
	case errors.Is(err, client.ErrNoNode):
		return far, m.removed(ctx)
	case err != nil:
		return far, err
	case place.Ahead < m.d.n-1: // and that will never be more
		return far, nil
	}
	return m.lookClosely(ctx, s, n)
}

// lookClosely reads who is there. The member opens the round if it is the nth of
// those that wait and nobody is left inside.
func (m *member) lookClosely(ctx context.Context, s state, n client.Node) (verdict, error) {
	names, err := m.d.c.Children(ctx, m.d.path, client.Mode(client.ReadSession), client.AtLeast(n.Zxid))
	if errors.Is(err, client.ErrNoNode) {
		return far, m.removed(ctx)
	}
	if err != nil {
		return far, err
	}
	all := entriesOf(names)
	first := slices.IndexFunc(all, func(e entry) bool { return !s.inside(e.number) })
	own := slices.IndexFunc(all, func(e entry) bool { return e.name == m.name })
	switch {
	case own < 0:
		return far, m.removed(ctx)
	case own-first < m.d.n-1:
		return far, nil
	case own-first > m.d.n-1 || first > 0:
		return near, nil
	}
	return m.open(ctx, s, n, all[:m.d.n])
}

// open lets the round begin with these members, the last of which is this one. It
// is done only if the folder is as it was seen and all of them are there.
func (m *member) open(ctx context.Context, s state, n client.Node, members []entry) (verdict, error) {
	s.Round, s.Last = s.Round+1, m.number
	ops := []client.Op{client.OpCheckNode(m.d.path, m.folder, 0)}
	for _, e := range members {
		ops = append(ops, client.OpCheck(m.d.path+"/"+e.name, client.AnyVersion))
	}
	ops = append(ops, client.OpSet(m.d.path, s.encode(), n.Stat.Version))
	_, err := settle.Write(ctx, m.d.c, nil, ops...)
	switch {
	case err == nil:
		m.last = s.Last
		return inside, nil
	case changed(err):
		return near, nil // what has changed is an event, now or when the watch begins
	default:
		return far, err
	}
}
