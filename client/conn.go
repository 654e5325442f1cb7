package client

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// conn is one session stream on one server, from its Welcome on.
type conn struct {
	s        *Session
	link     *link
	endpoint string
	server   string // its name
	number   uint64 // the session's connection number; 0 for plain ones
	stream   coordpb.Coord_SessionClient
	cancel   context.CancelFunc
	member   *member // of the pulse; nil for plain ones
	wg       sync.WaitGroup

	kick  chan struct{} // cap 1: there is something to send
	busy  chan struct{} // cap 1: something was sent while the supervisor rested
	move  chan struct{} // cap 1: go to another server
	done  chan struct{} // closed when the stream has ended
	heard atomic.Uint64 // useful messages received
	ear   ear           // of maintain

	// err and bye say why the stream has ended; valid when done is closed.
	err error
	bye *coordpb.Error

	mark Zxid // guarded by s.mu: events up to it have been received
}

func newConn(s *Session, l *link, stream coordpb.Coord_SessionClient, cancel context.CancelFunc) *conn {
	return &conn{
		s: s, link: l, endpoint: l.endpoint, stream: stream, cancel: cancel,
		kick: make(chan struct{}, 1), busy: make(chan struct{}, 1), move: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
}

// start begins to send and to receive. ctx is the stream's.
func (cn *conn) start(ctx context.Context) {
	cn.wg.Go(cn.receive)
	cn.wg.Go(func() { cn.send(ctx) })
	if !cn.s.plain {
		cn.member = cn.s.core.pulses.join(cn)
	}
}

// close ends the stream and waits for its goroutines.
func (cn *conn) close() {
	cn.cancel()
	if cn.member != nil {
		cn.s.core.pulses.leave(cn.member)
	}
	cn.wg.Wait()
	cn.s.core.streams.release(cn.link)
}

func (cn *conn) lost() bool {
	select {
	case <-cn.done:
		return true
	default:
		return false
	}
}

// signal puts a token into a channel of capacity 1, unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// kickLocked wakes the sender. mu is held.
func (s *Session) kickLocked() {
	if s.conn != nil {
		signal(s.conn.kick)
	}
}

func (cn *conn) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-cn.done:
			return
		case <-cn.kick:
		}
		// Let those who are about to queue something do it first: what was
		// woken by one message of replies then leaves in one message again.
		runtime.Gosched()
		for {
			m := cn.s.nextMessage(cn)
			if m == nil {
				break
			}
			if err := cn.stream.Send(m); err != nil {
				return // the receiver gets the reason
			}
		}
	}
}

// nextMessage takes up to one message's worth of requests, in order; nil if
// there is nothing to send on this connection.
func (s *Session) nextMessage(cn *conn) *coordpb.SessionRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != cn || s.end != nil {
		return nil
	}
	var b batch
	s.line.fill(&b)
	s.takeOutbox(&b)
	ack := s.line.acked()
	ackOnly := s.idle && ack != s.line.ackSent
	if len(b.reqs) == 0 && !ackOnly {
		return nil
	}
	s.line.ackSent = ack
	if s.idle && len(b.reqs) > 0 {
		s.idle = false
		signal(cn.busy)
	}
	return &coordpb.SessionRequest{Requests: b.reqs, Ack: ack}
}

// takeOutbox moves reads and watches into b. mu is held.
func (s *Session) takeOutbox(b *batch) {
	for len(s.outbox) > 0 {
		c := s.outbox[0]
		if !c.dropped && !b.add(&c.req, c.size) {
			return
		}
		s.outbox[0] = nil
		s.outbox = s.outbox[1:]
	}
}

func (cn *conn) receive() {
	defer close(cn.done)
	for {
		m, err := cn.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server ended the stream")
			}
			cn.err = plain(err)
			return
		}
		if useful(m) {
			cn.heard.Add(1)
		}
		if m.Goodbye != nil {
			cn.s.handle(cn, m)
			cn.bye = m.Goodbye.GetError()
			cn.err = fromProto("session", "", cn.server, cn.bye)
			return
		}
		if e := cn.s.handle(cn, m); e != nil {
			cn.bye = e
			cn.err = fromProto("session", "", cn.server, e)
			return
		}
	}
}

// useful says that a message is more than "not now": a server that refuses
// everything is no better than one that is silent.
func useful(m *coordpb.SessionReply) bool {
	for _, r := range m.Replies {
		if !passing(r.GetError().GetCode()) {
			return true
		}
	}
	return len(m.Events) > 0 || len(m.Replies) == 0
}

// handle takes in one message. Within it, registrations come before events and
// events before other replies: an event must not be seen later than a reply
// that already shows its transaction. The goodbye comes last. A returned error
// says that the session is over or has left this connection.
func (s *Session) handle(cn *conn, m *coordpb.SessionReply) *coordpb.Error {
	var over ended
	var bad *coordpb.Error
	s.core.saw(newest(m))
	s.mu.Lock()
	if s.conn != cn || s.end != nil {
		s.mu.Unlock()
		return nil
	}
	for _, r := range m.Replies {
		if r.Seq == 0 {
			s.registered(cn, r, Zxid(newest(m)))
		}
	}
	for _, e := range m.Events {
		s.event(cn, e)
	}
	for _, r := range m.Replies {
		if e := s.reply(cn, r, &over); e != nil {
			bad = e
		}
	}
	s.line.pop()
	cn.mark = max(cn.mark, Zxid(m.Zxid))
	var unanswered ended
	ends := gone(m.Goodbye.GetError().GetCode())
	if ends { // before anybody sees the events: some are of what this end has done
		unanswered, _ = s.refusedLocked(m.Goodbye.Error)
	}
	if len(s.line.waiting) > 0 {
		signal(cn.kick)
	}
	s.mu.Unlock()
	over.tell()
	if ends {
		s.tellEnd(unanswered)
	}
	return bad
}

// newest is the last transaction that m shows.
func newest(m *coordpb.SessionReply) uint64 {
	z := m.Zxid
	for _, r := range m.Replies {
		z = max(z, r.Zxid)
	}
	return z
}

// reply matches one reply with its call. mu is held.
func (s *Session) reply(cn *conn, r *coordpb.Reply, over *ended) (bad *coordpb.Error) {
	c := s.calls[r.Id]
	if r.Seq != 0 {
		c = s.line.find(r.Seq)
	}
	code := r.GetError().GetCode()
	if code == coordpb.Code_CODE_SESSION_MOVED {
		return r.Error // nothing was done; it is offered again elsewhere
	}
	if gone(code) {
		bad = r.Error
	}
	if c == nil || c.over {
		return bad
	}
	if passing(code) && !lasting(c.kind, code) {
		s.hold(c, r.Error)
		return nil
	}
	if r.Seq == 0 {
		delete(s.calls, r.Id)
	}
	c.node = cn.server
	over.add(c, r, nil, false)
	return bad
}

// hold keeps a call that was refused for a passing reason, to be sent again in a
// moment. mu is held.
func (s *Session) hold(c *call, e *coordpb.Error) {
	c.held = e
	s.held = append(s.held, c)
	pause := asTold(e, retryPause)
	if til := time.Now().Add(pause); til.After(s.heldTil) {
		s.heldTil = til
	}
}

// release sends what was held back. A write is offered again together with all
// that are behind it: the cluster takes them only in order. mu is held.
func (s *Session) release() {
	again := false
	for _, c := range s.held {
		if c.over || c.dropped {
			continue
		}
		if c.kind == callWrite {
			again = true
		} else {
			s.outbox = append(s.outbox, c)
		}
	}
	s.held = nil
	if again {
		s.line.offered, s.line.skips = 0, nil
	}
	s.kickLocked()
}
