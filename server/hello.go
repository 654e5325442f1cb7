package server

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// open does the handshake of a stream up to and with the Welcome.
func (s *Server) open(ctx context.Context, stream sessionStream) opening {
	first, err := stream.Recv()
	if err != nil {
		return opening{err: err}
	}
	h := first.GetHello()
	if h == nil {
		return opening{err: malformed("the first message has no hello")}
	}
	c, welcome, err := s.admit(ctx, h)
	s.countHello(protoGRPC, h.GetMode() != coordpb.Hello_MODE_NONE, h.GetMode() == coordpb.Hello_MODE_ATTACH, err)
	if err != nil {
		return opening{err: err}
	}
	fired := uint64(s.hub.firedZxid())
	c.lastSent.Store(fired) // what follows may show less, as a repeat does
	if err := stream.Send(&coordpb.SessionReply{Welcome: welcome, Zxid: fired}); err != nil {
		s.drop(c)
		return opening{err: err}
	}
	first.Hello = nil // requests may ride along
	return opening{conn: c, first: first}
}

// countHello counts the opening or moving of a session as a request: many that
// come again and again are seen.
func (s *Server) countHello(p protocol, hasSession, attaches bool, err error) {
	op := opOpen
	if attaches {
		op = opAttach
	}
	if hasSession {
		s.metrics.count(p, op, codeOf(err))
	}
}

// admit lets a client in, or says why not.
func (s *Server) admit(ctx context.Context, h *coordpb.Hello) (*conn, *coordpb.Welcome, error) {
	g, err := s.auth.guest(ctx, h.GetAuth())
	if err != nil {
		return nil, nil, err
	}
	if err := checkHello(h); err != nil {
		return nil, nil, err
	}
	if err := s.formed(); err != nil {
		return nil, nil, err
	}
	if known := s.clusterID(); h.GetClusterId() != "" && h.GetClusterId() != known {
		return nil, nil, fmt.Errorf("this is cluster %s, not %.64s: %w", known, h.GetClusterId(), fsm.ErrWrongCluster)
	}
	c := newConn(s, g)
	c.floor = zxid.ID(h.GetLastZxid())
	c.caller = znode.Caller{Identities: g.identities}
	s.hub.join(c)
	w := &coordpb.Welcome{
		ClusterId: s.clusterID(), ClusterName: s.cfg.Cluster.ClusterName, Server: s.cfg.Cluster.Name,
		Limits: &coordpb.Limits{
			NodeBytes: int64(s.limits.NodeBytes), FrameBytes: int64(s.limits.FrameBytes),
			RequestsInFlight: int64(s.limits.RequestsInFlight), PathBytes: int64(s.limits.PathBytes),
			BeatsPerMessage: maxBeats, OpsPerTransaction: int64(s.limits.OpsPerMulti),
		},
	}
	switch h.GetMode() {
	case coordpb.Hello_MODE_OPEN:
		err = s.openSession(ctx, c, h, w)
	case coordpb.Hello_MODE_ATTACH:
		err = s.attachSession(ctx, c, h, w)
	case coordpb.Hello_MODE_NONE, coordpb.Hello_MODE_UNSPECIFIED:
	}
	if err != nil {
		s.drop(c)
		return nil, nil, err
	}
	return c, w, nil
}

// maxNames bounds the names a client gives itself, in bytes.
const maxNames = 256

func checkHello(h *coordpb.Hello) error {
	if len(h.GetName()) > maxNames || len(h.GetIdentity()) > maxNames {
		return malformed("a name or identity is longer than %d bytes", maxNames)
	}
	if h.GetTimeoutMs() < 0 {
		return malformed("timeout of %d ms", h.GetTimeoutMs())
	}
	switch h.GetMode() {
	case coordpb.Hello_MODE_NONE:
		return nil
	case coordpb.Hello_MODE_OPEN:
		if len(h.GetNonce()) != len(session.Nonce{}) || session.Nonce(h.GetNonce()) == (session.Nonce{}) {
			return malformed("opening a session needs a nonce of %d random bytes", len(session.Nonce{}))
		}
		return nil
	case coordpb.Hello_MODE_ATTACH:
		if h.GetSessionId() == 0 || len(h.GetSecret()) != len(session.Secret{}) || h.GetConnection() < 2 {
			return malformed("attaching needs a session, its secret, and a connection number from 2")
		}
		return nil
	case coordpb.Hello_MODE_UNSPECIFIED:
	}
	return malformed("hello of mode %d", h.GetMode())
}

// openSession opens a session, or finds the one an earlier hello with the same
// nonce has opened.
func (s *Server) openSession(ctx context.Context, c *conn, h *coordpb.Hello, w *coordpb.Welcome) error {
	if err := s.mayOpen(c.guest, session.Nonce(h.GetNonce())); err != nil {
		return err
	}
	o := &fsm.Open{
		Nonce: session.Nonce(h.GetNonce()), Timeout: s.timeout(h.GetTimeoutMs()), Protocol: session.GRPC,
		Name: h.GetName(), Identity: h.GetIdentity(), Expect: session.ID(h.GetTakeOver()),
		Server: s.serverID, Boot: s.boot, Address: c.guest.address, Identities: c.guest.identities,
	}
	if _, err := rand.Read(o.Secret[:]); err != nil {
		return fmt.Errorf("drawing a secret: %w", err)
	}
	info, err := s.bindSession(ctx, c, &fsm.Command{Kind: fsm.CmdOpen, Open: o})
	if err != nil {
		return err
	}
	if info.Elsewhere {
		// An earlier hello with this nonce came to another server, or to this one
		// before it was restarted. Only the client whose nonce it is gets here, so
		// its session is moved to where it is now.
		info, err = s.bindSession(ctx, c, s.attachCommand(c, info.ID, info.Secret, info.Generation+1, 0))
		if err != nil {
			return err
		}
	}
	fill(w, info)
	s.log.Info("session opened", "event", "session_opened", "session", info.ID, "name", h.GetName(), "peer", c.guest.address, "timeout", info.Timeout)
	return nil
}

func (s *Server) attachSession(ctx context.Context, c *conn, h *coordpb.Hello, w *coordpb.Welcome) error {
	id, secret := session.ID(h.GetSessionId()), session.Secret(h.GetSecret())
	if err := s.mayAttach(id, secret); err != nil {
		return err
	}
	var timeout time.Duration
	if h.GetTimeoutMs() > 0 {
		timeout = s.timeout(h.GetTimeoutMs())
	}
	info, err := s.bindSession(ctx, c, s.attachCommand(c, id, secret, h.GetConnection(), timeout))
	if err != nil {
		s.machine.View(func(v *fsm.View) {
			if gone := hasEnded(v, id); gone != nil {
				err = gone
			}
		})
		return err
	}
	if info.Elsewhere {
		return fmt.Errorf("connection %d is at another server: %w", h.GetConnection(), session.ErrMoved)
	}
	fill(w, info)
	return nil
}

func (s *Server) attachCommand(c *conn, id session.ID, secret session.Secret, connection uint64, timeout time.Duration) *fsm.Command {
	return &fsm.Command{Kind: fsm.CmdAttach, Attach: &fsm.Attach{
		Session: id, Secret: secret, Connection: connection, Timeout: timeout, Protocol: session.GRPC,
		Server: s.serverID, Boot: s.boot, Address: c.guest.address, Identities: c.guest.identities,
	}}
}

func fill(w *coordpb.Welcome, info *fsm.SessionInfo) {
	w.SessionId, w.Secret, w.TimeoutMs = uint64(info.ID), info.Secret[:], info.Timeout.Milliseconds()
	w.Connection, w.NextSeq = info.Generation, info.Next
}

// timeout is what is granted of what was asked for.
func (s *Server) timeout(ms int64) time.Duration {
	if ms == 0 {
		return s.cfg.Session.Default
	}
	asked := time.Duration(min(ms, s.cfg.Session.Max.Milliseconds())) * time.Millisecond
	return max(asked, s.cfg.Session.Min)
}

// mayOpen checks the limits on sessions. A repeat opens nothing and is let in.
func (s *Server) mayOpen(g guest, nonce session.Nonce) (err error) {
	if err := s.node.MayWrite(fsm.LineRef{}); err != nil {
		return err
	}
	if s.limits.Sessions == 0 && s.limits.SessionsPerAddress == 0 {
		return nil
	}
	s.machine.View(func(v *fsm.View) {
		if v.Sessions.ByOpenNonce(nonce) == nil {
			err = s.checkCounts(v.Sessions, g.host)
		}
	})
	return err
}

func (s *Server) checkCounts(t *session.Table, host string) error {
	if most := s.limits.Sessions; most > 0 && t.Len() >= most {
		return &limitError{kind: fsm.ErrLimit, what: "open sessions", have: int64(t.Len()) + 1, most: int64(most), setting: settingSessions}
	}
	most := s.limits.SessionsPerAddress
	if most == 0 {
		return nil
	}
	n := 0
	for have := range t.All() {
		if hostPart(have.Address) == host {
			n++
		}
	}
	if n >= most {
		return &limitError{kind: fsm.ErrLimit, what: "open sessions of one address", have: int64(n) + 1, most: int64(most), setting: settingAddress}
	}
	return nil
}

// mayAttach refuses without the log what this server can already see to be
// refused for good: a session's id is the transaction that opened it, so once
// that is applied here a session that is not in the table has ended, and its
// secret never changes. Guessing costs the cluster nothing this way.
func (s *Server) mayAttach(id session.ID, secret session.Secret) (err error) {
	s.machine.View(func(v *fsm.View) {
		if have := v.Sessions.Get(id); have == nil {
			err = hasEnded(v, id)
		} else if !sameSecret(secret[:], have.Secret) {
			err = fmt.Errorf("session %s: %w", id, session.ErrWrongSecret)
		}
	})
	return err
}

// hasEnded is why a session is not open any more; nil if it is open, and also if
// this server is behind its opening, as one that was just started: then the log
// decides.
func hasEnded(v *fsm.View, id session.ID) error {
	if zxid.ID(id) > v.Zxid || v.Sessions.Get(id) != nil {
		return nil
	}
	return goneError(v.Sessions, id)
}

// endedError tells a client that its session has ended, and which of its writes
// were certainly not done: those from next on.
type endedError struct {
	err    error // matches session.ErrExpired, ErrClosed or ErrUnknown
	id     session.ID
	next   uint64            // 0: not known
	reason session.EndReason // 0: not known
}

func (e *endedError) Error() string {
	if e.reason == 0 {
		return fmt.Sprintf("session %s: %v", e.id, e.err)
	}
	return fmt.Sprintf("session %s has ended: %s", e.id, e.reason)
}

func (e *endedError) Unwrap() error { return e.err }

func goneError(t *session.Table, id session.ID) error {
	e := &endedError{err: t.Gone(id), id: id}
	if ended, ok := t.EndedSession(id); ok {
		e.next, e.reason = ended.Next, ended.Reason
	}
	return e
}

func sameSecret(a []byte, b session.Secret) bool { return subtle.ConstantTimeCompare(a, b[:]) == 1 }

// adopt makes c the stream of a session. It runs under the machine's write
// lock, so nothing of the session is applied before it is known here. A stream
// that was dropped meanwhile adopts nothing.
func (c *conn) adopt(info *fsm.SessionInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dropped {
		return
	}
	c.session, c.gen = info.ID, info.Generation
	c.line = fsm.LineRef{Session: info.ID, Generation: info.Generation}
	c.caller.Session = info.ID
	c.nextSeq = info.Next
	c.applied.Store(info.Next - 1)
	c.s.hub.own(c, info)
}

// give marks the stream as dropped and returns what it had adopted.
func (c *conn) give() (session.ID, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped = true
	return c.session, c.gen
}
