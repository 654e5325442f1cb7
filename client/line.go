package client

import "github.com/coordd/coord/api/coordpb"

// Bounds of the number line.
const (
	// window is how many writes may be numbered and unanswered. It stays below
	// the 1,024 that the cluster keeps answers for.
	window = 1000
	// batchBytes is how much one message carries, except for a single larger
	// request.
	batchBytes = 64 << 10
)

// line is the client's half of a session's number line. Writes wait without a
// number until the sender takes them, so that a caller who leaves before that
// costs nothing; a number once given is always used. Its user locks.
//
// Invariant: pending[i] has the number base+i and is the only call with it;
// every number below base has been answered.
type line struct {
	base    uint64
	pending []*call
	offered int     // pending[:offered] were sent on the present connection
	waiting []*call // not numbered; also reads that must come behind these
	skips   []uint64
	ackSent uint64 // as of the present connection
	window  int    // how many may be pending
}

func newLine() line { return line{base: 1, window: window} }

// last is the newest number given.
func (l *line) last() uint64 { return l.base + uint64(len(l.pending)) - 1 }

// acked is the number up to which all answers are here.
func (l *line) acked() uint64 { return l.base - 1 }

// find returns the unanswered write with this number.
func (l *line) find(seq uint64) *call {
	if seq < l.base || seq > l.last() {
		return nil
	}
	return l.pending[seq-l.base]
}

// pop forgets the answered writes at the front.
func (l *line) pop() {
	n := 0
	for n < len(l.pending) && l.pending[n].over {
		l.pending[n] = nil
		n++
	}
	l.pending = l.pending[n:]
	l.base += uint64(n)
	l.offered = max(0, l.offered-n)
}

// reoffer makes all unanswered writes be sent again, from the oldest.
func (l *line) reoffer() {
	l.offered, l.skips, l.ackSent = 0, nil, 0
}

// skip withdraws a numbered write: whatever became of it, its number will be
// answered.
func (l *line) skip(c *call) {
	c.skipped = true
	seq := c.req.Seq
	if seq-l.base < uint64(l.offered) {
		l.skips = append(l.skips, seq)
	}
}

// fill puts into b what is to be sent next.
func (l *line) fill(b *batch) {
	for l.offered < len(l.pending) {
		c := l.pending[l.offered]
		if c.over { // answered on an earlier connection, held up by an older one
			l.offered++
			continue
		}
		if !b.add(offer(c), c.size) {
			return
		}
		l.offered++
	}
	for len(l.skips) > 0 {
		if c := l.find(l.skips[0]); c != nil && !c.over && !b.add(offer(c), skipBytes) {
			return
		}
		l.skips = l.skips[1:]
	}
	l.number(b)
}

// number takes waiting calls, in order, as long as there is room.
func (l *line) number(b *batch) {
	for len(l.waiting) > 0 {
		c := l.waiting[0]
		if c.kind == callWrite && len(l.pending) >= l.window && !c.dropped {
			return
		}
		if !c.dropped && !b.fits(c.size) {
			return
		}
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		if c.dropped {
			continue
		}
		if c.kind == callWrite {
			c.req.Seq = l.last() + 1
			l.pending = append(l.pending, c)
			l.offered++
		} else {
			c.behind = false
			c.req.Read.AfterSeq = l.last()
		}
		b.add(&c.req, c.size)
	}
}

// offer is a write as it goes over the wire.
func offer(c *call) *coordpb.Request {
	if c.skipped {
		return &coordpb.Request{Seq: c.req.Seq, Skip: &coordpb.Skip{Code: coordpb.Code_CODE_CANCELLED}}
	}
	return &c.req
}

const skipBytes = 16

// batch is the content of one message.
type batch struct {
	reqs  []*coordpb.Request
	bytes int
}

func (b *batch) fits(size int) bool { return len(b.reqs) == 0 || b.bytes+size <= batchBytes }

func (b *batch) add(r *coordpb.Request, size int) bool {
	if !b.fits(size) {
		return false
	}
	b.reqs = append(b.reqs, r)
	b.bytes += size
	return true
}
