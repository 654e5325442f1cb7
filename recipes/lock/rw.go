package lock

import (
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// RWMutex is a read-write lock by name: any number of readers hold it together,
// or one writer alone. It is fair: all stand in one queue, a reader does not
// overtake a waiting writer, and a writer waits for those before it only. Like a
// Mutex it has no state.
//
// A reader that asks for the write lock, or for the read lock again, in the same
// call chain gets ErrDeadlock: it would wait for itself, or for a writer that
// waits for it. There is no upgrade; release and acquire, and look again at what
// was read.
type RWMutex struct{ folder }

// NewRW names a read-write lock; nothing is sent. A path is for one kind of
// lock.
func NewRW(c *client.Client, path string, opts ...Option) *RWMutex {
	return &RWMutex{newFolder(c, path, KindRW, opts)}
}

// AcquireRead returns when no writer that came before holds the lock or waits
// for it. In all else it is like [Mutex.Acquire].
func (m *RWMutex) AcquireRead(ctx context.Context) (*Handle, error) {
	return m.acquire(ctx, roleRead, enterRW)
}

// AcquireWrite returns when all that came before have left. In all else it is
// like [Mutex.Acquire].
func (m *RWMutex) AcquireWrite(ctx context.Context) (*Handle, error) {
	return m.acquire(ctx, roleWrite, enterRW)
}

// TryAcquireRead returns a *BusyError if a writer holds the lock or waits for it;
// see [Mutex.TryAcquire].
func (m *RWMutex) TryAcquireRead(ctx context.Context) (*Handle, error) {
	return m.try(ctx, roleRead, enterRW)
}

// TryAcquireWrite returns a *BusyError if anybody holds the lock; see
// [Mutex.TryAcquire].
func (m *RWMutex) TryAcquireWrite(ctx context.Context) (*Handle, error) {
	return m.try(ctx, roleWrite, enterRW)
}

// DoRead runs fn while the lock is held for reading; see [Mutex.Do].
func (m *RWMutex) DoRead(ctx context.Context, fn func(ctx context.Context, h *Handle) error) error {
	return do(ctx, m.AcquireRead, fn)
}

// DoWrite runs fn while the lock is held for writing; see [Mutex.Do].
func (m *RWMutex) DoWrite(ctx context.Context, fn func(ctx context.Context, h *Handle) error) error {
	return do(ctx, m.AcquireWrite, fn)
}

// enterRW makes a contender that nobody stands in the way of a holder. Readers
// that come in together need not do so in the order in which their entries were
// made; so the token is the zxid at which the grant is written down, when all
// that it had to wait for have left.
func enterRW(ctx context.Context, p *spot, _ bool) error {
	st, err := p.record(ctx)
	if err != nil {
		return err
	}
	p.handle.granted(p.entry, fence.Token(st.Mzxid))
	return nil
}

// predecessor is the nearest earlier entry that this one has to wait for. A
// reader waits for writers; others for whoever is right before them. That no
// other kind of lock is in use here a reader has to ask for: it does not see whom
// it does not wait for.
func (p *spot) predecessor(ctx context.Context) (client.Place, error) {
	opts := []client.ReadOption{client.Mode(client.ReadSession)}
	if p.role != roleRead {
		return p.f.c.Predecessor(ctx, p.entry.Path, opts...)
	}
	at, err := p.f.c.Predecessor(ctx, p.entry.Path, append(opts, client.Containing(string(roleWrite)))...)
	if err != nil || at.Before != "" || at.Ahead == 0 {
		return at, err
	}
	return p.f.c.Predecessor(ctx, p.entry.Path, append(opts, client.Containing("-"+string(roleLock)))...)
}
