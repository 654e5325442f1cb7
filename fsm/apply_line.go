package fsm

import (
	"fmt"

	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
)

// onSessionLine decides about a command of a session by the rule of number
// lines: the next number is done, a smaller one was, a larger one waits.
func (m *Machine) onSessionLine(c *Command) *Result {
	s := m.touch(c.Line.Session)
	if s == nil {
		return m.gone(c)
	}
	if c.Line.Generation != s.Generation && !planted.On(planted.LoseGeneration) {
		return newResult(c, StatusMoved, session.ErrMoved)
	}
	s.Line.Ack(c.Ack)
	verdict, v := s.Line.Check(c.Seq)
	if verdict != session.Do {
		return past(c, verdict, v)
	}
	keep := s.Protocol == session.GRPC // ZooKeeper clients never ask twice
	r := m.do(c)
	if s := m.state.Sessions.Edit(c.Line.Session); s != nil { // not closed
		s.Line.Record(c.Seq, r, keep)
	}
	return r
}

// touch records that a command of the session was seen, whatever becomes of it,
// and returns the session for writing, or nil. The client lived: an expiry that
// was proposed before must not apply, and no new leader may count from an older
// mark of suspicion.
func (m *Machine) touch(id session.ID) *session.Session {
	s := m.state.Sessions.Edit(id)
	if s != nil {
		s.Touched, s.Suspected = m.now.index, 0
	}
	return s
}

// onServerLine decides about a command that belongs to no session.
func (m *Machine) onServerLine(c *Command) *Result {
	l := m.state.Sessions.ServerLine(c.Line.Server)
	if l == nil || l.Boot != c.Line.Boot {
		return newResult(c, StatusOldBoot, ErrOutdated)
	}
	line := &m.state.Sessions.EditServerLine(c.Line.Server).Line
	line.Ack(c.Ack)
	verdict, v := line.Check(c.Seq)
	if verdict != session.Do {
		return past(c, verdict, v)
	}
	r := m.do(c)
	if l := m.state.Sessions.EditServerLine(c.Line.Server); l != nil { // not removed
		l.Line.Record(c.Seq, r, true)
	}
	return r
}

// past answers a number whose turn it is not.
func past(c *Command, verdict session.Verdict, v session.Value) *Result {
	switch verdict {
	case session.Repeat:
		return v.(*Result).again(c)
	case session.Gap:
		return newResult(c, StatusGap, ErrGap)
	case session.Acknowledged:
		return newResult(c, StatusAcknowledged, session.ErrAcknowledged)
	default: // Forgotten; Do is no past
		return newResult(c, StatusRepeat, session.ErrUnknownOutcome)
	}
}

// gone answers a command of a session that is not open. "Expired" reads as "not
// done", so it is said only of numbers that were never used.
func (m *Machine) gone(c *Command) *Result {
	e, ok := m.state.Sessions.EndedSession(c.Line.Session)
	if !ok {
		return newResult(c, StatusGone, fmt.Errorf("%s is not remembered: %w", c.Line.Session, session.ErrUnknownOutcome))
	}
	if e.Reason == session.Closed && c.Seq == e.Next-1 {
		// The last number a closed session used is its close.
		r := newResult(c, StatusRepeat, nil)
		r.Kind, r.Zxid = CmdClose, e.Zxid
		return r
	}
	return newResult(c, StatusGone, fmt.Errorf("session %s was %s: %w", e.ID, e.Reason, e.Outcome(c.Seq)))
}

// skip takes the number of a command that will not come.
func skip(c *Command) *Result {
	code := c.Code
	if code == CodeOK {
		code = CodeCancelled
	}
	return newResult(c, StatusDone, code.Err())
}
