package fsm

import (
	"crypto/subtle"
	"fmt"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// open makes a session. Its id is the transaction it is opened in, so it never
// was and never will be another's.
func (m *Machine) open(c *Command) *Result {
	o := c.Open
	if err := checkOpen(o); err != nil {
		return newResult(c, StatusDone, err)
	}
	if s := m.state.Sessions.ByOpenNonce(o.Nonce); s != nil {
		s = m.touch(s.ID)
		r := newResult(c, StatusRepeat, nil)
		r.Session = infoOf(s, o.Server, o.Boot)
		return r
	}
	held := m.holder(o.Identity)
	if held != 0 && held != o.Expect {
		return newResult(c, StatusDone, &session.IdentityError{Identity: o.Identity, Current: held})
	}
	tx := m.begin(&znode.Caller{Session: held, Trusted: true}, znode.BySessionClose)
	if held != 0 {
		m.endSession(tx, held, session.TakenOver)
	}
	s := m.newSession(o)
	if err := m.state.Sessions.Open(s); err != nil {
		m.fault = err // the checks above exclude every reason it has
		return newResult(c, StatusDone, err)
	}
	m.opened = s
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	r.Session = infoOf(s, o.Server, o.Boot)
	return r
}

// holder is the session of a stable identity, 0 for none.
func (m *Machine) holder(identity string) session.ID {
	if identity == "" {
		return 0
	}
	if s := m.state.Sessions.ByIdentity(identity); s != nil {
		return s.ID
	}
	return 0
}

func (m *Machine) newSession(o *Open) *session.Session {
	return &session.Session{
		ID: session.ID(m.state.Zxid), Secret: o.Secret, Timeout: o.Timeout, Protocol: o.Protocol,
		Name: o.Name, Identity: o.Identity, OpenNonce: o.Nonce, Generation: 1,
		Server: o.Server, Boot: o.Boot, Address: o.Address, Identities: o.Identities,
		Touched: m.now.index, Opened: m.state.Clock,
	}
}

func infoOf(s *session.Session, server string, boot uint64) *SessionInfo {
	return &SessionInfo{
		ID: s.ID, Secret: s.Secret, Timeout: s.Timeout, Generation: s.Generation,
		Next: s.Line.Next(), Elsewhere: s.Server != server || s.Boot != boot,
	}
}

// attach moves a session to a new connection.
func (m *Machine) attach(c *Command) *Result {
	a := c.Attach
	s := m.state.Sessions.Get(a.Session)
	if s == nil {
		return newResult(c, StatusDone, fmt.Errorf("session %s: %w", a.Session, m.state.Sessions.Gone(a.Session)))
	}
	if err := checkAttach(a, s); err != nil {
		return newResult(c, StatusDone, err)
	}
	generation, err := nextGeneration(a, s)
	if err != nil {
		return newResult(c, StatusDone, err)
	}
	status := StatusRepeat
	s = m.touch(a.Session)
	if generation != s.Generation {
		status = StatusDone
		s.Generation = generation
		m.bind(s, a)
	}
	r := newResult(c, status, nil)
	r.Session = infoOf(s, a.Server, a.Boot)
	return r
}

// checkAttach asks whether the client is the one that opened the session, and
// speaks the protocol it was opened with.
func checkAttach(a *Attach, s *session.Session) error {
	if subtle.ConstantTimeCompare(a.Secret[:], s.Secret[:]) != 1 {
		return fmt.Errorf("session %s: %w", a.Session, session.ErrWrongSecret)
	}
	if a.Protocol != s.Protocol {
		return fmt.Errorf("session %s, opened through %s: %w", a.Session, s.Protocol, session.ErrWrongProtocol)
	}
	if a.Timeout < 0 || a.Timeout > MaxTimeout {
		return badArguments("timeout %s", a.Timeout)
	}
	return checkPlace(a.Server, a.Address, a.Identities)
}

// nextGeneration is the generation the attach leads to: the present one if the
// attach has been done before, a later one if it is to be done now, and an
// error if the session has moved on. A late copy of an old attach can so never
// fence out a living connection.
func nextGeneration(a *Attach, s *session.Session) (uint64, error) {
	if s.Protocol == session.GRPC {
		if a.Connection < s.Generation {
			return 0, fmt.Errorf("session %s, connection %d of %d: %w", a.Session, a.Connection, s.Generation, session.ErrMoved)
		}
		return a.Connection, nil
	}
	switch {
	case a.Nonce == session.Nonce{}:
		return 0, badArguments("attach without a nonce")
	case a.Nonce == s.AttachNonce:
		return s.Generation, nil
	case a.Expect != s.Generation:
		return 0, fmt.Errorf("session %s, expected at %d, is at %d: %w", a.Session, a.Expect, s.Generation, session.ErrMoved)
	}
	return s.Generation + 1, nil
}

// bind records where the session is now and who is at the other end.
func (m *Machine) bind(s *session.Session, a *Attach) {
	s.AttachNonce = a.Nonce
	s.Server, s.Boot, s.Address, s.Identities = a.Server, a.Boot, a.Address, a.Identities
	if a.Timeout > 0 {
		s.Timeout = a.Timeout
	}
	delete(m.callers, s.ID)
}

// close ends the session at its client's wish. The number is used first, so
// that a repeat finds it below the next of the ended session.
func (m *Machine) close(c *Command) *Result {
	id := c.Line.Session
	tx := m.begin(m.callerOf(c), znode.BySessionClose)
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	m.state.Sessions.Edit(id).Line.Record(c.Seq, r, false)
	m.endSession(tx, id, session.Closed)
	return r
}

// setIdentities replaces what the client of this generation has proved.
func (m *Machine) setIdentities(c *Command) *Result {
	if err := checkIdentities(c.Identities); err != nil {
		return newResult(c, StatusDone, err)
	}
	m.state.Sessions.Edit(c.Line.Session).Identities = c.Identities
	delete(m.callers, c.Line.Session)
	return newResult(c, StatusDone, nil)
}

// callerOf is on whose behalf a command runs.
func (m *Machine) callerOf(c *Command) *znode.Caller {
	id := c.Line.Session
	if id == 0 {
		return &znode.Caller{Identities: c.Write.Identities, Trusted: c.Write.Trusted}
	}
	caller := m.callers[id]
	if caller == nil {
		caller = &znode.Caller{Session: id, Identities: m.state.Sessions.Get(id).Identities}
		m.callers[id] = caller
	}
	return caller
}
