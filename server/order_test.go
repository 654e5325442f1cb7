package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// orderCheck follows one stream that watches everything, and fails when a rule
// of order is broken in the order in which a client takes a message in:
// registrations, then events, then the other replies.
type orderCheck struct {
	t testing.TB

	registered map[uint64]bool
	mark       uint64 // everything up to it has been sent
	last       uint64 // zxid of the newest event
	index      uint32
	open       bool // the transaction of the newest event is not complete
	complete   map[uint64]bool
}

func newOrderCheck(t testing.TB) *orderCheck {
	return &orderCheck{t: t, registered: map[uint64]bool{}, complete: map[uint64]bool{}}
}

func (o *orderCheck) message(m *coordpb.SessionReply) {
	for _, r := range m.GetReplies() {
		if r.GetSeq() == 0 {
			o.registered[r.GetId()] = true
		}
	}
	for _, e := range m.GetEvents() {
		o.event(e)
	}
	for _, r := range m.GetReplies() {
		if r.GetSeq() != 0 && r.GetError() == nil && !o.complete[r.GetZxid()] {
			o.t.Errorf("reply %d shows transaction %x before its events", r.GetSeq(), r.GetZxid())
		}
		if r.GetRead() != nil && r.GetZxid() > 0 && o.open && r.GetZxid() >= o.last {
			o.t.Errorf("read at %x in the middle of transaction %x", r.GetZxid(), o.last)
		}
	}
	if o.open && m.GetZxid() >= o.last {
		o.t.Errorf("mark %x in the middle of transaction %x", m.GetZxid(), o.last)
	}
	o.mark = max(o.mark, m.GetZxid())
}

func (o *orderCheck) event(e *coordpb.Event) {
	z := e.GetZxid()
	if !o.registered[e.GetWatchId()] {
		o.t.Errorf("event of watch %d before its registration", e.GetWatchId())
	}
	if z <= o.mark {
		o.t.Errorf("event %x behind the mark %x", z, o.mark)
	}
	if inside := o.open && z == o.last && e.GetIndex() > o.index; !inside && (o.open || z <= o.last) {
		o.t.Errorf("event %x.%d behind %x.%d (open %t)", z, e.GetIndex(), o.last, o.index, o.open)
	}
	o.last, o.index, o.open = z, e.GetIndex(), !e.GetLast()
	if e.GetLast() {
		o.complete[z] = true
	}
}

// TestOrderOfEventsAndReplies: the reply that registers a watch comes before its
// events; the events of a transaction before any reply that shows it; events in
// the order of transactions; a mark only when everything up to it is sent; and
// nothing while a transaction is half told. Under load of several writers, whose
// own streams watch too.
func TestOrderOfEventsAndReplies(t *testing.T) {
	writers, rounds := 4, 25_000
	if testing.Short() {
		rounds = 2_000
	}
	r := start(t, oneServer(t))
	r.open().must(create("/w", ""))
	var wg sync.WaitGroup
	var events atomic.Int64
	for i := range writers {
		c, o := r.open(), newOrderCheck(t)
		c.mu.Lock()
		c.onMessage = func(m *coordpb.SessionReply) {
			o.message(m)
			events.Add(int64(len(m.GetEvents())))
			clear(c.replies)
			c.events = c.events[:0]
		}
		c.mu.Unlock()
		c.send(&coordpb.Request{Id: 1, Watch: &coordpb.Watch{Path: "/w", Kind: coordpb.Watch_KIND_RECURSIVE}})
		c.id = 1
		wg.Go(func() { writeMixed(c, i, rounds/writers) })
	}
	wg.Wait()
	if int(events.Load()) < rounds {
		t.Errorf("only %d events of %d rounds", events.Load(), rounds)
	}
}

// writeMixed pipelines creates, sets, deletes, multis that succeed and multis
// that fail, with reads between.
func writeMixed(c *tester, i, rounds int) {
	dir := fmt.Sprintf("/w/%d", i)
	c.offer(create(dir, ""))
	const depth = 64
	for n := range rounds {
		path := fmt.Sprintf("%s/%d", dir, n%32)
		switch n % 4 {
		case 0:
			c.offer(create(path, "x"), set(dir, "y"), create(path+"x", ""))
		case 1:
			c.offer(set(dir, "x"), remove("/none"))
		case 2:
			c.offer(set(dir, fmt.Sprint(n)))
			c.ask(&coordpb.Request{Read: get(dir)})
		case 3:
			c.offer(remove(fmt.Sprintf("%s/%d", dir, (n-3)%32)), remove(fmt.Sprintf("%s/%dx", dir, (n-3)%32)))
		}
		if n%depth == depth-1 {
			c.sync()
		}
	}
	c.sync()
}

// sync waits for the answers to all writes so far and acknowledges them.
func (c *tester) sync() {
	c.t.Helper()
	c.offer(set("/w", ""))
	last := c.seq
	c.wait("pipeline answered", func() bool { return c.lastSeq >= last })
	c.acked = last
}
