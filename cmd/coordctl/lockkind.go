package main

import (
	"context"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// acquirer is one side of one kind of lock.
type acquirer struct {
	wait, try func(context.Context) (*lock.Handle, error)
}

// lock is what the flags ask for.
func (o *lockOptions) lock(c *client.Client, path string, opts []lock.Option) acquirer {
	switch {
	case o.shared:
		m := lock.NewRW(c, path, opts...)
		return acquirer{m.AcquireRead, m.TryAcquireRead}
	case o.exclusive:
		m := lock.NewRW(c, path, opts...)
		return acquirer{m.AcquireWrite, m.TryAcquireWrite}
	case o.slots > 0:
		s := lock.NewSemaphore(c, path, o.slots, opts...)
		return acquirer{s.Acquire, s.TryAcquire}
	default:
		m := lock.New(c, path, opts...)
		return acquirer{m.Acquire, m.TryAcquire}
	}
}

// recipe are the options that the flags ask for.
func (o *lockOptions) recipe(kill time.Duration) []lock.Option {
	opts := []lock.Option{lock.SafetyMargin(kill + lossMargin), lock.LockDelay(o.lockDelay)}
	if o.wait > 0 && !o.noWait {
		opts = append(opts, lock.WaitLimit(o.wait))
	}
	if o.owner != "" {
		opts = append(opts, lock.Owner(o.owner))
	}
	if len(o.labels) > 0 {
		opts = append(opts, lock.Labels(o.labels))
	}
	return opts
}

// acquire waits as long as --wait says. The recipe keeps that time by itself; the
// context covers what comes before its place in line.
func (o *lockOptions) acquire(ctx context.Context, l acquirer) (*lock.Handle, error) {
	if o.noWait {
		return l.try(ctx)
	}
	if o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.wait)
		defer cancel()
	}
	return l.wait(ctx)
}
