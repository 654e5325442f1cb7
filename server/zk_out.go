package server

import (
	"sync"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// zkOut holds the bytes that wait to be sent on one ZooKeeper connection. They are
// encoded as they are queued: what is queued under the machine's lock costs a few
// dozen bytes of copying, and nothing is allocated for it.
//
// Events are bounded, and past the bound the connection ends: an event may be late
// but never lost. Replies are bounded by the requests that are let in.
type zkOut struct {
	maxBytes int
	wake     chan struct{} // has room for one

	mu     sync.Mutex // guards below
	buf    []byte
	zxid   zxid.ID   // largest that a reply has shown
	events int       // in buf
	oldest time.Time // when the first of them was queued
	// pending are the writes that were submitted and not answered, in order.
	pending ring[zkPending]
	closed  bool // nothing is taken any more
}

// zkPending is what the answer to a write needs of its request.
type zkPending struct {
	seq   uint64
	xid   int32
	typ   wire.Type
	op    opName
	start int64
	ops   []wire.Type // of a multi
}

func newZKOut(maxBytes int) *zkOut {
	return &zkOut{maxBytes: maxBytes, wake: make(chan struct{}, 1)}
}

// reply queues a reply; p is nil where there is no record.
func (o *zkOut) reply(h wire.ReplyHeader, typ wire.Type, p *wire.Reply) {
	o.mu.Lock()
	o.replyLocked(h, typ, p)
	o.mu.Unlock()
	poke(o.wake)
}

func (o *zkOut) replyLocked(h wire.ReplyHeader, typ wire.Type, p *wire.Reply) {
	if o.closed {
		return
	}
	if h.Zxid != 0 { // answers to auth show none
		o.zxid = max(o.zxid, h.Zxid)
		h.Zxid = o.zxid
	}
	start := len(o.buf)
	o.buf = h.Append(wire.BeginFrame(o.buf))
	if p != nil && h.Err == wire.OK {
		o.buf = p.Append(o.buf, typ)
	}
	o.buf = wire.EndFrame(o.buf, start)
}

// raw queues a frame whose payload is given: a handshake, an unknown operation.
func (o *zkOut) raw(payload []byte) {
	o.mu.Lock()
	if !o.closed {
		start := len(o.buf)
		o.buf = append(wire.BeginFrame(o.buf), payload...)
		o.buf = wire.EndFrame(o.buf, start)
	}
	o.mu.Unlock()
	poke(o.wake)
}

// event queues an event. It reports false if that ended the connection.
func (o *zkOut) event(e wire.Event) bool {
	o.mu.Lock()
	defer poke(o.wake)
	defer o.mu.Unlock()
	if o.closed {
		return true
	}
	if len(o.buf) > o.maxBytes {
		// Replies are dropped too, so that nothing later is sent without it.
		o.closed, o.buf = true, nil
		return false
	}
	if o.events == 0 {
		o.oldest = time.Now()
	}
	o.events++
	start := len(o.buf)
	o.buf = wire.EndFrame(wire.AppendEvent(wire.BeginFrame(o.buf), e), start)
	return true
}

// end makes what is queued the last that is sent.
func (o *zkOut) end() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	poke(o.wake)
}

// await notes a write that is about to be submitted.
func (o *zkOut) await(p zkPending) {
	o.mu.Lock()
	o.pending.push(p)
	o.mu.Unlock()
}

// outstanding is the number of writes without an answer.
func (o *zkOut) outstanding() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending.len()
}

// room says whether there is place for what can wait.
func (o *zkOut) room() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf) <= o.maxBytes/2
}

// zkParcel is all that take found.
type zkParcel struct {
	bytes  []byte
	events int
	oldest time.Time
	last   bool // nothing follows
}

// take empties the queue. spare is an empty slice to queue in from now on.
func (o *zkOut) take(spare []byte) zkParcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := zkParcel{bytes: o.buf, events: o.events, oldest: o.oldest, last: o.closed}
	o.buf, o.events = spare[:0], 0
	return p
}

// ring is a first-in first-out queue that keeps its memory. The zero value is
// empty.
type ring[T any] struct {
	items []T // the queue is items[head:]
	head  int
}

func (r *ring[T]) len() int { return len(r.items) - r.head }

func (r *ring[T]) push(v T) {
	if r.head > 0 && len(r.items) == cap(r.items) {
		n := copy(r.items, r.items[r.head:])
		clear(r.items[n:])
		r.items, r.head = r.items[:n], 0
	}
	r.items = append(r.items, v)
}

// front is the oldest item. There must be one.
func (r *ring[T]) front() *T { return &r.items[r.head] }

func (r *ring[T]) pop() T {
	v := r.items[r.head]
	var zero T
	r.items[r.head] = zero
	if r.head++; r.head == len(r.items) {
		r.items, r.head = r.items[:0], 0
		if cap(r.items) > maxSlab {
			r.items = nil
		}
	}
	return v
}
