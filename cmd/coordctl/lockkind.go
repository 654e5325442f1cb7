package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

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

// checkKind refuses flags that ask for several kinds of lock, or for none.
func (o *lockOptions) checkKind(f *pflag.FlagSet) error {
	kinds := 0
	for _, set := range []bool{o.shared, o.exclusive, f.Changed("slots")} {
		if set {
			kinds++
		}
	}
	if kinds > 1 {
		return usagef("--shared, --exclusive and --slots exclude each other")
	}
	if f.Changed("slots") && (o.slots < 1 || o.slots > lock.MaxLimit) {
		return usagef("--slots: %d is not from 1 to %d", o.slots, lock.MaxLimit)
	}
	if o.noWait && o.wait != 0 {
		return usagef("--no-wait and --wait exclude each other")
	}
	return nil
}

// kind is what the flags ask for.
func (o *lockOptions) kind() lock.Kind {
	switch {
	case o.shared, o.exclusive:
		return lock.KindRW
	case o.slots > 0:
		return lock.KindSemaphore
	default:
		return lock.KindMutex
	}
}

// besideSlots refuses a lock at a path where a semaphore has slots taken. Who has
// a slot stands in no line, so the recipes of other kinds do not see it. It reads
// what is not older than the lock's own entry: a semaphore that comes later sees
// that entry.
func besideSlots(ctx context.Context, c *client.Client, path string, h *lock.Handle) error {
	if h.Slot() >= 0 {
		return nil
	}
	taken, err := c.Children(ctx, path+"/slots", client.Mode(client.ReadSession))
	switch {
	case errors.Is(err, client.ErrNoNode):
		return nil
	case err != nil:
		return err
	case len(taken) > 0:
		return fmt.Errorf("%w: %s/slots/%s belongs to a semaphore%s", lock.ErrOtherKind, path, taken[0], kindHint(path))
	default:
		return nil
	}
}

// contenderKind is the kind of lock that a contender's znode speaks of, "" if of none.
func contenderKind(node string) lock.Kind {
	name := strings.TrimRight(node, "0123456789")
	for end, k := range map[string]lock.Kind{
		"-__READ__": lock.KindRW, "-__WRIT__": lock.KindRW, "-lock-": lock.KindMutex, "-slot-": lock.KindSemaphore, "/slots/": lock.KindSemaphore,
	} {
		if strings.HasSuffix(name, end) {
			return k
		}
	}
	return ""
}

// kindHint is the last line of an error about the kind of a lock.
func kindHint(path string) string {
	return fmt.Sprintf("\nhint: `coordctl locks show %s` says which: --shared and --exclusive are for a read-write lock, "+
		"--slots is for a semaphore, neither for a mutex", path)
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
