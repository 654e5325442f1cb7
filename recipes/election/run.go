package election

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/renewal"
	"github.com/coordd/coord/recipes/lock"
)

// Run campaigns, calls fn as the leader, and campaigns again, until ctx ends or
// fn returns an error. The context given to fn is a child of ctx and is also done
// when the leadership is lost.
//
// fn never runs twice at a time: the next campaign begins only after fn has
// returned, also when the leadership is lost and fn ignores its context; so a fn
// that does not return keeps this process, and no other, from leading again. A
// second Run of the same Election is refused with ErrRunning meanwhile.
//
// If fn returns nil Run resigns and goes to the end of the queue. If fn returns an
// error Run resigns and returns it; but an error that only tells that the
// leadership has ended, lost or resigned, makes it campaign again: one that matches
// context.Canceled, lock.ErrLost, lock.ErrReleased, client.ErrSessionExpired or
// fence.ErrStale after that end.
//
// Run waits between failed attempts, longer each time and with jitter. When the
// session has expired it opens a new one for itself, with the same timeout and
// name, and closes it at the end. It gives up, with an error, what trying again
// does not heal: a bad path or argument, a missing permission, a closed client.
func (e *Election) Run(ctx context.Context, value []byte, fn func(ctx context.Context, l *Leadership) error) error {
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: %s", ErrRunning, e.path)
	}
	defer e.running.Store(false)
	r := &runner{e: e, value: slices.Clone(value), fn: fn, locker: renewal.NewLocker(e.c, e.opts)}
	defer func() { _ = r.locker.Close(context.WithoutCancel(ctx)) }()
	var pause renewal.Pause
	for ctx.Err() == nil {
		t := r.term(ctx)
		switch {
		case t.final:
			return t.err
		case t.err == nil:
			pause.Reset()
		default:
			if pause.Wait(ctx) != nil {
				return ctx.Err()
			}
		}
	}
	return ctx.Err()
}

// runner is one Run.
type runner struct {
	e      *Election
	value  []byte
	fn     func(ctx context.Context, l *Leadership) error
	locker *renewal.Locker
}

// term is one candidacy, and the leadership that came of it.
type term struct {
	err   error // why it ended, nil if the leader has resigned
	final bool  // there is no other after it
}

func (r *runner) term(ctx context.Context) term {
	opts, _, err := r.locker.Options(ctx)
	if err != nil {
		return term{err, renewal.Hopeless(err)}
	}
	var handle *lock.Handle
	var own error // what fn has returned
	var over bool // the leadership had ended by then
	err = lock.New(r.e.c, r.e.path, opts...).Do(ctx, func(ctx context.Context, h *lock.Handle) error {
		handle = h
		l, err := r.e.lead(ctx, h, r.value)
		if err != nil {
			return err
		}
		defer l.takeDown() // before Do releases
		own = r.fn(ctx, l)
		over = !l.Held()
		return own
	})
	r.locker.Ended(handle, err)
	if own != nil {
		over = over || errors.Is(err, lock.ErrLost) // only the release may have shown it
		return term{own, ctx.Err() != nil || !over || !ofEnd(own)}
	}
	return term{err, renewal.Hopeless(err) || errors.Is(err, lock.ErrDeadlock)}
}

// ofEnd says that an error of fn may only tell that the leadership has ended.
func ofEnd(err error) bool {
	for _, e := range []error{context.Canceled, lock.ErrLost, lock.ErrReleased, client.ErrSessionExpired, fence.ErrStale} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
