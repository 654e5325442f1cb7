package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
)

// Mutex is a lock by name. It has no state: share it freely between goroutines.
type Mutex struct {
	c    *client.Client
	path string
	opts options
}

// New names a lock; nothing is sent. Missing parts of path are made as
// containers when the lock is taken.
func New(c *client.Client, path string, opts ...Option) *Mutex {
	o := options{margin: -1}
	for _, opt := range opts {
		opt(&o)
	}
	if o.session != nil {
		c = o.session.Client()
	}
	return &Mutex{c: c, path: path, opts: o}
}

// Path is the lock's path.
func (m *Mutex) Path() string { return m.path }

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
	p, err := m.join(ctx)
	if err != nil {
		return nil, err
	}
	if err := p.wait(ctx); err != nil {
		return nil, p.leave(ctx, err)
	}
	return p.handle, nil
}

// TryAcquire does not wait for the lock: if another holds it, it returns a
// *BusyError that names the holder. No queue entry is made while the lock is
// seen to be busy, and none is left behind.
func (m *Mutex) TryAcquire(ctx context.Context) (*Handle, error) {
	if err := m.checkChain(ctx); err != nil {
		return nil, err
	}
	switch names, err := m.c.Children(ctx, m.path); {
	case err == nil:
		if q := queueOf(names); len(q) > 0 {
			return nil, m.busy(ctx, q)
		}
	case !errors.Is(err, client.ErrNoNode):
		return nil, err
	}
	p, err := m.join(ctx)
	if err != nil {
		return nil, err
	}
	names, err := p.first(ctx)
	if err == nil && names != nil {
		err = m.busy(ctx, names)
	}
	if err == nil {
		err = p.grant(ctx)
	}
	if err != nil {
		return nil, p.leave(ctx, err)
	}
	return p.handle, nil
}

// busy describes the head of the queue.
func (m *Mutex) busy(ctx context.Context, q []entry) error {
	e := &BusyError{Path: m.path, Queue: len(q) - 1}
	e.Holder = Party{Node: m.path + "/" + q[0].name, Pattern: q[0].pattern}
	n, err := m.c.Get(ctx, e.Holder.Node, client.Mode(client.ReadSession))
	switch {
	case err == nil:
		e.Holder = party(m.path, q[0], n.Data, n.Stat)
	case !errors.Is(err, client.ErrNoNode):
		return err
	}
	return e
}

// Do runs fn while the lock is held. The context given to fn is a child of ctx
// and is also done when the lock is lost. Do waits for fn, releases the lock
// (also if fn panics) and returns fn's error; if the lock was lost meanwhile the
// result also matches ErrLost, even when fn returned nil.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, h *Handle) error) (err error) {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	inner, cancel := h.within(ctx)
	defer cancel()
	defer func() {
		if rel := h.Release(context.WithoutCancel(ctx)); rel != nil && !errors.Is(err, rel) {
			err = errors.Join(err, rel)
		}
	}()
	return fn(inner, h)
}

// checkChain refuses a lock that the call chain of ctx holds already.
func (m *Mutex) checkChain(ctx context.Context) error {
	if h, ok := FromContext(ctx, m.path); ok && h.place.m.sameLock(m) && h.Held() {
		return fmt.Errorf("%w: %s", ErrDeadlock, m.path)
	}
	return ctx.Err()
}

func (m *Mutex) sameLock(o *Mutex) bool {
	return m.path == o.path && m.c.ClusterID() == o.c.ClusterID() && m.c.Chroot() == o.c.Chroot()
}
