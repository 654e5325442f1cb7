package lock

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// Wait is one session that waits for another.
type Wait struct {
	Lock   string // path of the lock
	Waiter Party  // who waits
	Holder Party  // who has what it waits for

	began   client.Zxid // the transaction that made the waiter's entry
	refuses bool        // the waiter wants to be refused in a deadlock
}

// Cycle is a deadlock: each Wait's Holder is a party of the session that is the
// Waiter of the next, and the last one's that of the first. The youngest wait is
// the last.
type Cycle []Wait

// String names owners and locks: "a waits for /l/1, which b holds; b waits for
// /l/2, which a holds".
func (c Cycle) String() string {
	var parts []string
	for _, w := range c {
		parts = append(parts, who(&w.Waiter)+" waits for "+w.Lock+", which "+who(&w.Holder)+" holds")
	}
	return strings.Join(parts, "; ")
}

func who(p *Party) string {
	if p.Owner != "" {
		return p.Owner
	}
	return "session " + p.Session.String()
}

// Deadlocks finds the sessions that wait for each other in a circle in which at
// least one waits for a lock at root or below. It follows read-write locks,
// semaphores and locks of several paths as well, and those of ZooKeeper clients;
// where a session leads it to a lock elsewhere it goes on there. Every such wait
// is in one of the cycles at least, or another one between the same two sessions
// is. What is returned was true at one moment, and stays true until somebody
// interferes: it is looked at twice.
//
// The cluster knows sessions, not threads. A session is taken to give nothing
// back while it waits, and so a process that uses one session for independent
// tasks can be named although one of the tasks is about to release. A session
// that waits for itself is left out: that one of its tasks waits for another is
// how a lock is used within a process. One that really waits for itself, in one
// call chain, is refused with ErrDeadlock before it waits.
func Deadlocks(ctx context.Context, c *client.Client, root string) ([]Cycle, error) {
	s := search{c: c, limit: maxSessions}
	s.in = func(w *want) bool {
		return w.lock == root || strings.HasPrefix(w.lock, strings.TrimSuffix(root, "/")+"/")
	}
	s.from = func(ctx context.Context, e *explorer) ([]client.SessionID, error) { return e.contended(ctx, root) }
	return s.run(ctx)
}

// maxSessions bounds how many sessions are looked at for a list of deadlocks.
const maxSessions = 100_000

// search finds cycles.
type search struct {
	c     *client.Client
	limit int                                                          // of sessions
	from  func(context.Context, *explorer) ([]client.SessionID, error) // where to begin
	in    func(*want) bool                                             // a wait that the cycles are to have
}

// run finds cycles twice and returns those that were there both times. A queue
// cannot change its order, and a znode that has gone never comes back with the
// same czxid; so who was seen to wait for another, and is seen to later, waited
// for it all the time between. All waits of a cycle were therefore there together
// when the second look began.
func (s *search) run(ctx context.Context) ([]Cycle, error) {
	first := newExplorer(s.c, s.limit)
	start, err := s.from(ctx, first)
	if err != nil {
		return nil, err
	}
	if err := first.explore(ctx, start); err != nil {
		return nil, err
	}
	cycles := cyclesIn(first.wants, s.in)
	if len(cycles) == 0 {
		return nil, nil
	}
	start = nil
	for _, cycle := range cycles {
		for _, w := range cycle {
			start = append(start, w.Waiter.Session)
		}
	}
	second := newExplorer(s.c, s.limit)
	if err := second.explore(ctx, start); err != nil {
		return nil, err
	}
	stuck := stuckIn(second.wants)
	return slices.DeleteFunc(cycles, func(c Cycle) bool { return !second.sees(c, stuck) }), nil
}

// contended returns the sessions that hold the locks at root and below that
// somebody waits for.
func (e *explorer) contended(ctx context.Context, root string) ([]client.SessionID, error) {
	found := map[string]*scan{}
	var order []string
	at := func(lock string) *scan {
		if found[lock] == nil {
			found[lock] = &scan{path: lock, nodes: map[string]client.Node{}}
			order = append(order, lock)
		}
		return found[lock]
	}
	for n, err := range e.c.Walk(ctx, root) {
		if err != nil {
			return nil, err
		}
		dir := path.Dir(n.Path)
		n.Data = keptData(n)
		if isEntry(path.Base(n.Path)) {
			at(dir).add(n)
		} else if path.Base(dir) == slotsName {
			at(path.Dir(dir)).add(n)
		} else if path.Base(n.Path) == slotsName {
			at(dir).add(n)
		}
	}
	var out []client.SessionID
	for _, lock := range order {
		info := found[lock].info()
		if len(info.Waiters) == 0 {
			continue
		}
		for i := range info.Holders {
			out = append(out, info.Holders[i].Session)
		}
	}
	return out, nil
}

// keptData is what a walk needs of a node's data: who is behind an entry is read
// when it matters.
func keptData(n client.Node) []byte {
	if path.Base(n.Path) == slotsName {
		return n.Data
	}
	return nil
}
