package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
)

// deadlockEvery is how often a waiter looks whether it is part of a deadlock.
// One comes about when somebody begins to wait, who looks at once, or when the
// lock goes on to the next in line.
const deadlockEvery = 500 * time.Millisecond

// RefuseDeadlock makes an Acquire that is part of a deadlock leave the queue and
// return a *DeadlockError, which matches ErrDeadlock. It looks when it joins and
// every half second while it waits, with two small reads if its session has
// nothing else than its place. Of the waits of a cycle the youngest gives way,
// among those that were made with this option: so one goes and the others get
// their locks. If none has it nobody gives way; [Deadlocks] shows it.
//
// What it looks at are sessions, see [Deadlocks]: give independent tasks of one
// process sessions of their own ([client.Client.NewSession]), or a task may be
// refused because of what others hold, who would have given it back.
func RefuseDeadlock() Option { return func(o *options) { o.refuse = true } }

// DeadlockError says which cycle an Acquire would have been part of. It matches
// ErrDeadlock.
type DeadlockError struct {
	Path  string // the lock that was asked for
	Cycle Cycle
}

// Error names locks and owners.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf("lock %s: waiting would never end: %s", e.Path, e.Cycle)
}

// Is makes the error match ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// refusing is ctx until look returns an error, which is its cause then. The looks
// end with stop. Without a look it is ctx.
func refusing(ctx context.Context, look func(context.Context) error) (waiting context.Context, stop func()) {
	if look == nil {
		return ctx, func() {}
	}
	waiting, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(deadlockEvery)
		defer t.Stop()
		for {
			if err := look(waiting); err != nil {
				cancel(err)
				return
			}
			select {
			case <-t.C:
			case <-waiting.Done():
				return
			}
		}
	}()
	return waiting, func() {
		cancel(context.Canceled)
		<-done
	}
}

// refusing is the function for a place in one queue.
func (p *spot) refusing(ctx context.Context) (waiting context.Context, stop func()) {
	if !p.opts.refuse {
		return ctx, func() {}
	}
	return refusing(ctx, func(ctx context.Context) error {
		return refusal(ctx, p.f.c, []string{p.entry.Path})
	})
}

// refuseDeadlock is the look for places in several queues, nil if it was not
// asked for.
func (h *MultiHandle) refuseDeadlock() func(context.Context) error {
	if !h.handles[0].place.opts.refuse {
		return nil
	}
	var own []string
	for _, l := range h.handles {
		own = append(own, l.place.entry.Path)
	}
	return func(ctx context.Context) error { return refusal(ctx, h.c, own) }
}

// refusal returns a *DeadlockError if the wait of one of the session's own nodes
// is the one of a cycle that has to give way. A look that fails says nothing.
func refusal(ctx context.Context, c *client.Client, own []string) error {
	s := c.Session().ID()
	mine, err := c.EphemeralsOf(ctx, s, "/", client.Mode(client.ReadSession))
	if err != nil || !slices.ContainsFunc(mine, func(p string) bool { return !slices.Contains(own, p) }) && len(own) == 1 {
		return nil // who holds nothing keeps nobody waiting
	}
	look := search{c: c, limit: maxRefusalSessions}
	look.in = func(w *want) bool { return slices.Contains(own, w.waiter.Node) }
	look.from = func(context.Context, *explorer) ([]client.SessionID, error) { return []client.SessionID{s}, nil }
	cycles, err := look.run(ctx)
	if err != nil {
		return nil
	}
	for _, cycle := range cycles {
		if w := cycle.givesWay(); w != nil && slices.Contains(own, w.Waiter.Node) {
			return &DeadlockError{Path: w.Lock, Cycle: cycle}
		}
	}
	return nil
}

// maxRefusalSessions bounds how many sessions a waiter follows from one to the
// next in a look.
const maxRefusalSessions = 1000

// givesWay is the youngest wait that was made with RefuseDeadlock, nil if none
// was. All that look at the cycle agree on it.
func (c Cycle) givesWay() *Wait {
	var youngest *Wait
	for i := range c {
		w := &c[i]
		later := youngest == nil || w.began > youngest.began ||
			w.began == youngest.began && w.Waiter.Node > youngest.Waiter.Node
		if w.refuses && later {
			youngest = w
		}
	}
	return youngest
}
