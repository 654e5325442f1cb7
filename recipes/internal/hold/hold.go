// Package hold watches over what a process holds by a znode of its session, such as
// a lock or a claimed item. That ends when it is given up, when the session is over,
// and, on this client's own clock, a safety margin before the earliest moment at
// which silence can end the session.
//
// It starts no goroutine; its timer is stopped when the end comes.
package hold

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
)

// ErrMargin is the reason of a loss when the cluster did not answer until the
// safety margin before the session's deadline.
var ErrMargin = errors.New("the cluster has not answered in time")

// Hold is one thing that is held. It is safe for concurrent use.
type Hold struct {
	*End
	session *client.Session
	margin  time.Duration
	lostBy  func(reason error) error
	late    func()
	timer   *time.Timer // guarded by the End's mu
}

// New begins to watch over something that session s holds. Its context has the
// values of base. lostBy makes the cause of a loss out of its reason. late is called
// when it is lost by the margin, once: the session may live on, and so may what is
// held in it. Both may run before New has returned.
func New(base context.Context, s *client.Session, margin time.Duration, lostBy func(reason error) error, late func()) *Hold {
	h := &Hold{End: NewEnd(base), session: s, margin: margin, lostBy: lostBy, late: late}
	h.mu.Lock() // the session may be over already
	defer h.mu.Unlock()
	stop := context.AfterFunc(s.Context(), func() { h.Lose(context.Cause(s.Context())) })
	h.timer = time.AfterFunc(h.nextLook(), h.look)
	h.still = func() {
		stop()
		h.timer.Stop()
	}
	return h
}

// Session is the session that holds it.
func (h *Hold) Session() *client.Session { return h.session }

// SessionOver says that the session has ended.
func (h *Hold) SessionOver() bool { return h.session.Context().Err() != nil }

// Remaining is the time until it counts as lost if nothing is heard from the
// cluster any more, 0 when that is over.
func (h *Hold) Remaining() time.Duration {
	return max(0, h.session.DeadlineAt()-h.margin-h.session.Now())
}

// Lose makes it lost, for a reason. It returns false if it was over.
func (h *Hold) Lose(reason error) bool { return h.Come(h.lostBy(reason), true) }

// Check makes it lost if its time is over. After a pause of the process it may be
// the first to know.
func (h *Hold) Check() {
	ended := h.SessionOver()
	switch {
	case !ended && h.Remaining() > 0, h.Cause() != nil:
	case ended:
		h.Lose(context.Cause(h.session.Context()))
	case h.Lose(ErrMargin):
		h.late()
	}
}

// Over is why it is over, by now; nil if it is held.
func (h *Hold) Over() error {
	h.Check()
	return h.Cause()
}

// look is run by the timer.
func (h *Hold) look() {
	h.Check()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cause == nil {
		h.timer.Reset(h.nextLook())
	}
}

// nextLook is the time to the next look at the clock. Timers stand still while the
// machine sleeps, so it is not simply what remains.
func (h *Hold) nextLook() time.Duration {
	return max(time.Millisecond, min(h.Remaining(), h.session.Timeout()/4))
}
