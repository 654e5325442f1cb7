package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/coordd/coord/client"
)

// MaxLimit is the largest limit of a semaphore: whoever is first in the queue
// looks at all slots.
const MaxLimit = 10_000

// Semaphore lets up to a limit hold it at once, in the order in which they came.
// Each holder has a slot, with a number below the limit. Like a Mutex it has no
// state.
//
// Fence it by slot: the tokens of one slot rise, and of two holders of different
// slots neither is stale. A resource of which there are as many as slots (a
// worker's partition, a license) is named by [Handle.Slot] and keeps a mark of its
// own.
type Semaphore struct {
	folder
	n int
}

// NewSemaphore names a semaphore for up to n holders; nothing is sent. A path is
// for one kind of lock.
//
// The limit is stored with the first holder, and a contender that wants another
// one gets a *LimitError. It changes when nobody holds a slot or waits: then
// whoever comes next sets it to what it wants. An operator may change it while
// the semaphore is in use, by setting the data of <path>/slots: those that want
// the old limit are refused from then on, and those that hold a slot keep it.
func NewSemaphore(c *client.Client, path string, n int, opts ...Option) *Semaphore {
	return &Semaphore{newFolder(c, path, KindSemaphore, opts), n}
}

// Limit is how many may hold the semaphore at once.
func (s *Semaphore) Limit() int { return s.n }

// Acquire joins the queue and returns when a slot was taken, which
// [Handle.Slot] names. It returns a *LimitError if the semaphore is in use with
// another limit. In all else it is like [Mutex.Acquire].
func (s *Semaphore) Acquire(ctx context.Context) (*Handle, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.acquire(ctx, roleSlot, s.enter)
}

// TryAcquire returns a *BusyError if all slots are taken, or others wait for one
// already; see [Mutex.TryAcquire].
func (s *Semaphore) TryAcquire(ctx context.Context) (*Handle, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	switch at, err := s.slots(ctx); {
	case err != nil:
		return nil, err
	case at.free < 0:
		return nil, s.full(ctx, at, "")
	}
	h, err := s.try(ctx, roleSlot, s.enter)
	var busy *BusyError
	if errors.As(err, &busy) && busy.Limit == 0 { // a slot is free, and others wait for it
		return nil, s.others(ctx)
	}
	return h, err
}

// Do runs fn while a slot is held; see [Mutex.Do].
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, h *Handle) error) error {
	return do(ctx, s.Acquire, fn)
}

// check refuses what cannot succeed before anything is written.
func (s *Semaphore) check(ctx context.Context) error {
	if s.n < 1 || s.n > MaxLimit {
		return fmt.Errorf("semaphore %s: %w: the limit %d is not between 1 and %d", s.path, client.ErrBadArguments, s.n, MaxLimit)
	}
	if err := s.checkChain(ctx); err != nil {
		return err
	}
	return s.checkLimit(ctx)
}
