package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

const (
	// zkMaxHeld and zkMaxHeldBytes bound the requests of one connection that wait
	// for those in front of them. Past it no more is read from the client, pings
	// included, so it is far more than any client sends ahead.
	zkMaxHeld      = 8 * session.MaxUnacked
	zkMaxHeldBytes = 8 << 20
	// zkRetry is how soon a write that must wait for the cluster is tried again.
	zkRetry = 10 * time.Millisecond
)

// zkPipeline keeps the order of a connection's requests. It is advanced by the
// receiver when a request comes and by the sender when an answer has.
//
// Invariant: a request is in held, or was executed or submitted after all those
// that came before it; writes are outstanding only if no read is before them in
// held.
type zkPipeline struct {
	c    *zkConn
	room chan struct{} // has room for one: held has shrunk, or something was sent
	// blocked says that something is in held, so that an answer that lets nothing
	// go on need not look.
	blocked atomic.Bool
	// retrying says that a timer will look again at what is held.
	retrying atomic.Bool

	mu        sync.Mutex // guards below; taken before the machine's lock
	seq       uint64     // number of the next write
	caller    znode.Caller
	throttle  *rate.Limiter // nil: no limit
	giving    *rate.Limiter
	held      ring[*zkRequest]
	heldBytes int
	syncing   bool // a sync waits for its round
	closed    bool // nothing more is executed
	scratch   zkRequest
}

// zkRequest is one request on its way.
type zkRequest struct {
	wire.Header
	wire.Request
	refusal wire.Code // it cannot be read
	start   int64
	size    int
	delayed bool // counted as held back
}

// class says what a request has to wait for.
type zkClass uint8

const (
	zkRead  zkClass = iota // all writes before it
	zkWrite                // nothing but its place
	zkSync                 // all writes before it, and answers of other servers
)

func (r *zkRequest) class() zkClass {
	if r.refusal != wire.OK {
		return zkRead
	}
	switch r.Type {
	case wire.Create, wire.Create2, wire.CreateContainer, wire.CreateTTL, wire.Delete, wire.SetData, wire.SetACL, wire.Multi, wire.CloseSession:
		return zkWrite
	case wire.Auth:
		if knownScheme(r.Scheme) {
			return zkWrite
		}
		return zkRead
	case wire.Sync, wire.Reconfig:
		return zkSync
	default:
		return zkRead
	}
}

// take handles one frame, which is good until it returns. It blocks while too much
// waits.
func (p *zkPipeline) take(h wire.Header, record []byte, start int64) error {
	if h.Type == wire.Ping { // it must not wait for other requests, see answerPing
		return p.await(func() bool { return p.c.answerPing(h) })
	}
	return p.await(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.held.len() >= zkMaxHeld || p.heldBytes >= zkMaxHeldBytes {
			return false
		}
		p.takeLocked(h, record, start)
		return true
	})
}

// await calls f until it reports true, again whenever there is more room.
func (p *zkPipeline) await(f func() bool) error {
	for !f() {
		select {
		case <-p.room:
		case <-p.c.stopped:
			return errStopped
		}
	}
	return nil
}

func (p *zkPipeline) takeLocked(h wire.Header, record []byte, start int64) {
	r := &p.scratch
	r.read(h, record, start, &p.c.s.limits)
	if p.held.len() == 0 && r.class() != zkSync && p.passes(r) {
		p.do(r)
		*r = zkRequest{} // what a silent client has sent last need not be kept
		return
	}
	held := new(zkRequest)
	*held, *r = *r, zkRequest{}
	held.size = zkRequestOverhead + len(record)
	p.held.push(held)
	p.heldBytes += held.size
	p.blocked.Store(true)
	p.advanceLocked()
}

// zkRequestOverhead is what a held request counts for beside its record.
const zkRequestOverhead = 512

// read decodes a request. One that cannot be read is refused when its turn comes.
func (r *zkRequest) read(h wire.Header, record []byte, start int64, l *Limits) {
	r.Header, r.start, r.refusal = h, start, wire.OK
	if !h.Type.Known() {
		r.Request = wire.Request{}
		r.refusal = wire.Unimplemented
		return
	}
	if r.Decode(h.Type, record) != nil {
		r.refusal = wire.MarshallingError
		return
	}
	if r.class() == zkWrite || h.Type == wire.MultiRead {
		r.refusal = r.checkLimits(l)
	}
}

// passes says whether a request at the front may go. p.mu is held.
func (p *zkPipeline) passes(r *zkRequest) bool {
	if p.syncing || p.closed {
		return false
	}
	outstanding, ok := p.c.out.takes()
	switch {
	case !ok:
		return false
	case r.class() == zkWrite:
		return outstanding < session.MaxUnacked && p.mayWrite(r, outstanding)
	default:
		return outstanding == 0
	}
}

// mayWrite holds writes back while the cluster has too much to do, or the session
// writes faster than it may.
//
// A write that is refused because the disks are full gets that for its answer when
// its turn comes. It has no number yet, so it costs nothing.
func (p *zkPipeline) mayWrite(r *zkRequest, outstanding int) bool {
	why := p.why(r)
	if refused(why) {
		r.refusal = wire.Throttled
		return outstanding == 0
	}
	held := &p.c.s.metrics.throttled.overload
	if why == nil {
		if p.throttle == nil || r.Type == wire.CloseSession || p.throttle.Allow() {
			return true
		}
		held = &p.c.s.metrics.throttled.rate
	}
	if !r.delayed {
		r.delayed = true
		held.Add(1)
	}
	if p.retrying.CompareAndSwap(false, true) {
		time.AfterFunc(zkRetry, func() {
			p.retrying.Store(false)
			poke(p.c.out.wake)
		})
	}
	return false
}

// why is what keeps a write from being taken. A client that leaves is never held.
func (p *zkPipeline) why(r *zkRequest) error {
	load := p.c.s.node.MayWrite(fsm.LineRef{Session: p.c.session, Generation: p.c.gen})
	if load == nil || r.Type == wire.CloseSession {
		return nil
	}
	return withheld(load, r.takesAway(), len(r.Ops), p.giving)
}

// takesAway says that a write needs no room on the disks.
func (r *zkRequest) takesAway() bool {
	switch r.Type {
	case wire.Delete, wire.Auth: // who holds a lock must first say who it is
		return true
	case wire.Multi:
		return !slices.ContainsFunc(r.Ops, func(op wire.Op) bool { return op.Type != wire.Delete && op.Type != wire.Check })
	default:
		return false
	}
}

// advance does what can be done of what is held.
func (p *zkPipeline) advance() {
	if !p.blocked.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.advanceLocked()
}

func (p *zkPipeline) advanceLocked() {
	for p.held.len() > 0 && p.passes(*p.held.front()) {
		r := p.held.pop()
		p.heldBytes -= r.size
		p.do(r)
		poke(p.room)
	}
	p.blocked.Store(p.held.len() > 0)
}

// do executes a request, or submits it. p.mu is held.
func (p *zkPipeline) do(r *zkRequest) {
	if p.c.refusedReadOnly(r) {
		p.c.refuse(r, wire.NotReadOnly)
		return
	}
	if p.c.readOnly.Load() && r.class() == zkWrite {
		p.readOnly(r)
		return
	}
	switch r.class() {
	case zkWrite:
		p.write(r)
	case zkSync:
		p.syncing = true
		work := func() { p.sync(r) }
		if caller := p.caller; r.Type == wire.Reconfig {
			work = func() { p.reconfig(r, caller) }
		}
		p.c.s.workers.Go(func() {
			if err := p.c.s.guarded("zookeeper "+r.Type.String(), func() error { work(); return nil }); err != nil {
				p.c.end(err)
			}
		})
	case zkRead:
		p.c.answerRead(r, &p.caller)
	}
}

// readOnly does what a read-only server does of what is a write elsewhere.
func (p *zkPipeline) readOnly(r *zkRequest) {
	if r.Type == wire.CloseSession {
		p.closed = true
		p.c.out.reply(wire.ReplyHeader{Xid: r.Xid, Zxid: p.c.s.hub.firedZxid()}, r.Type, nil)
		p.c.end(session.ErrClosed)
		return
	}
	ids, err := p.identities(r)
	if err != nil {
		p.c.end(err)
		return
	}
	p.caller.Identities = ids
	p.c.out.reply(wire.ReplyHeader{Xid: r.Xid}, r.Type, nil)
}

// sync waits until this server has everything that was committed when it began,
// answers, and lets what is behind go on.
func (p *zkPipeline) sync(r *zkRequest) {
	ctx, cancel := p.c.context()
	defer cancel()
	for {
		err := p.c.s.node.Linearize(ctx)
		if ctx.Err() != nil {
			return // the connection has gone
		}
		if err == nil {
			break
		}
		select { // without a leader it waits: the client leaves when it wants to
		case <-time.After(roundPause):
		case <-ctx.Done():
			return
		}
	}
	p.c.answerSync(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.syncing = false
	p.advanceLocked()
}

// close lets nothing more be executed.
func (p *zkPipeline) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
}

// knownScheme says whether a client may prove something by the scheme.
func knownScheme(scheme string) bool { return scheme == "digest" || scheme == "ip" || scheme == "x509" }

// receive takes requests until the connection ends.
func (c *zkConn) receive() error {
	for {
		b, err := c.in.frame(c.s.cfg.ZooKeeper.FrameBytes)
		if err != nil {
			return err
		}
		h, record, err := wire.DecodeHeader(b)
		if err != nil {
			return malformed("a frame of %d bytes has no header", len(b))
		}
		c.received.Add(1)
		c.lastXid.Store(h.Xid)
		c.s.words.stats.received.Add(1)
		if c.session != 0 {
			c.s.node.Heard(c.session, c.gen)
		}
		if err := c.pipe.take(h, record, c.s.clock.now()); err != nil {
			return err
		}
	}
}

// answerPing answers at once, whatever else waits: a client gives up a server that
// does not. That the leader counts the client as alive is another matter, see
// Server.sweepZK. It reports false while the client takes no answers.
func (c *zkConn) answerPing(h wire.Header) bool {
	// Events up to this transaction are queued already.
	if !c.out.ping(wire.ReplyHeader{Xid: h.Xid, Zxid: c.s.hub.firedZxid()}) {
		return false
	}
	c.countSent()
	return true
}
