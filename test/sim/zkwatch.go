package sim

import (
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// armsLocked records a watch that fires once, as of a transaction.
func (c *zkClient) armsLocked(w zkWatch, z zxid.ID) {
	now := c.w.history.Now()
	c.armed[w] = c.w.history.Add(check.Record{
		Kind: check.Armed, Client: c.m.host, Session: c.id, Begin: now, End: now, Path: w.path, Type: w.what, Zxid: z,
	})
}

// endsLocked records that a watch has fired, or has told of nothing up to z and is
// none any more.
func (c *zkClient) endsLocked(w zkWatch, kind check.Kind, typ string, z zxid.ID) {
	now := c.w.history.Now()
	c.w.history.Add(check.Record{
		Kind: kind, Client: c.m.host, Session: c.id, Begin: now, End: now, Path: w.path, Type: typ, Watch: c.armed[w], Zxid: z,
	})
	delete(c.armed, w)
}

// disarmLocked ends all watches with the session.
func (c *zkClient) disarmLocked() {
	for w := range c.armed {
		c.endsLocked(w, check.Unwatch, "", c.last)
	}
}

// answered takes note of the watches that an answer has set. No event of theirs can
// have come before it.
func (c *zkClient) answered(l *zkLink, k *zkCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.Type == wire.SetWatches2 {
		c.setAgainLocked(k)
		l.setting = false
		return
	}
	w := zkWatch{path: k.Op.Path}
	switch {
	case !k.Watch:
		return
	case k.Type == wire.Exists && k.Err == wire.NoNode:
		w.what = check.ForCreation
	case k.Err != wire.OK:
		return
	case k.Type == wire.GetChildren2:
		w.what = check.ForChildren
	default:
		w.what = check.ForData
	}
	if c.armed[w] == 0 {
		c.armsLocked(w, k.Zxid)
	}
}

// event takes note of a watch that has fired. A znode that has gone ends those for
// its children, too.
func (c *zkClient) event(l *zkLink, e wire.Event) {
	var of []string
	switch e.Type {
	case wire.EventCreated, wire.EventChanged:
		of = []string{check.ForData, check.ForCreation}
	case wire.EventDeleted:
		of = []string{check.ForData, check.ForCreation, check.ForChildren}
	case wire.EventChildren:
		of = []string{check.ForChildren}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	fired := false
	for _, what := range of {
		if w := (zkWatch{e.Path, what}); c.armed[w] != 0 {
			c.endsLocked(w, check.Fired, eventNames[e.Type], c.last)
			fired = true
		}
	}
	// What is set again may have two events for one end, one of each kind of watch.
	if !fired && !l.setting {
		c.broken("the session %s is told that %s has %s, and has no watch there", c.id, e.Path, eventNames[e.Type])
	}
}

var eventNames = map[wire.EventType]string{
	wire.EventCreated: "created", wire.EventDeleted: "deleted", wire.EventChanged: "changed", wire.EventChildren: "children",
}

// setWatches sends the watches that the session has, as the first request of a
// connection.
func (c *zkClient) setWatches(l *zkLink) {
	c.mu.Lock()
	q := wire.Request{Op: wire.Op{Type: wire.SetWatches2}, Since: c.last}
	for w := range c.armed {
		list := map[string]int{check.ForData: wire.ListData, check.ForCreation: wire.ListExists, check.ForChildren: wire.ListChildren}[w.what]
		q.Watches[list] = append(q.Watches[list], w.path)
	}
	l.setting = len(c.armed) > 0
	c.mu.Unlock()
	if l.setting {
		_, _ = l.submit(q) // a connection that has broken is noticed by its reader
	}
}

// setAgainLocked begins the watches anew that have not fired when they were set
// again. One for a znode to come cannot know whether it has come and gone.
func (c *zkClient) setAgainLocked(k *zkCall) {
	for list, what := range []string{wire.ListData: check.ForData, wire.ListExists: check.ForCreation, wire.ListChildren: check.ForChildren} {
		for _, path := range k.Watches[list] {
			w := zkWatch{path, what}
			if c.armed[w] == 0 {
				continue
			}
			shown := k.Zxid
			if what == check.ForCreation {
				shown = k.Since
			}
			c.endsLocked(w, check.Unwatch, "", shown)
			c.armsLocked(w, k.Zxid)
		}
	}
}
