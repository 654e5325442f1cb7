// Package settle makes writes whose outcome must not stay unknown, for recipes:
// an entry that was made while nobody waited for the answer any more would stand
// in everybody's way for as long as the session lives.
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
// write is withdrawn. If it turns out to be done all the same, undo is called
// with its results, maybe after Write has returned, and Write returns the
// context's error. undo must not wait for the cluster; nil does nothing.
func Write(ctx context.Context, c *client.Client, undo func([]client.OpResult), ops ...client.Op) ([]client.OpResult, error) {
	outcomes := make(chan outcome, 1)
	go func() {
		results, err := c.WriteSettled(ctx, ops...)
		outcomes <- outcome{results, err}
	}()
	grace := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(Grace, func() { close(grace) }) })
	defer stop()
	select {
	case o := <-outcomes:
		return o.results, o.after(ctx, undo)
	case <-grace:
		go func() {
			o := <-outcomes
			_ = o.after(ctx, undo)
		}()
		return nil, errors.Join(ctx.Err(), client.ErrUnknownOutcome)
	}
}

// after undoes what was done for a caller that has gone.
func (o outcome) after(ctx context.Context, undo func([]client.OpResult)) error {
	if o.err != nil || ctx.Err() == nil {
		return o.err
	}
	if undo != nil {
		undo(o.results)
	}
	return ctx.Err()
}

// Async does operations in any case, as soon as the session can, and waits for
// the outcome as long as ctx lasts, and for a grace of the length given when it
// is over. Without an outcome the error matches [client.ErrUnknownOutcome].
func Async(ctx context.Context, c *client.Client, grace time.Duration, ops ...client.Op) ([]client.OpResult, error) {
	outcomes := make(chan outcome, 1)
	err := c.WriteAsync(func(results []client.OpResult, err error) { outcomes <- outcome{results, err} }, ops...)
	if err != nil {
		return nil, err
	}
	select {
	case o := <-outcomes:
		return o.results, o.err
	case <-ctx.Done():
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case o := <-outcomes:
		return o.results, o.err
	case <-t.C:
		return nil, errors.Join(ctx.Err(), client.ErrUnknownOutcome)
	}
}
