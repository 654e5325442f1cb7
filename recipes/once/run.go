package once

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/recipes/internal/renewal"
	"github.com/coordd/coord/recipes/lock"
)

// longestLook is how long Run sleeps at most before it looks at the clock again,
// which may have been set meanwhile.
const longestLook = time.Minute

// Run does each period of the schedule, together with the Runs of other hosts,
// until ctx ends, whose error it returns then. It begins with the period that is
// due, if that is not done: see [CatchUp] for that and for periods that begin
// while fn is still at an earlier one.
//
// A period that fails is tried again, by this host or another one, after a pause
// that is longer each time, until it is done or not among the newest [CatchUp]
// periods any more (for 0 or 1: until the next one begins). [OnResult] hears of
// each try. When the session has expired Run opens a new one for itself, with the
// same timeout and name, and closes it at the end. It gives up, with an error,
// what trying again does not heal: a bad schedule, path or argument, a missing
// permission, a closed client.
func (j *Job) Run(ctx context.Context, schedule func(now time.Time) (period string, next time.Time), fn func(ctx context.Context, t Turn) error) error {
	r := &runner{j: j, schedule: schedule, fn: fn, locker: renewal.NewLocker(j.c, j.opts.lock), settled: map[string]bool{}}
	defer func() { _ = r.locker.Close(context.WithoutCancel(ctx)) }()
	var pause renewal.Pause
	for ctx.Err() == nil {
		next, failed, err := r.round(ctx)
		switch {
		case err != nil:
			return err
		case failed:
			_ = pause.Wait(ctx)
		default:
			pause.Reset()
			sleep(ctx, min(longestLook, time.Until(next)))
		}
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// runner is one Run.
type runner struct {
	j        *Job
	schedule Schedule
	fn       func(ctx context.Context, t Turn) error
	locker   *renewal.Locker
	begun    bool
	before   string          // periods up to this one are left out, "" for none
	catchUp  int             // how many periods are looked at
	settled  map[string]bool // of these: known to be done, or too old
}

// round tries each period that is due and not known to be done. An error is the
// end of Run; failed says that some period must be tried again.
func (r *runner) round(ctx context.Context) (next time.Time, failed bool, err error) {
	if !r.begun {
		failed, err := r.begin(ctx)
		if failed || err != nil {
			return time.Time{}, failed, err
		}
	}
	periods, next, err := newest(r.schedule, time.Now(), r.catchUp)
	if err != nil {
		return next, false, err
	}
	for p := range r.settled {
		if !slices.Contains(periods, p) {
			delete(r.settled, p)
		}
	}
	for _, p := range periods {
		if r.settled[p] || p <= r.before {
			continue
		}
		switch own, err := r.try(ctx, p); {
		case err == nil, errors.Is(err, ErrForgotten):
			r.settled[p] = true
		case ctx.Err() != nil:
			return next, false, ctx.Err()
		case !own && (renewal.Hopeless(err) || errors.Is(err, lock.ErrDeadlock)):
			return next, false, err
		default:
			failed = true
		}
	}
	return next, failed, nil
}

// begin finds out which periods this Run is about.
func (r *runner) begin(ctx context.Context) (failed bool, err error) {
	r.catchUp = min(max(1, r.j.opts.catchUp), maxCatchUp)
	due, _, err := newest(r.schedule, time.Now(), 1)
	if err != nil {
		return false, err
	}
	switch {
	case r.j.opts.catchUp <= 0:
		r.before = due[0]
	case r.catchUp > 1:
		ran, err := r.everRan(ctx)
		if err != nil {
			return true, hopeless(err)
		}
		if !ran {
			if periods, _, _ := newest(r.schedule, time.Now(), 2); len(periods) == 2 {
				r.before = periods[0]
			}
		}
	}
	r.begun = true
	return false, nil
}

func (r *runner) everRan(ctx context.Context) (bool, error) {
	_, c, err := r.locker.Options(ctx)
	if err != nil {
		return false, err
	}
	return r.j.everRan(ctx, c)
}

// hopeless is err if trying again does not heal it.
func hopeless(err error) error {
	if renewal.Hopeless(err) {
		return err
	}
	return nil
}

// try makes one attempt at a period. own says that the error is that of fn.
func (r *runner) try(ctx context.Context, period string) (own bool, err error) {
	opts, c, err := r.locker.Options(ctx)
	if err != nil {
		return false, err
	}
	a := attempt{j: r.j, period: period, fn: func(ctx context.Context, t Turn) error {
		err := r.fn(ctx, t)
		own = err != nil
		return err
	}}
	d, err := a.do(ctx, c, opts)
	r.locker.Ended(a.handle, err)
	d.Period = period
	r.j.opts.result(d, err)
	return own, err
}

// newest lists the newest n periods up to now, oldest first, and says when the
// next one begins. There may be fewer: it looks back two centuries at most.
func newest(schedule Schedule, now time.Time, n int) (periods []string, next time.Time, err error) {
	p, next := schedule(now)
	if p == "" || !next.After(now) {
		return nil, next, fmt.Errorf("%w: period %q at %s, next at %s", ErrBadSchedule, p, now, next)
	}
	periods = []string{p}
	for back := next.Sub(now); len(periods) < n && back < longestBack; back *= 2 {
		if periods, err = between(schedule, now.Add(-back), now, n); err != nil {
			return nil, next, err
		}
	}
	return periods, next, nil
}

const longestBack = 200 * 365 * 24 * time.Hour / 2 // doubled once more it still fits a Duration

// between lists the newest n periods that were due from then to now.
func between(schedule Schedule, then, now time.Time, n int) (periods []string, err error) {
	for at := then; !at.After(now); {
		p, next := schedule(at)
		if p == "" || !next.After(at) {
			return nil, fmt.Errorf("%w: period %q at %s, next at %s", ErrBadSchedule, p, at, next)
		}
		if len(periods) == 0 || periods[len(periods)-1] != p {
			periods = append(periods, p)
			periods = periods[max(0, len(periods)-n):]
		}
		at = next
	}
	return periods, nil
}
