package server

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// zkConn is one connection of a ZooKeeper client. Two goroutines work on it: one
// reads requests, one sends; the apply hook reaches it through its methods.
//
// Order is strict, as ZooKeeper's is: requests act as if they came one after the
// other. A read is executed when all writes before it are applied here, and a write
// is not offered to the cluster before all reads in front of it were executed. See
// zk_pipeline.go.
type zkConn struct {
	s     *Server
	net   net.Conn
	in    *zkInput // of the receiver alone
	guest guest    // as it arrived; what it has proved since is in caller
	out   *zkOut
	hello time.Time // when the handshake came

	// Set by the handshake (see adopt), before any request is looked at.
	session session.ID
	gen     uint64
	line    fsm.LineRef
	timeout time.Duration
	// readOnly connections have no session in the cluster: see zk_readonly.go.
	readOnly atomic.Bool

	// sub is guarded by hub.mu.
	sub *watch.Subscriber

	pipe zkPipeline
	// For the words.
	received, sent atomic.Uint64 // requests and replies
	lastXid        atomic.Int32
	since          time.Time

	why      atomic.Pointer[error] // of the first end; nil if the client left
	stopOnce sync.Once
	stopped  chan struct{}

	mu      sync.Mutex // guards below, see adopt
	dropped bool
}

func newZKConn(s *Server, nc net.Conn, in *zkInput, g guest) *zkConn {
	c := &zkConn{s: s, net: nc, in: in, guest: g, out: newZKOut(s.limits.QueueBytes), since: time.Now(), stopped: make(chan struct{})}
	c.sub = &watch.Subscriber{Data: c, Merge: true}
	c.pipe.c = c
	c.pipe.caller = znode.Caller{Identities: g.identities}
	c.pipe.room = make(chan struct{}, 1)
	c.pipe.throttle, c.pipe.giving = s.limits.writeLimiter(), newGiving()
	return c
}

// end implements stream. ZooKeeper's protocol has no way to say why.
func (c *zkConn) end(err error) {
	c.why.CompareAndSwap(nil, &err)
	c.out.end()
}

// stop breaks the connection off.
func (c *zkConn) stop() {
	c.stopOnce.Do(func() {
		close(c.stopped)
		_ = c.net.Close() // what is not sent by now is lost
	})
}

func (c *zkConn) subscriber() *watch.Subscriber { return c.sub }

func (c *zkConn) forgetWatches() {}

// replaced implements stream: what happened between the old state and the new is
// not known, so the client is sent away. It comes back and sets its watches by the
// last zxid it has seen.
func (c *zkConn) replaced(*hub, zxid.ID) { c.end(errReplaced) }

var errReplaced = errors.New("the state was replaced by a newer snapshot")

// notify implements stream.
func (c *zkConn) notify(h *hub, ev *watch.Event) {
	h.events[eventTypeOut(ev.Type)].Add(1)
	if !c.out.event(wire.Event{Type: zkEventType(ev.Type), Path: ev.Path}) {
		h.slow.Add(1)
		c.end(fsm.ErrSlowConsumer)
	}
}

func zkEventType(t watch.EventType) wire.EventType {
	switch t {
	case watch.Created:
		return wire.EventCreated
	case watch.Deleted:
		return wire.EventDeleted
	case watch.Changed:
		return wire.EventChanged
	case watch.ChildrenChanged:
		return wire.EventChildren
	case watch.ACLChanged: // a subscriber that merges gets none
	}
	return 0
}

// adopt makes c the connection of a session. It runs under the machine's write
// lock, so nothing of the session is applied before it is known here. A connection
// that was dropped meanwhile adopts nothing.
func (c *zkConn) adopt(info *fsm.SessionInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return
	}
	c.session, c.gen, c.timeout = info.ID, info.Generation, info.Timeout
	c.line = fsm.LineRef{Session: info.ID, Generation: info.Generation}
	c.pipe.seq = info.Next
	c.pipe.caller.Session = info.ID
	c.s.hub.own(c, info)
}

// bound is the session whose connection this is, 0 if none is yet.
func (c *zkConn) bound() (session.ID, uint64, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session, c.gen, c.timeout
}

// waiting is the number of requests without an answer.
func (c *zkConn) waiting() int {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	return c.pipe.held.len() + c.out.outstanding()
}

// give marks the connection as dropped and returns what it had adopted.
func (c *zkConn) give() (session.ID, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = true
	return c.session, c.gen
}

// serve works until the connection ends. The handshake is done.
func (c *zkConn) serve() {
	sent := make(chan struct{})
	c.s.workers.Go(func() {
		defer close(sent)
		defer c.stop()
		if err := c.s.guarded("zookeeper send", c.send); err != nil {
			c.end(err)
		}
	})
	err := c.s.guarded("zookeeper receive", c.receive)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.s.log.Debug("connection ended for what the client sent", "session", c.session, "peer", c.guest.address, "err", err)
	}
	c.end(err)
	select {
	case <-sent:
	case <-time.After(goodbyeTime): // it reads nothing
	}
	c.stop()
	<-sent
}

// send writes what is queued until the end of the connection, and lets requests
// that waited for an answer go on.
func (c *zkConn) send() error {
	for {
		select {
		case <-c.out.wake:
		case <-c.stopped:
			return nil
		}
		c.pipe.advance()
		p := c.out.take()
		n := len(p.bytes())
		if c.write(p.bytes()) != nil {
			return nil //nolint:nilerror // the client has gone
		}
		p.release()
		if p.events > 0 {
			c.s.metrics.watchLag.observe(time.Since(p.oldest))
		}
		if p.last {
			return nil
		}
		if n == 0 {
			continue
		}
		poke(c.pipe.room) // a ping may wait for this
		if c.pipe.blocked.Load() {
			poke(c.out.wake) // there is room for the answers to what waits
		}
	}
}

// write sends bytes piece by piece: each has a time limit of its own.
func (c *zkConn) write(b []byte) error {
	for len(b) > 0 {
		n, err := c.net.Write(b[:min(len(b), zkSendBytes)])
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// Applied implements cluster.Waiter for all writes of the connection: the state
// machine's lock is held, and the events of the transaction are queued.
func (c *zkConn) Applied(r *fsm.Result) {
	switch r.Status {
	case fsm.StatusMoved, fsm.StatusOldBoot:
		c.end(session.ErrMoved)
		return
	case fsm.StatusGap, fsm.StatusAcknowledged, fsm.StatusAgain:
		c.end(fsm.ErrInternal)
		return
	case fsm.StatusGone:
		c.end(r.Err)
		poke(c.s.restored) // the table says how it ended, see hub.reconcile
		return
	case fsm.StatusDone, fsm.StatusRepeat:
	}
	if errors.Is(r.Err, session.ErrUnknownOutcome) {
		c.end(r.Err) // an error would read as "not done"
		return
	}
	o := c.out
	o.mu.Lock()
	if o.pending.len() == 0 || o.pending.front().seq != r.Seq {
		o.mu.Unlock()
		c.end(fsm.ErrInternal)
		return
	}
	p := o.pending.pop()
	c.answerWriteLocked(&p, r)
	if p.typ == wire.CloseSession && r.Err == nil {
		o.closed = true // the reply is the last of the connection
	}
	o.mu.Unlock()
	c.count(p.op, r.Err, p.start)
	poke(o.wake)
}

var _ cluster.Waiter = (*zkConn)(nil)
