package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// Close ends the session: the cluster deletes its ephemeral znodes at once. The
// session's context is done before the request is sent, so that whoever relies
// on the session learns of its end before anybody else can. Close waits for the
// answer for as long as ctx lasts; if ctx is done already or ends, it goes on
// for a few seconds more. It is idempotent. It returns an error if the cluster
// could not be told; the session then expires by itself.
func (s *Session) Close(ctx context.Context) error {
	c := newWrite()
	c.req.Write, c.req.Close, c.done = nil, true, make(chan struct{})
	s.mu.Lock()
	first := !s.closing && s.end == nil
	send := first && s.established && !s.plain
	if first {
		s.closing = true
		s.cancel(s.endError(ByClient, ""))
	}
	if send {
		c.measure()
		s.line.waiting = append(s.line.waiting, &c.call)
		s.kickLocked()
	}
	s.mu.Unlock()
	if !first {
		select {
		case <-s.finished:
		case <-ctx.Done():
		}
		return nil
	}
	if send {
		s.awaitClose(ctx, c.done)
	}
	s.finish(ByClient, "")
	s.wg.Wait()
	if !send || c.reply != nil || s.told {
		return nil
	}
	return &Error{
		Op: "close session", Err: ErrUnavailable, Tried: s.attempts(), Index: -1,
		Detail: "it ends by itself after " + s.Timeout().String(),
	}
}

// awaitClose waits for the answer to the close: while ctx lasts, then for the
// grace, and not past the end of the session.
func (s *Session) awaitClose(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
		return
	case <-s.finished:
		return
	case <-ctx.Done():
	}
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-s.finished:
	case <-grace.C:
	}
}

// watchDeadline ends the session at its deadline, whether or not anything else
// happens, and notices when the process did not run.
func (s *Session) watchDeadline(ctx context.Context) {
	timer := time.NewTimer(deadlineLook)
	defer timer.Stop()
	planned := s.Now() + deadlineLook
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := s.Now()
		if late := now - planned; late > 0 {
			s.noteStall(late)
		}
		s.checkDeadline()
		wait := s.nextLook(now)
		planned = now + wait
		timer.Reset(wait)
	}
}

// deadlineLook is the first look at the deadline, and how often it is looked at
// before there is one.
const deadlineLook = 250 * time.Millisecond

// nextLook is the time until the deadline must be looked at again: timers stand
// still while the machine sleeps, so it is not simply the time that is left.
func (s *Session) nextLook(now time.Duration) time.Duration {
	deadline := s.DeadlineAt()
	if deadline == 0 {
		return deadlineLook
	}
	return max(time.Millisecond, min(deadline-now, s.Timeout()/6))
}

func (s *Session) noteStall(late time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = max(s.stalled, late)
}

// checkDeadline ends the session if its time is over. It may be called from
// anywhere except under mu.
func (s *Session) checkDeadline() {
	d := s.DeadlineAt()
	if d == 0 {
		return
	}
	now := s.Now()
	if now < d {
		return
	}
	s.mu.Lock()
	live := s.established && s.end == nil && time.Duration(s.deadline.Load()) <= now
	reason := Silent
	if s.authLost {
		reason = AuthLost
	}
	s.mu.Unlock()
	if live {
		s.finish(reason, "no heartbeat was answered in time")
	}
}

// endError describes the end of the session. mu is held.
func (s *Session) endError(r Reason, detail string) *SessionError {
	return &SessionError{ID: s.id, Reason: r, LastAck: s.lastAck, Timeout: s.timeout, Stalled: s.stalled, Detail: detail}
}

// finish makes the session be over: it ends its context and all calls. A session
// that is over already stays as it is.
func (s *Session) finish(r Reason, detail string) {
	s.mu.Lock()
	over, first := s.finishLocked(r, detail)
	s.mu.Unlock()
	if first {
		s.tellEnd(over)
	}
}

// finishLocked is the part of finish that mu is held for; tellEnd is the rest, for
// the first end.
func (s *Session) finishLocked(r Reason, detail string) (over ended, first bool) {
	if s.end != nil {
		return nil, false
	}
	s.end = s.endError(r, detail)
	if s.closing && r != ByClient {
		// The close was asked for; that it came by another way is no news.
		s.end.Reason = ByClient
	}
	state := Expired
	if s.end.Reason == ByClient {
		state = Closed
	}
	s.setState(state)
	s.cancel(s.end)
	over = s.endCalls()
	s.stop()
	close(s.finished)
	return over, true
}

func (s *Session) tellEnd(over ended) {
	s.states.close()
	s.core.remove(s)
	over.tell()
	if s.end.Reason != ByClient {
		s.core.opts.log.Warn("session ended", "session", s.end.ID.String(), "reason", string(s.end.Reason), "err", s.end)
	}
}

// endCalls ends every call and watch. mu is held.
func (s *Session) endCalls() (over ended) {
	err := s.callError()
	for _, c := range s.line.pending {
		over.add(c, nil, err, s.unapplied == 0 || c.req.Seq < s.unapplied)
	}
	for _, c := range slices.Concat(s.line.waiting, s.outbox, s.held) {
		over.add(c, nil, err, false)
	}
	for _, c := range s.calls {
		over.add(c, nil, err, false)
	}
	for w := range s.all {
		w.fail(err)
	}
	s.line, s.outbox, s.held = newLine(), nil, nil
	clear(s.calls)
	return over
}

// callError is what calls in a session that is over return. mu is held.
func (s *Session) callError() error {
	if s.end.Reason == ByClient {
		return ErrClosed
	}
	return s.end
}

// refused ends the session because a server said that it is over.
func (s *Session) refused(e *coordpb.Error) {
	s.mu.Lock()
	over, first := s.refusedLocked(e)
	s.mu.Unlock()
	if first {
		s.tellEnd(over)
	}
}

// refusedLocked is the part of refused that mu is held for.
func (s *Session) refusedLocked(e *coordpb.Error) (over ended, first bool) {
	reason, detail := endReason(e)
	s.told = true
	return s.finishLocked(reason, detail)
}

// noteUnapplied takes note of the first write number that the cluster has not
// applied, as a server has said of a session that is over; 0 is not known.
func (s *Session) noteUnapplied(next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unapplied = max(s.unapplied, next)
}

// endReason is what a server says about the end of the session, and what that
// leaves to add. A server that is older than the field for it, or does not
// remember, gives only a code.
func endReason(e *coordpb.Error) (r Reason, detail string) {
	switch e.GetSessionEnd() {
	case coordpb.SessionEnd_SESSION_END_EXPIRED:
		return Silent, "the cluster heard nothing from it"
	case coordpb.SessionEnd_SESSION_END_KILLED:
		return Killed, "killed by an administrator"
	case coordpb.SessionEnd_SESSION_END_TAKEN_OVER:
		return Killed, "taken over by a newer session of the same identity"
	case coordpb.SessionEnd_SESSION_END_CLOSED:
		return Killed, "closed over another connection"
	case coordpb.SessionEnd_SESSION_END_RESTORED:
		return Restore, "the cluster's state was replaced by a backup"
	default:
	}
	switch e.GetCode() {
	case coordpb.Code_CODE_SESSION_EXPIRED:
		return Silent, e.GetMessage()
	case coordpb.Code_CODE_UNKNOWN_SESSION:
		return Restore, e.GetMessage()
	default:
		return Killed, e.GetMessage()
	}
}

// fail gives up a session that the cluster has not accepted.
func (s *Session) fail(err error) {
	s.mu.Lock()
	if s.failure == nil {
		s.failure = err
	}
	s.mu.Unlock()
	s.finish(ByClient, "")
}

// attempts lists the newest try at each endpoint since the session was last
// served.
func (s *Session) attempts() []Attempt {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Attempt
	for _, e := range s.core.endpoints {
		if a, ok := s.tried[e]; ok {
			out = append(out, a)
		}
	}
	return out
}

// errNoAnswer says that a request is out and nothing came back.
var errNoAnswer = errors.New("no answer")
