package cache

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
)

// build is a state that is being put together from pages, which may be of
// different transactions, and from the events that came meanwhile.
type build struct {
	tree *tree
	page map[string]client.Zxid // of which transaction the page with this node was
	// denied are the nodes that may not be read.
	denied map[string]struct{}
	pos    client.Zxid // every event up to here is in
	end    client.Zxid // of the last page
	need   proof       // what must be in for the state to be one that existed
}

// ready says whether the state is that of one transaction.
func (b *build) ready() bool { return b.pos >= b.end || b.need.met(b.tree, b.pos) }

// load reads the subtree. The watch tells all changes after transaction z, and
// each page is read at z or later.
func (c *Cache) load(ctx context.Context, z client.Zxid) (*build, error) {
	b := &build{tree: newTree(), page: map[string]client.Zxid{}, denied: map[string]struct{}{}, pos: z, end: z}
	first := client.Zxid(0)
	opts := []client.WalkOption{client.Mode(client.ReadSession), client.AtLeast(z)}
	if !c.opts.withData {
		opts = append(opts, client.WithoutData())
	}
	for n, err := range c.c.Walk(ctx, c.root, opts...) {
		if errors.Is(err, client.ErrNoNode) {
			break // there is none, or not any more: its event comes
		}
		if err != nil {
			return nil, err
		}
		if first == 0 {
			first = n.Zxid
		}
		b.end = max(b.end, n.Zxid)
		if n.Denied {
			b.denied[n.Path] = struct{}{}
		}
		if n.Denied || !c.opts.keep(n.Path) {
			continue
		}
		b.page[n.Path] = n.Zxid
		b.tree.put(n)
		if err := c.fits(b.tree); err != nil {
			return nil, err
		}
	}
	if first == b.end || first == 0 && b.end == z {
		b.pos = b.end // one page, or pages of one transaction: that is what the subtree was then
		return b, nil
	}
	var err error
	b.need, err = c.probe(ctx, b.end)
	return b, err
}

func (c *Cache) fits(t *tree) error {
	if c.opts.maxBytes > 0 && t.bytes > c.opts.maxBytes {
		return &SizeError{Root: c.root, Bytes: t.bytes, Most: c.opts.maxBytes}
	}
	return nil
}

// apply puts the events of one transaction into the state, except for what a
// page has shown already: of a node its own page, of its parent the parent's,
// which may be an older one.
func (b *build) apply(c *Cache, events []event) {
	for _, ev := range events {
		if ev.Type == client.EventCreated || ev.Type == client.EventDeleted {
			b.childChanged(ev)
		}
		if b.page[ev.Path] >= ev.Zxid {
			continue
		}
		_, present := b.tree.nodes[ev.Path]
		if present || ev.Type == client.EventCreated {
			c.change(b.tree, ev)
			delete(b.page, ev.Path)
		}
	}
	b.pos = events[0].Zxid
}

func (b *build) childChanged(ev event) {
	dir, _ := split(ev.Path)
	if b.page[dir] < ev.Zxid {
		b.tree.childChanged(ev.Path, ev.Zxid, step(ev.Type))
	}
}

// step is how a creation or deletion changes the number of children.
func step(t client.EventType) int32 {
	if t == client.EventDeleted {
		return -1
	}
	return 1
}

// change puts one event into a state and returns the change that it is. ok is
// false for what changes nothing that is kept.
func (c *Cache) change(t *tree, ev event) (ch Change, ok bool) {
	old, had := t.nodes[ev.Path]
	ch = Change{Type: ev.Type, Zxid: ev.Zxid, Node: client.Node{Path: ev.Path, Data: ev.Data, Stat: ev.Stat, Zxid: ev.Zxid}}
	switch {
	case ev.hidden || !c.opts.keep(ev.Path):
		return ch, false
	case ev.Type == client.EventDeleted:
		ch.Node = old
		t.remove(ev.Path)
		return ch, had
	}
	if !c.opts.withData {
		ch.Node.Data = nil
	}
	t.put(ch.Node)
	return ch, true
}
