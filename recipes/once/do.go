package once

import (
	"context"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Do runs fn for a period, unless that is done already: then the Done of who did
// it is returned with Repeated set. It waits while another host is at any period
// of the job.
//
// period names the period, and becomes the name of a znode. Names must sort in the
// order of time (as 2026-01-31 does) if markers are removed by age; see [Keep].
//
// The context given to fn is a child of ctx and is also done when the lock is
// lost. If fn returns nil and the lock is still held, the period is done, also if
// ctx has ended by then. Else there is no marker and the error says why: that of
// fn, or one that matches lock.ErrLost when the lock was lost, or
// client.ErrUnknownOutcome when it is not known whether the marker was made. Then
// the next Do of the same period either finds the marker or runs fn again, with
// the same Turn.Key.
func (j *Job) Do(ctx context.Context, period string, fn func(ctx context.Context, t Turn) error) (Done, error) {
	a := attempt{j: j, period: period, fn: fn}
	return a.do(ctx, j.c, j.opts.lock)
}

// attempt is one Do.
type attempt struct {
	j        *Job
	period   string
	fn       func(ctx context.Context, t Turn) error
	handle   *lock.Handle
	finished bool // there is a marker: done says which
	done     Done
}

// do makes the attempt with a lock of these options.
func (a *attempt) do(ctx context.Context, c *client.Client, opts []lock.Option) (Done, error) {
	if err := a.j.check(a.period); err != nil {
		return Done{}, err
	}
	if finished, err := a.look(ctx, c); finished || err != nil {
		return a.done, err
	}
	err := lock.New(a.j.c, a.j.lockPath(), opts...).Do(ctx, func(ctx context.Context, h *lock.Handle) error {
		a.handle = h
		return a.run(ctx, h)
	})
	if a.finished {
		return a.done, nil // what happened to the lock after that does not matter
	}
	return Done{}, err
}

// run does the period under the lock.
func (a *attempt) run(ctx context.Context, h *lock.Handle) error {
	if finished, err := a.look(ctx, h.Session().Client()); finished || err != nil {
		return err
	}
	t := Turn{Period: a.period, Key: a.j.key(a.period), Token: h.FencingToken(), Handle: h}
	started := time.Now()
	if err := a.fn(ctx, t); err != nil {
		return err
	}
	d, err := a.j.complete(t, started)
	if err != nil {
		return err
	}
	a.finished, a.done = true, d
	a.j.prune(h)
	return nil
}

// look finds the marker of a period that is done, or refuses one that is too old.
// The check counts when it is made under the lock: then nobody else can make a
// marker or remove one.
func (a *attempt) look(ctx context.Context, c *client.Client) (finished bool, err error) {
	d, ok, err := a.j.read(ctx, c, a.period)
	if err != nil {
		return false, err
	}
	if ok {
		d.Repeated = true
		a.finished, a.done = true, d
		return true, nil
	}
	forgotten, _, err := a.j.forgotten(ctx, c)
	if err == nil && forgotten != "" && a.period <= forgotten {
		err = fmt.Errorf("period %s of %s: %w", a.period, a.j.path, ErrForgotten)
	}
	return false, err
}
