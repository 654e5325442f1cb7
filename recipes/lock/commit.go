package lock

import (
	"context"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// releaseGrace is how long the removal of a queue entry is waited for
	// although the caller's context is done. It goes on after that.
	releaseGrace = 5 * time.Second
	// leaveGrace is the same for a contender whose context has ended: it wants
	// to get away.
	leaveGrace = time.Second
)

// commit does a transaction and knows whether it was done. If ctx ends first it
// is withdrawn or, if it was done already, undone: undo starts that, given the
// results, and is waited for a moment. What takes longer than the grace goes on
// in the background, at the latest until the session ends. A nil undo leaves
// what was done.
func commit(ctx context.Context, c *client.Client, undo func([]client.OpResult) <-chan error, ops ...client.Op) ([]client.OpResult, error) {
	type outcome struct {
		res []client.OpResult
		err error
	}
	outcomes := make(chan outcome, 1)
	go func() { // ends when the outcome is certain, at the latest with the session
		res, err := c.WriteSettled(ctx, ops...)
		outcomes <- outcome{res, err}
	}()
	grace := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leaveGrace, func() { close(grace) }) })
	defer stop()
	select {
	case o := <-outcomes:
		if o.err == nil && ctx.Err() != nil {
			if undo != nil {
				_, _ = settled(undo(o.res), leaveGrace)
			}
			return nil, ctx.Err()
		}
		return o.res, o.err
	case <-grace:
		go func() {
			if o := <-outcomes; o.err == nil && undo != nil {
				undo(o.res)
			}
		}()
		return nil, ctx.Err()
	}
}

// remove deletes a node of ours, that very one. The request is made in any case,
// as soon as the session can. Its outcome comes over the channel.
func remove(c *client.Client, n mark) <-chan error {
	done := make(chan error, 1)
	if err := c.WriteAsync(func(_ []client.OpResult, err error) { done <- err }, n.delete()); err != nil {
		done <- err
	}
	return done
}

// settled waits for an outcome, up to the grace. It reports whether there is one.
func settled(done <-chan error, grace time.Duration) (err error, ok bool) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-done:
		return err, true
	case <-t.C:
		return nil, false
	}
}
