package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// zkHelloBytes is the longest handshake that is read. Who has not said hello yet
// costs no more than the read buffer.
const zkHelloBytes = 4 << 10

// handshake lets a client in and queues the answer. After an error the connection
// is closed; where the protocol has an answer for it that was sent. A client that
// is to try another server gets none.
func (c *zkConn) handshake() error {
	frame, err := c.in.frame(zkHelloBytes)
	if err != nil {
		return err
	}
	c.hello = time.Now()
	var q wire.ConnectRequest
	if err := q.Decode(frame); err != nil {
		return err
	}
	if err := c.s.formed(); err != nil {
		return err
	}
	ctx, cancel := c.context()
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, helloTime)
	defer stop()
	info, err := c.admit(ctx, &q)
	c.s.countHello(protoZooKeeper, !c.readOnly.Load(), q.Session != 0, err)
	switch {
	case errors.Is(err, session.ErrExpired), errors.Is(err, session.ErrClosed), errors.Is(err, session.ErrUnknown), errors.Is(err, session.ErrWrongSecret):
		return c.expired(&q, err)
	case err != nil:
		return err
	}
	c.out.raw((&wire.ConnectResponse{
		Timeout: info.Timeout, Session: info.ID, Password: info.Secret[:], ReadOnly: c.readOnly.Load(), HasReadOnly: q.HasReadOnly,
	}).Append(nil))
	return nil
}

// admit finds the session that the client is to have.
func (c *zkConn) admit(ctx context.Context, q *wire.ConnectRequest) (*fsm.SessionInfo, error) {
	if c.s.cfg.ZooKeeper.ReadOnly && c.s.cutOff() {
		if have := c.s.machine.Zxid(); int64(q.LastZxid) > 0 && q.LastZxid > have {
			return nil, errAhead(q.LastZxid, have)
		}
		return c.readOnlySession(q)
	}
	if err := c.catchUp(ctx, q.LastZxid); err != nil {
		return nil, err
	}
	if q.Session == 0 {
		return c.openSession(ctx, q)
	}
	return c.attachSession(ctx, q)
}

// catchUp makes sure that the client is shown nothing older than it has seen. What
// it has seen was committed, so asking the leader is enough to know whether it can
// be waited for.
func (c *zkConn) catchUp(ctx context.Context, seen zxid.ID) error {
	if int64(seen) <= 0 || seen <= c.s.machine.Zxid() {
		return nil
	}
	if err := c.s.node.Linearize(ctx); err != nil {
		return err
	}
	if have := c.s.machine.Zxid(); seen > have {
		return errAhead(seen, have)
	}
	return nil
}

func errAhead(seen, have zxid.ID) error {
	return fmt.Errorf("the client has seen %s, this server is at %s", seen, have)
}

// zkTimeout is what is granted of what was asked for.
func (s *Server) zkTimeout(asked time.Duration) time.Duration {
	return max(min(asked, s.cfg.Session.Max), s.cfg.Session.Min)
}

func newNonce() (n session.Nonce, err error) {
	if _, err = rand.Read(n[:]); err != nil {
		return n, fmt.Errorf("drawing a nonce: %w", err)
	}
	return n, nil
}

func (c *zkConn) openSession(ctx context.Context, q *wire.ConnectRequest) (*fsm.SessionInfo, error) {
	s := c.s
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	if err := s.mayOpen(c.guest, nonce); err != nil {
		return nil, err
	}
	o := &fsm.Open{
		Nonce: nonce, Timeout: s.zkTimeout(q.Timeout), Protocol: session.ZooKeeper, Name: zkSessionName,
		Server: s.serverID, Boot: s.boot, Address: c.guest.address, Identities: c.guest.identities,
	}
	if _, err := rand.Read(o.Secret[:]); err != nil {
		return nil, fmt.Errorf("drawing a secret: %w", err)
	}
	info, err := s.bindSession(ctx, c, &fsm.Command{Kind: fsm.CmdOpen, Open: o})
	if err == nil {
		s.log.Info("session opened", "event", "session_opened", "session", info.ID, "name", o.Name, "peer", c.guest.address, "timeout", info.Timeout)
	}
	return info, err
}

// zkSessionName is what operators see of sessions whose clients cannot name
// themselves.
const zkSessionName = "zookeeper client"

// attachSession binds an old session to this connection. This server may not know
// yet of the connection that the client had a moment ago at another one: then it
// asks, and tries once more.
func (c *zkConn) attachSession(ctx context.Context, q *wire.ConnectRequest) (*fsm.SessionInfo, error) {
	if len(q.Password) != len(session.Secret{}) {
		return nil, session.ErrWrongSecret
	}
	generation, err := c.generation(ctx, q)
	if err != nil {
		return nil, err
	}
	info, err := c.attachAt(ctx, q, generation)
	if !errors.Is(err, session.ErrMoved) {
		return info, err
	}
	if lerr := c.s.node.Linearize(ctx); lerr != nil {
		return nil, lerr
	}
	if generation, _ = c.seen(q); generation == 0 || !c.current() {
		return nil, err
	}
	return c.attachAt(ctx, q, generation)
}

// attachAt is compare and set on a generation, so that of two connections that come
// at the same time one is let in.
func (c *zkConn) attachAt(ctx context.Context, q *wire.ConnectRequest, generation uint64) (*fsm.SessionInfo, error) {
	s := c.s
	nonce, err := newNonce()
	if err != nil {
		return nil, err
	}
	return s.bindSession(ctx, c, &fsm.Command{Kind: fsm.CmdAttach, Attach: &fsm.Attach{
		Session: q.Session, Secret: session.Secret(q.Password), Expect: generation, Nonce: nonce, Timeout: s.zkTimeout(q.Timeout), Protocol: session.ZooKeeper,
		Server: s.serverID, Boot: s.boot, Address: c.guest.address, Identities: c.guest.identities,
	}})
}

// generation is that of the session's present connection, as it is known when the
// handshake arrives. "Expired" is for ever, so a session that this server does not
// know is first looked for in everything that was committed.
func (c *zkConn) generation(ctx context.Context, q *wire.ConnectRequest) (uint64, error) {
	generation, err := c.seen(q)
	if generation != 0 || errors.Is(err, session.ErrWrongSecret) {
		return generation, err
	}
	if err := c.s.node.Linearize(ctx); err != nil {
		return 0, err
	}
	generation, err = c.seen(q)
	if generation > 1 && !c.current() {
		return 0, session.ErrMoved
	}
	return generation, err
}

// seen looks for the session and its generation in the state here.
func (c *zkConn) seen(q *wire.ConnectRequest) (generation uint64, err error) {
	c.s.machine.View(func(v *fsm.View) {
		have := v.Sessions.Get(q.Session)
		switch {
		case have == nil:
			err = goneError(v.Sessions, q.Session)
		case !sameSecret(q.Password, have.Secret):
			err = session.ErrWrongSecret
		default:
			generation = have.Generation
		}
	})
	return generation, err
}

// zkHaste is for how long after its handshake a connection counts as the client's
// present one: less than any client takes to give it up and make another.
const zkHaste = 250 * time.Millisecond

// current says that this is the connection that the client uses now. A connection of
// its session that this server did not know of when the handshake came may be an
// earlier one, or a later one: then the client has left this one, and must not lose
// its session to what it has left behind, nor have done what it asked for there. So
// the handshake must be new, the client still there, and nothing sent behind it. Any
// other is closed: a client that is alive comes again.
func (c *zkConn) current() bool {
	const moment = time.Millisecond
	if time.Since(c.hello) > zkHaste || c.net.SetReadDeadline(time.Now().Add(moment)) != nil {
		return false
	}
	_, err := c.in.peek(1)
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// adopter is a connection that can be that of a session.
type adopter interface {
	adopt(info *fsm.SessionInfo)
}

// bindSession proposes an Open or Attach and makes c the session's connection when
// it is applied.
func (s *Server) bindSession(ctx context.Context, c adopter, cmd *fsm.Command) (*fsm.SessionInfo, error) {
	done := make(chan *fsm.Result, 1)
	s.node.Propose(cmd, cluster.WaiterFunc(func(r *fsm.Result) {
		if r.Err == nil && r.Session != nil && !r.Session.Elsewhere {
			c.adopt(r.Session)
		}
		done <- r
	}))
	select {
	case r := <-done:
		switch {
		case r.Err != nil:
			return nil, r.Err
		case r.Session == nil:
			return nil, fmt.Errorf("%s at this server: %w", r.Status, fsm.ErrUnavailable)
		}
		return r.Session, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-s.stopping:
		return nil, fsm.ErrShuttingDown
	}
}
