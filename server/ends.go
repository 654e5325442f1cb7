package server

import (
	"errors"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// maxRecentEnds bounds the ended sessions whose reason the hub knows by itself.
// Who asks for one is told at once or does not come again.
const maxRecentEnds = 4096

// recentEnds remembers how the sessions that ended last did. The session table
// knows it of many more, but only under the machine's lock, which heartbeats
// must not take. It is not safe for concurrent use.
type recentEnds struct {
	reasons map[session.ID]session.EndReason
	ring    []session.ID // in the order of their ends; next is the oldest once it is full
	next    int
}

func (r *recentEnds) add(id session.ID, reason session.EndReason) {
	if r.reasons == nil {
		r.reasons = make(map[session.ID]session.EndReason)
	}
	if len(r.ring) < maxRecentEnds {
		r.ring = append(r.ring, id)
	} else {
		delete(r.reasons, r.ring[r.next])
		r.ring[r.next] = id
		r.next = (r.next + 1) % maxRecentEnds
	}
	r.reasons[id] = reason
}

// howEnded is how a session ended, if that was a short time ago; else 0.
func (h *hub) howEnded(id session.ID) session.EndReason {
	h.ownMu.RLock()
	defer h.ownMu.RUnlock()
	return h.ends.reasons[id]
}

// withReason adds to an error that says that a session has ended how it did.
func (h *hub) withReason(id session.ID, err error) error {
	if !errors.Is(err, session.ErrExpired) && !errors.Is(err, session.ErrClosed) {
		return err
	}
	reason := h.howEnded(id)
	if reason == 0 {
		return err
	}
	return &endedError{err: err, id: id, reason: reason}
}

// sessionEndOut is the reason as it is sent. One without a number of its own is
// not sent: the code says enough.
func sessionEndOut(r session.EndReason) coordpb.SessionEnd {
	switch r {
	case session.Closed:
		return coordpb.SessionEnd_SESSION_END_CLOSED
	case session.Expired:
		return coordpb.SessionEnd_SESSION_END_EXPIRED
	case session.Killed:
		return coordpb.SessionEnd_SESSION_END_KILLED
	case session.TakenOver:
		return coordpb.SessionEnd_SESSION_END_TAKEN_OVER
	case session.Restored:
		return coordpb.SessionEnd_SESSION_END_RESTORED
	}
	return coordpb.SessionEnd_SESSION_END_UNSPECIFIED
}

// endError is what a stream is told when its session has ended.
func endError(r session.EndReason) error {
	return &sessionEnd{reason: r}
}

// sessionEnd says how a session ended. It matches session.ErrClosed or
// session.ErrExpired.
type sessionEnd struct{ reason session.EndReason }

func (e *sessionEnd) Error() string { return "session " + e.reason.String() }

func (e *sessionEnd) Unwrap() error { return e.reason.Err() }
