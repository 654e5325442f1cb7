package renewal

import (
	"context"
	"errors"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Locker gives out the options of a lock that is taken again and again, each time
// in a session that lives. One goroutine at a time.
type Locker struct {
	given    []lock.Option
	opts     []lock.Option
	sessions *Sessions
	expired  bool // the session that opts name is over
}

// NewLocker begins with these options and the session of c, or that of
// lock.WithSession among them.
func NewLocker(c *client.Client, opts []lock.Option) *Locker {
	return &Locker{given: opts, opts: opts, sessions: NewSessions(c)}
}

// Options are those for the next attempt, with a new session if the present one
// has expired. The client makes calls in a session that lives.
func (l *Locker) Options(ctx context.Context) ([]lock.Option, *client.Client, error) {
	if l.expired || l.sessions.Current().Context().Err() != nil {
		s, err := l.sessions.Next(ctx)
		if err != nil {
			return nil, nil, err
		}
		l.expired, l.opts = false, append(slices.Clone(l.given), lock.WithSession(s))
	}
	return l.opts, l.sessions.Current().Client(), nil
}

// Ended takes note of how an attempt has ended. h is nil if the lock was not got.
func (l *Locker) Ended(h *lock.Handle, err error) {
	if h != nil {
		l.sessions.adopt(h.Session())
	}
	l.expired = h == nil && errors.Is(err, client.ErrSessionExpired)
}

// Close ends the session that was opened here, if any.
func (l *Locker) Close(ctx context.Context) error { return l.sessions.Close(ctx) }
