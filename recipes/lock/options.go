package lock

import (
	"bytes"
	"context"
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
	lockDelay    time.Duration
	waitLimit    time.Duration
	value        []byte
	refuse       bool // what would close a cycle of waiting
	session      *client.Session
}

// MaxValueBytes bounds what Value and Handle.SetValue take.
const MaxValueBytes = 64 << 10

// Longest times that LockDelay and WaitLimit take.
const (
	MaxLockDelay = time.Hour
	MaxWaitLimit = 30 * 24 * time.Hour
)

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

// LockDelay keeps the lock from everybody for d after its holder was lost: when
// the session of the holder ends in any way but by its own Close, the cluster
// leaves the holder's znode where it is for d more, of nobody. It covers requests
// of the lost holder that are still under way to a resource that cannot check
// fencing tokens; where tokens are checked it is not needed. After a Release
// there is no delay. Waiters see it: BusyError and Inspect say until when, and an
// operator may delete the znode to end it at once. The default is 0: none. More
// than MaxLockDelay is refused; the cluster counts whole milliseconds.
func LockDelay(d time.Duration) Option { //nolint:revive // the lock-delay is a term, also of others
	return func(o *options) { o.lockDelay = d }
}

// WaitLimit bounds the wait for the lock: after d Acquire leaves the queue and
// returns ErrWaitLimit. Other than with a ctx the cluster keeps that time too: the
// queue entry of a contender goes away then, even if its process hangs while its
// session is kept alive by others. The time counts from when the entry was made;
// one who is granted the lock in time keeps it. The default is 0: no limit. More
// than MaxWaitLimit is refused; the cluster counts whole milliseconds.
func WaitLimit(d time.Duration) Option { return func(o *options) { o.waitLimit = d } }

// Value is kept in the holder's and waiter's znode for others to read
// (Party.Value); Handle.SetValue changes it. More than MaxValueBytes is refused.
func Value(b []byte) Option { return func(o *options) { o.value = bytes.Clone(b) } }

// settle fills in what depends on the session and checks it.
func (o options) settle(s *client.Session) (options, error) {
	timeout := s.Timeout()
	if timeout <= 0 {
		return o, fmt.Errorf("lock: %w: the client has no session", client.ErrBadArguments)
	}
	o.lockDelay, o.waitLimit = wholeMS(o.lockDelay), wholeMS(o.waitLimit)
	if o.margin < 0 {
		o.margin = timeout / 10
	}
	if o.owner == "" {
		o.owner = s.Name()
	}
	return o, o.check(timeout)
}

func (o *options) check(timeout time.Duration) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("lock: %w: "+format, append([]any{client.ErrBadArguments}, args...)...)
	}
	switch {
	case o.margin > timeout/2:
		return bad("safety margin %s is more than half of the session timeout %s", o.margin, timeout)
	case o.minRemaining > timeout/2:
		return bad("MinRemaining %s is more than half of the session timeout %s", o.minRemaining, timeout)
	case !inBounds(o.lockDelay, MaxLockDelay):
		return bad("lock-delay %s is not between 0 and %s", o.lockDelay, MaxLockDelay)
	case !inBounds(o.waitLimit, MaxWaitLimit):
		return bad("wait limit %s is not between 0 and %s", o.waitLimit, MaxWaitLimit)
	case len(o.value) > MaxValueBytes:
		return tooLong(o.value)
	}
	return nil
}

func tooLong(value []byte) error {
	return fmt.Errorf("lock: %w: the value has %d bytes, more than %d", client.ErrBadArguments, len(value), MaxValueBytes)
}

// wholeMS rounds up to what the cluster counts in.
func wholeMS(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

func inBounds(d, limit time.Duration) bool { return d >= 0 && d <= limit }

// limited is ctx until the wait limit.
func (o *options) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.waitLimit <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, o.waitLimit, ErrWaitLimit)
}

// entry says what sort of znode a queue entry is.
func (o *options) entry() []client.CreateOption {
	out := []client.CreateOption{client.WithEphemeral(), client.WithSequential()}
	if o.waitLimit > 0 {
		out = append(out, client.WithTTL(o.waitLimit))
	}
	return out
}

// slot says what sort of znode a taken slot is.
func (o *options) slot() []client.CreateOption {
	return []client.CreateOption{client.WithEphemeral(), client.WithLinger(o.lockDelay)}
}

// acquired turns the entry at a path from that of a waiter into that of a holder.
func (o *options) acquired(path string, data []byte) client.Op {
	return client.OpSet(path, data, client.AnyVersion, client.ClearTTL(), client.SetLinger(o.lockDelay))
}
