package lock

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/coordd/coord/client"
)

// Multi is several locks that are taken together: all or none. It has no state:
// share it freely between goroutines.
//
// Its queue entries are made in one transaction. So two Multis stand in the same
// order in every queue that both want, whatever order their paths were given in,
// and neither can hold what the other waits for while it waits for what the
// other holds. That is true of Multis among themselves. A session that holds one
// lock already and then takes a Multi, or another lock, can be part of a
// deadlock like any other: see [Deadlocks] and [RefuseDeadlock].
//
// While it waits, a Multi stands in all queues at once: whoever comes after it
// waits for it, also in those queues where it is the first already.
type Multi struct {
	c     *client.Client
	locks []*Mutex // ascending by path
	err   error    // what is wrong with the paths
}

// NewMulti names several locks; nothing is sent. The locks are the same as those
// of [New] with the same path, so it shares them with contenders for a single
// one. Paths that are the same or one below the other are refused by Acquire,
// with an error that matches client.ErrBadArguments, as is having none.
func NewMulti(c *client.Client, paths []string, opts ...Option) *Multi {
	m := &Multi{c: c, err: checkPaths(paths)}
	for _, p := range slices.Sorted(slices.Values(paths)) {
		l := New(c, p, opts...)
		m.c, m.locks = l.c, append(m.locks, l)
	}
	return m
}

// checkPaths refuses what cannot be several locks.
func checkPaths(paths []string) error {
	if len(paths) == 0 {
		return fmt.Errorf("lock: %w: no path is given", client.ErrBadArguments)
	}
	seen := map[string]bool{}
	for _, p := range paths {
		if seen[p] {
			return fmt.Errorf("lock: %w: %s is given twice", client.ErrBadArguments, p)
		}
		seen[p] = true
	}
	for _, p := range paths {
		for up := path.Dir(p); up != p && up != "."; p, up = up, path.Dir(up) {
			if seen[up] {
				return fmt.Errorf("lock: %w: of the paths, one below %s is another", client.ErrBadArguments, up)
			}
		}
	}
	return nil
}

// Paths are those of the locks, in ascending order.
func (m *Multi) Paths() []string {
	out := make([]string, len(m.locks))
	for i, l := range m.locks {
		out[i] = l.path
	}
	return out
}

// Acquire joins all queues and returns when all locks are held. What is said of
// [Mutex.Acquire] is true of each: if ctx ends first, or the place in one of the
// queues is lost, it leaves all of them, in one transaction.
func (m *Multi) Acquire(ctx context.Context) (*MultiHandle, error) {
	if len(m.locks) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = m.locks[0].opts.limited(ctx)
		defer cancel()
	}
	h, err := m.join(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.wait(ctx); err != nil {
		return nil, h.leave(ctx, err)
	}
	return h, nil
}

// TryAcquire does not wait: if another holds one of the locks, it returns a
// *BusyError about the first of them. No queue entry is made while one is seen
// to be busy, and none is left behind.
func (m *Multi) TryAcquire(ctx context.Context) (*MultiHandle, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	for _, l := range m.locks {
		if err := l.seenFree(ctx, roleLock, ""); err != nil {
			return nil, err
		}
	}
	h, err := m.join(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.claim(ctx); err != nil {
		return nil, h.leave(ctx, err)
	}
	return h, nil
}

// Do runs fn while all locks are held. The context given to fn is a child of ctx
// that is also done when one of the locks is lost; [FromContext] finds the handle
// of each. Do waits for fn, releases all (also if fn panics) and returns fn's
// error; if a lock was lost meanwhile the result also matches ErrLost.
func (m *Multi) Do(ctx context.Context, fn func(ctx context.Context, h *MultiHandle) error) error {
	return do(ctx, m.Acquire, fn)
}

// check refuses wrong paths, and locks that the call chain of ctx holds already.
func (m *Multi) check(ctx context.Context) error {
	if m.err != nil {
		return m.err
	}
	for _, l := range m.locks {
		if err := l.checkChain(ctx); err != nil {
			return err
		}
	}
	return nil
}
