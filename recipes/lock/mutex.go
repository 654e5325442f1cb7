package lock

import (
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// Mutex is a lock by name. It has no state: share it freely between goroutines.
type Mutex struct{ folder }

// New names a lock; nothing is sent. Missing parts of path are made as
// containers when the lock is taken.
func New(c *client.Client, path string, opts ...Option) *Mutex {
	return &Mutex{newFolder(c, path, KindMutex, opts)}
}

// Acquire joins the queue and returns when the lock is held. If ctx ends first
// it leaves the queue and returns ctx's error; the queue entry is removed even
// though ctx is done.
//
// It returns early, with an error that matches ErrLost and says more, when its
// place in the queue is lost: ErrMargin when the cluster has not answered until
// the safety margin before its session's deadline, client.ErrSessionExpired when
// the session was ended before that, ErrDeleted when somebody deleted its queue
// entry. A waiter gives up at the margin like a holder, although its session may
// still come back: a lock that is granted now would be lost at once.
func (m *Mutex) Acquire(ctx context.Context) (*Handle, error) {
	return m.acquire(ctx, roleLock, enterMutex)
}

// TryAcquire does not wait for the lock: if another holds it, it returns a
// *BusyError that names the holder. No queue entry is made while the lock is
// seen to be busy, and none is left behind.
func (m *Mutex) TryAcquire(ctx context.Context) (*Handle, error) {
	return m.try(ctx, roleLock, enterMutex)
}

// Do runs fn while the lock is held. The context given to fn is a child of ctx
// and is also done when the lock is lost. Do waits for fn, releases the lock
// (also if fn panics) and returns fn's error; if the lock was lost meanwhile the
// result also matches ErrLost, even when fn returned nil.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, h *Handle) error) error {
	return do(ctx, m.Acquire, fn)
}

// enterMutex makes the first in the queue the holder. It is so by its place, and
// its token stands: entries are made in the order in which they get the lock.
// Only what is for the holder alone has to be written down.
func enterMutex(ctx context.Context, p *spot, _ bool) error {
	if p.opts.lockDelay > 0 || p.opts.waitLimit > 0 {
		if _, err := p.record(ctx); err != nil {
			return err
		}
	}
	p.handle.granted(p.entry, fence.Token(p.entry.Stat.Czxid))
	return nil
}
