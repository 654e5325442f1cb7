package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Kind says what sort of lock stands at a path.
type Kind string

// Kinds of locks. One path is for one kind: contenders of another kind would
// not wait for each other as they should, and their tokens would not compare.
const (
	KindMutex     Kind = "mutex"
	KindRW        Kind = "rw"
	KindSemaphore Kind = "semaphore"
)

// folder is a lock as one contender sees it: the znode whose children are the
// queue, and the contender's own options. Every kind of lock is made of one.
type folder struct {
	c    *client.Client
	path string
	kind Kind
	opts options
}

func newFolder(c *client.Client, path string, kind Kind, opts []Option) folder {
	o := options{margin: -1}
	for _, opt := range opts {
		opt(&o)
	}
	if o.session != nil {
		c = o.session.Client()
	}
	return folder{c: c, path: path, kind: kind, opts: o}
}

// Path is the lock's path.
func (f *folder) Path() string { return f.path }

// admit makes the first in the queue the holder; it differs between the kinds.
// With wait it may take long, else it returns a *BusyError instead.
type admit func(ctx context.Context, p *spot, wait bool) error

// acquire joins the queue and waits.
func (f *folder) acquire(ctx context.Context, r role, enter admit) (*Handle, error) {
	ctx, cancel := f.opts.limited(ctx)
	defer cancel()
	p, err := f.join(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := p.wait(ctx, enter); err != nil {
		return nil, p.leave(ctx, err)
	}
	return p.handle, nil
}

// try joins the queue only if nobody is seen to stand in the way, and leaves it
// again if somebody does.
func (f *folder) try(ctx context.Context, r role, enter admit) (*Handle, error) {
	if err := f.checkChain(ctx); err != nil {
		return nil, err
	}
	if err := f.seenFree(ctx, r, ""); err != nil {
		return nil, err
	}
	p, err := f.join(ctx, r)
	if err != nil {
		return nil, err
	}
	err = p.first(ctx)
	if err == nil {
		err = enter(ctx, p, false)
	}
	if err == nil {
		err = p.enough(ctx)
	}
	if err != nil {
		return nil, p.leave(ctx, err)
	}
	return p.handle, nil
}

// held is what an acquisition gives: a Handle or a MultiHandle.
type held interface {
	inside(ctx context.Context) (context.Context, context.CancelFunc)
	Release(ctx context.Context) error
}

// do runs fn while the lock is held, or all of several, however that is acquired.
func do[H held](ctx context.Context, acquire func(context.Context) (H, error), fn func(ctx context.Context, h H) error) (err error) {
	h, err := acquire(ctx)
	if err != nil {
		return err
	}
	inner, cancel := h.inside(ctx)
	defer cancel()
	defer func() {
		if rel := h.Release(context.WithoutCancel(ctx)); rel != nil && !errors.Is(err, rel) {
			err = errors.Join(err, rel)
		}
	}()
	return fn(inner, h)
}

// checkChain refuses a lock that the call chain of ctx holds already.
func (f *folder) checkChain(ctx context.Context) error {
	if h, ok := FromContext(ctx, f.path); ok && h.place.f.sameLock(f) && h.Held() {
		return fmt.Errorf("%w: %s", ErrDeadlock, f.path)
	}
	return ctx.Err()
}

func (f *folder) sameLock(o *folder) bool {
	return f.path == o.path && f.c.ClusterID() == o.c.ClusterID() && f.c.Chroot() == o.c.Chroot()
}

// fullPath is the lock's path in the cluster: two clients that see it through
// different chroots must name it alike to the resource.
func (f *folder) fullPath() string {
	if root := f.c.Chroot(); root != "/" {
		return root + f.path
	}
	return f.path
}

// makeFolder makes the lock's path, all missing parts as containers.
func (f *folder) makeFolder(ctx context.Context) error { return settle.Folders(ctx, f.c, f.path) }
