package cache

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
)

// Run keeps the copy up until ctx ends, the session is over, or the subtree
// cannot be watched or does not fit; it returns why. It may be called again, and
// then resumes where it was; a second one at the same time is ErrRunning.
func (c *Cache) Run(ctx context.Context) error {
	select {
	case c.run <- struct{}{}:
		defer func() { <-c.run }()
	default:
		return ErrRunning
	}
	f := &follower{c: c, denied: map[string]struct{}{}}
	defer f.end()
	for ev, err := range c.c.Watch(ctx, c.root, f.watch()...) {
		if err == nil {
			err = f.take(ctx, ev)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// follower is one Run.
type follower struct {
	c       *Cache
	events  []event // of a transaction whose last event has not come
	loading *build  // nil unless the subtree was read and is not complete
	// denied are the nodes that may not be read, as far as is known: neither they
	// nor what is below them is in the copy.
	denied map[string]struct{}
}

// event is one that was taken in. Of a hidden one only the parent's Stat tells.
type event struct {
	client.Event
	hidden bool
}

// watch says what to ask for: everything since the state that there is, or the
// present and what comes.
func (f *follower) watch() []client.WatchOption {
	opts := []client.WatchOption{client.Recursive()}
	if f.c.opts.withData {
		opts = append(opts, client.WithData())
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if !f.c.synced {
		return append(opts, client.Initial(client.Linearizable))
	}
	f.c.following = true
	return append(opts, client.Since(f.c.pos))
}

// end takes note that nobody keeps the copy up any more.
func (f *follower) end() {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.c.following && f.c.connected() {
		f.c.heard = time.Now()
	}
	f.c.following = false
	f.c.tell()
}

// take takes in one event. Transactions are put into the copy when they are
// complete.
func (f *follower) take(ctx context.Context, ev client.Event) error {
	e := event{Event: ev, hidden: f.hides(ev.Path)}
	switch ev.Type {
	case client.EventPresent, client.EventAbsent, client.EventResync, client.EventACL: // an ACL may show or hide a whole subtree
		return f.load(ctx, ev.Zxid)
	case client.EventDeleted:
		delete(f.denied, ev.Path)
	case client.EventCreated, client.EventChanged:
		if ok, err := f.complete(ctx, &e); err != nil || !ok {
			return cmp.Or(err, f.load(ctx, ev.Zxid))
		}
	default:
	}
	f.events = append(f.events, e)
	if !ev.Last {
		return nil
	}
	events := f.events
	f.events = nil
	if f.loading == nil {
		return f.apply(events)
	}
	f.loading.apply(f.c, events)
	return f.settle()
}

// hides says whether the node is one that may not be read, or below one.
func (f *follower) hides(path string) bool {
	if len(f.denied) == 0 {
		return false
	}
	for ; path != ""; path, _ = split(path) {
		if _, ok := f.denied[path]; ok {
			return true
		}
	}
	return false
}

// complete gets the data of an event that came without: because it is not to be
// read, or because the servers have forgotten it. It returns false if what the
// data was then is not known any more, so that neither is that state.
func (f *follower) complete(ctx context.Context, e *event) (bool, error) {
	if !e.DataDropped || !f.c.opts.withData || e.hidden || !f.c.opts.keep(e.Path) {
		return true, nil
	}
	n, err := f.c.c.Get(ctx, e.Path, client.Mode(client.ReadSession), client.AtLeast(e.Zxid))
	switch {
	case errors.Is(err, client.ErrNoAuth):
		f.denied[e.Path] = struct{}{}
		e.hidden = true
		return true, nil
	case errors.Is(err, client.ErrNoNode):
		return false, nil
	case err != nil:
		return false, err
	}
	e.Data = n.Data
	return n.Stat.Czxid == e.Stat.Czxid && n.Stat.Mzxid == e.Stat.Mzxid, nil
}

// load reads the subtree anew. What is shown stays until that is complete.
func (f *follower) load(ctx context.Context, z client.Zxid) error {
	f.events = nil
	b, err := f.c.load(ctx, z)
	if err != nil {
		return err
	}
	f.loading, f.denied = b, b.denied
	return f.settle()
}

// settle shows the new state if it is complete.
func (f *follower) settle() error {
	b := f.loading
	if !b.ready() {
		return nil
	}
	f.loading = nil
	c := f.c
	if err := c.fits(b.tree); err != nil {
		return err
	}
	pos := max(b.pos, b.end)
	c.mu.Lock()
	old := c.view
	c.view, c.at = b.tree, max(c.at, pos)
	c.mu.Unlock()
	c.show(difference(old, b.tree, pos), pos)
	return nil
}

// apply puts a transaction into the state that is shown.
func (f *follower) apply(events []event) error {
	c := f.c
	z := events[0].Zxid
	var changes []Change
	c.mu.Lock()
	if z <= c.at {
		c.mu.Unlock()
		return nil
	}
	c.at = z
	for _, ev := range events {
		if ev.Type == client.EventCreated || ev.Type == client.EventDeleted {
			c.view.childChanged(ev.Path, z, step(ev.Type))
		}
		if ch, ok := c.change(c.view, ev); ok {
			changes = append(changes, ch)
		}
	}
	err := c.fits(c.view)
	c.mu.Unlock()
	c.show(changes, z)
	return err
}

// show reports what has changed and then says that the copy is at z.
func (c *Cache) show(changes []Change, z client.Zxid) {
	for _, ch := range changes {
		for _, f := range c.opts.listeners {
			f(ch)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pos = max(c.pos, z)
	c.synced, c.following, c.heard = true, true, time.Now()
	c.tell()
}
