package server

import (
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// conn is one session stream, with or without a session. Three goroutines work
// on it: the receiver, the sender, and the handler that waits for both; the
// apply hook and the reader reach it through its methods.
type conn struct {
	s     *Server
	guest guest
	out   *outbox

	// Set by the handshake (see adopt), before any request is looked at.
	session  session.ID // 0: none
	gen      uint64
	line     fsm.LineRef
	caller   znode.Caller
	floor    zxid.ID // nothing older is ever shown
	nextSeq  uint64  // when the stream attached: first number not applied
	throttle *rate.Limiter
	giving   *rate.Limiter // see withheld

	// sub, watches and pending are guarded by hub.mu.
	sub     *watch.Subscriber
	watches map[uint64]watchInfo
	// pending holds the watches that are still to be registered, because they
	// wait for something, and whether they were taken back meanwhile.
	pending map[uint64]bool

	// Of the receiver alone.
	top      uint64 // highest write number seen on this stream
	backlog  []*coordpb.Request
	declined error // why the write in hand is refused; nil: it is not

	applied  atomic.Uint64 // highest write number answered here
	unsent   atomic.Int64  // requests whose reply was not handed to gRPC yet
	freed    chan struct{} // has room for one; unsent went down
	acked    atomic.Uint64 // the client has the answers up to here
	ackTold  atomic.Uint64 // the cluster was told so
	lastSent atomic.Uint64 // zxid of the last message

	why      atomic.Pointer[error] // of the first end; nil if the client left
	stopOnce sync.Once
	stopped  chan struct{} // closed by stop

	mu        sync.Mutex // guards below
	dropped   bool
	parked    parking  // reads that wait for applied, by number
	answers   []answer // writes answered and not acknowledged, by number
	answered  int      // bytes of them
	stamps    []stamp  // unanswered writes, by number
	refusals  map[uint64]*coordpb.Error
	postponed []*reading // reads that wait for room in the outbox
}

// watchInfo is what the server keeps of a watch beside the table.
type watchInfo struct {
	path     string
	kind     watch.Kind
	withData bool
}

// answer is the size of one answer that the cluster keeps.
type answer struct {
	seq  uint64
	size int
}

// stamp says when a write arrived, and what it was.
type stamp struct {
	seq   uint64
	start int64
	op    opName
}

func newConn(s *Server, g guest) *conn {
	c := &conn{
		s: s, guest: g,
		out:     newOutbox(s.limits.QueueBytes),
		freed:   make(chan struct{}, 1),
		stopped: make(chan struct{}),
		watches: make(map[uint64]watchInfo),
		pending: make(map[uint64]bool),
	}
	c.sub = &watch.Subscriber{Data: c}
	c.throttle, c.giving = s.limits.writeLimiter(), newGiving()
	return c
}

// end lets what is queued go out, then says goodbye, then ends the stream.
func (c *conn) end(err error) {
	c.why.CompareAndSwap(nil, &err)
	c.out.end(wireError(err))
	c.stop()
}

// stop makes receiver, sender and handler finish.
func (c *conn) stop() { c.stopOnce.Do(func() { close(c.stopped) }) }

func (c *conn) isStopped() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// sent is told by the sender how many replies it has handed over.
func (c *conn) sent(replies int) {
	if replies == 0 {
		return
	}
	c.unsent.Add(int64(-replies))
	select {
	case c.freed <- struct{}{}:
	default:
	}
	c.resumePostponed()
}

// refuse answers a request that is not a write without looking at the state.
// The zxid is one whose events are queued already.
func (c *conn) refuse(id uint64, op opName, start int64, err error) {
	c.out.reply(item{id: id, op: op, start: start, zxid: c.s.hub.firedZxid(), err: c.s.faults.wire(err, id, op)}, 0)
}

// Applied implements cluster.Waiter for all writes of the stream: the state
// machine's lock is held, and the events of the transaction are queued.
func (c *conn) Applied(r *fsm.Result) {
	switch r.Status {
	case fsm.StatusMoved, fsm.StatusOldBoot:
		c.end(session.ErrMoved)
		return
	case fsm.StatusGap:
		c.end(malformed("write %d came without those before it", r.Seq))
		return
	case fsm.StatusDone, fsm.StatusRepeat, fsm.StatusGone, fsm.StatusAcknowledged, fsm.StatusAgain:
	}
	it := item{id: r.Seq, zxid: r.Zxid, result: r}
	it.op, it.start, it.err = c.settle(r)
	if r.Status == fsm.StatusGone && it.err == nil {
		it.err = wireError(c.s.hub.withReason(r.Line.Session, r.Err))
	}
	c.out.reply(it, r.Size())
	if r.Status == fsm.StatusGone {
		poke(c.s.restored) // the table says how it ended, see hub.reconcile
	}
}

// settle notes that write r.Seq is answered and lets the reads behind it run.
func (c *conn) settle(r *fsm.Result) (op opName, start int64, refusal *coordpb.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.refusals[r.Seq]; e != nil {
		delete(c.refusals, r.Seq)
		if r.Kind == fsm.CmdSkip && e.GetCode() == coordpb.Code(codeOf(r.Err)) {
			refusal = e // says more than the code that the log has
		}
	}
	if r.Seq > c.applied.Load() {
		c.applied.Store(r.Seq)
	}
	if r.Seq > c.acked.Load() {
		c.answers = append(c.answers, answer{r.Seq, r.Size()})
		c.answered += r.Size()
	}
	c.s.reader.wake(c.parked.due(c.applied.Load()))
	for len(c.stamps) > 0 && c.stamps[0].seq <= r.Seq {
		op, start = c.stamps[0].op, c.stamps[0].start
		c.stamps = c.stamps[1:]
	}
	return op, start, refusal
}
