// Package settle has what recipes need that leave nothing behind: writes whose
// outcome must not stay unknown, since an entry that was made while nobody waited
// for the answer any more would stand in everybody's way for as long as the session
// lives; and the znodes and folders that they make.
//
// Its functions may be called from any goroutine. A goroutine that one of them
// leaves behind ends when the outcome is certain, at the latest with the session.
package settle

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
)

// Grace is how long a caller whose context has ended is still kept for the
// outcome of its write. What comes later is dealt with in the background.
const Grace = time.Second

type outcome struct {
	results []client.OpResult
	err     error
}

// Write does one operation, or several in one transaction. If ctx ends first the
// write is withdrawn, and the caller kept for Grace at most to know what became
// of it.
//
// undo is for a write that turns out to be done all the same: it is given the
// results and starts what makes up for them, as [Node.Remove] does, maybe after
// Write has returned. The caller is told that it was not done, by the error of
// ctx. Without undo it is told the truth: that it was done, or an error that also
// matches client.ErrUnknownOutcome.
func Write(ctx context.Context, c *client.Client, undo func([]client.OpResult) <-chan error, ops ...client.Op) ([]client.OpResult, error) {
	outcomes := make(chan outcome, 1)
	go func() {
		results, err := c.WriteSettled(ctx, ops...)
		outcomes <- outcome{results, err}
	}()
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(Grace, func() { close(late) }) })
	defer stop()
	select {
	case o := <-outcomes:
		if o.err != nil || ctx.Err() == nil || undo == nil {
			return o.results, o.err
		}
		undone := undo(o.results)
		select {
		case <-undone: //nolint:errcheck // more cannot be done
		case <-late:
		}
		return nil, ctx.Err()
	case <-late:
	}
	if undo == nil {
		return nil, errors.Join(ctx.Err(), client.ErrUnknownOutcome)
	}
	go func() {
		if o := <-outcomes; o.err == nil {
			undo(o.results)
		}
	}()
	return nil, ctx.Err()
}

// Send does operations in any case, as soon as the session can: no context ends
// that. The outcome comes over the channel, which nobody has to read.
func Send(c *client.Client, ops ...client.Op) <-chan error {
	done := make(chan error, 1)
	if err := c.WriteAsync(func(_ []client.OpResult, err error) { done <- err }, ops...); err != nil {
		done <- err
	}
	return done
}

// Await waits for an outcome as long as ctx lasts, and for grace more when it is
// over. Without one the error matches client.ErrUnknownOutcome and that of ctx.
func Await(ctx context.Context, done <-chan error, grace time.Duration) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return errors.Join(client.ErrUnknownOutcome, ctx.Err())
	}
}
