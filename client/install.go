package client

import (
	"slices"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/planted"
)

// install makes cn the connection of the session: everything unanswered is
// offered again on it, writes first and in order. sent is when the Hello was
// first sent that this is the answer to.
func (s *Session) install(cn *conn, w *coordpb.Welcome, sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return
	}
	if s.conn != nil {
		for watch := range s.all {
			watch.detach(s.conn)
		}
	}
	s.id, s.limits = SessionID(w.SessionId), w.Limits
	if len(w.Secret) > 0 {
		s.secret = w.Secret
	}
	s.conn, s.authLost = cn, false
	s.connection = max(s.connection, w.Connection)
	clear(s.tried)
	s.line.reoffer()
	if n := w.GetLimits().GetRequestsInFlight(); n > 0 {
		s.line.window = int(min(n, window))
	}
	s.held = nil
	s.requeueReads()
	skip := planted.On(planted.SkipWatch)
	for watch := range s.all {
		if skip {
			skip = false
			continue
		}
		watch.register()
	}
	if s.plain {
		s.established = true
	} else {
		s.grant(time.Duration(w.TimeoutMs)*time.Millisecond, sent)
	}
	s.accept()
	signal(cn.kick)
}

// requeueReads puts all reads without answer into the outbox, oldest first, and
// drops registrations: each watch makes a new one. mu is held.
func (s *Session) requeueReads() {
	s.outbox = s.outbox[:0:0]
	for id, c := range s.calls {
		if c.kind == callWatch {
			delete(s.calls, id)
		} else if !c.behind {
			s.outbox = append(s.outbox, c)
		}
	}
	slices.SortFunc(s.outbox, func(a, b *call) int {
		if a.req.Id < b.req.Id {
			return -1
		}
		return 1
	})
}

// grant takes in the timeout that a Welcome names. The answer to an Open or
// Attach is a sign that the cluster has heard of us, at the earliest when it was
// first sent. A shorter timeout than before is in force from the moment it was
// asked for. mu is held.
func (s *Session) grant(timeout time.Duration, sent time.Duration) {
	first := s.timeout == 0
	shorter := timeout < s.timeout
	s.timeout = timeout
	until := sent + trusted(timeout)
	if old := time.Duration(s.deadline.Load()); first || shorter || until > old {
		s.deadline.Store(int64(until))
		s.lastAck = time.Now()
	}
	// An Open may have taken so long that little of the session is left, or
	// nothing: then the first counted heartbeat tells that it lives.
	if !s.established && until-s.Now() >= timeout/3 {
		s.established = true
	}
}

// trusted is the part of a timeout that this client relies on: 1 % less, because
// its clock may run slower than the cluster's.
func trusted(timeout time.Duration) time.Duration { return timeout - timeout/100 }

// accept tells that the session is served, once it is known to live. mu is held.
func (s *Session) accept() {
	if !s.established || s.end != nil || s.conn == nil {
		return
	}
	s.setState(Connected)
	select {
	case <-s.ready:
	default:
		close(s.ready)
	}
}
