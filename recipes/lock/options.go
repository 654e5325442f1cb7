package lock

import (
	"fmt"
	"maps"
	"time"

	"github.com/coordd/coord/client"
)

// Option changes a lock. Options are the contender's own: two contenders for
// one lock may have different ones.
type Option func(*options)

type options struct {
	owner        string
	labels       map[string]string
	margin       time.Duration // negative: the default
	minRemaining time.Duration
	session      *client.Session
}

// Owner is what operators see; the default is the session's name.
func Owner(name string) Option { return func(o *options) { o.owner = name } }

// Labels are shown by coordctl and the console.
func Labels(kv map[string]string) Option {
	return func(o *options) { o.labels = maps.Clone(kv) }
}

// SafetyMargin makes the loss of the lock be reported this much before the
// session's deadline, so that the work can stop before the next holder starts.
// The default is a tenth of the session's timeout, which also covers a clock
// that runs a tenth too slow. More than half of the timeout is refused.
func SafetyMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// MinRemaining makes Acquire return only when the lock cannot be lost to silence
// for at least d: it waits for the next answered heartbeat if need be. More than
// half of the session's timeout is refused.
func MinRemaining(d time.Duration) Option { return func(o *options) { o.minRemaining = d } }

// WithSession makes the lock depend on another session than the client's own.
func WithSession(s *client.Session) Option { return func(o *options) { o.session = s } }

// settle fills in what depends on the session and checks it.
func (o options) settle(s *client.Session) (options, error) {
	timeout := s.Timeout()
	if timeout <= 0 {
		return o, fmt.Errorf("lock: %w: the client has no session", client.ErrBadArguments)
	}
	if o.margin < 0 {
		o.margin = timeout / 10
	}
	if o.owner == "" {
		o.owner = s.Name()
	}
	switch {
	case o.margin > timeout/2:
		return o, fmt.Errorf("lock: %w: safety margin %s is more than half of the session timeout %s", client.ErrBadArguments, o.margin, timeout)
	case o.minRemaining > timeout/2:
		return o, fmt.Errorf("lock: %w: MinRemaining %s is more than half of the session timeout %s", client.ErrBadArguments, o.minRemaining, timeout)
	}
	return o, nil
}
