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
	buf    *zkBuffer  // nil: nothing waits, and no memory does
	zxid   zxid.ID    // largest that a reply has shown
	pings  int        // answers in buf
	events int        // in buf
	oldest time.Time  // when the first of them was queued
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

// zkBuffer is memory for what waits to be sent. Connections borrow it: thousands
// that are silent, also after they were busy, hold none.
type zkBuffer struct{ b []byte }

const (
	zkNewBuffer = 256 // an event or two: ten thousand may fire at once
	// zkSendBytes is how much is written to the socket at a time, and the most that
	// is kept of a buffer.
	zkSendBytes = 256 << 10
)

var zkBuffers = sync.Pool{New: func() any { return &zkBuffer{make([]byte, 0, zkNewBuffer)} }}

// release gives a buffer back. b may be nil.
func (b *zkBuffer) release() {
	if b == nil || cap(b.b) > zkSendBytes {
		return
	}
	b.b = b.b[:0]
	zkBuffers.Put(b)
}

// size is the number of bytes that wait.
func (o *zkOut) size() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sizeLocked()
}

func (o *zkOut) sizeLocked() int {
	if o.buf == nil {
		return 0
	}
	return len(o.buf.b)
}

// beginLocked is where a frame is appended, and where it begins there.
func (o *zkOut) beginLocked() (b *zkBuffer, start int) {
	if o.buf == nil {
		o.buf = zkBuffers.Get().(*zkBuffer)
	}
	start = len(o.buf.b)
	o.buf.b = wire.BeginFrame(o.buf.b)
	return o.buf, start
}

func (b *zkBuffer) endFrame(start int) { b.b = wire.EndFrame(b.b, start) }

// reply queues a reply; p is nil where there is no record.
func (o *zkOut) reply(h wire.ReplyHeader, typ wire.Type, p *wire.Reply) {
	defer poke(o.wake)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.replyLocked(h, typ, p)
}

// ping queues the answer to a ping. It reports false, and queues none, while so
// many wait that the client cannot be reading.
func (o *zkOut) ping(h wire.ReplyHeader) bool {
	defer poke(o.wake)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pings >= zkMaxPings && !o.closed {
		return false
	}
	o.pings++
	o.replyLocked(h, wire.Ping, nil)
	return true
}

// zkMaxPings is the number of answers to pings that may wait to be sent.
const zkMaxPings = 1024

func (o *zkOut) replyLocked(h wire.ReplyHeader, typ wire.Type, p *wire.Reply) {
	if o.closed {
		return
	}
	if h.Zxid != 0 { // answers to auth show none
		o.zxid = max(o.zxid, h.Zxid)
		h.Zxid = o.zxid
	}
	b, start := o.beginLocked()
	b.b = h.Append(b.b)
	if p != nil && h.Err == wire.OK {
		b.b = p.Append(b.b, typ)
	}
	b.endFrame(start)
}

// raw queues a frame whose payload is given: a handshake, an unknown operation.
func (o *zkOut) raw(payload []byte) {
	o.mu.Lock()
	if !o.closed {
		b, start := o.beginLocked()
		b.b = append(b.b, payload...)
		b.endFrame(start)
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
	if o.sizeLocked() > o.maxBytes {
		// Replies are dropped too, so that nothing later is sent without it.
		o.closed, o.buf = true, nil
		return false
	}
	if o.events == 0 {
		o.oldest = time.Now()
	}
	o.events++
	b, start := o.beginLocked()
	b.b = wire.AppendEvent(b.b, e)
	b.endFrame(start)
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

// takes says whether a request may be executed: a connection that ends executes
// nothing more, and one whose client does not take its answers waits. outstanding
// is the number of writes without an answer.
func (o *zkOut) takes() (outstanding int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending.len(), !o.closed && o.sizeLocked() <= o.maxBytes/2
}

// zkParcel is all that take found.
type zkParcel struct {
	*zkBuffer // nil for nothing
	events    int
	oldest    time.Time
	last      bool // nothing follows
}

// bytes are what is to be sent.
func (p *zkParcel) bytes() []byte {
	if p.zkBuffer == nil {
		return nil
	}
	return p.b
}

// take empties the queue. What it returns is to be released.
func (o *zkOut) take() zkParcel {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := zkParcel{zkBuffer: o.buf, events: o.events, oldest: o.oldest, last: o.closed}
	o.buf, o.events, o.pings = nil, 0, 0
	return p
}
