package counter

import (
	"context"
	"errors"
	"sync"

	"github.com/coordd/coord/client"
)

// Counter is a number by name. It is safe for concurrent use, and sharing it is
// what makes concurrent Adds fast.
type Counter struct {
	c    *client.Client
	path string

	// mu guards the fields below.
	mu      sync.Mutex
	queue   []*request // not in a batch yet
	running bool       // somebody works on the queue
}

// New names a counter; nothing is sent.
func New(c *client.Client, path string) *Counter { return &Counter{c: c, path: path} }

// Path is the counter's path.
func (c *Counter) Path() string { return c.path }

// Get reads the number. A counter that does not exist is 0. The error matches
// ErrContent if the znode holds something else.
func (c *Counter) Get(ctx context.Context) (int64, error) {
	s, err := c.read(ctx)
	return s.value, err
}

// Add adds delta, which may be negative, and returns the number right behind it.
// Missing parts of the path are made. Adding 0 only reads.
//
// If ctx ends before the write is sent, nothing is done. If it ends later, Add
// returns at once with an error that matches the context's and
// client.ErrUnknownOutcome.
func (c *Counter) Add(ctx context.Context, delta int64) (now int64, err error) {
	if delta == 0 {
		return c.Get(ctx)
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r := &request{delta: delta, done: make(chan answer, 1)}
	c.enter(r)
	select {
	case a := <-r.done:
		return a.now, a.err
	case <-ctx.Done():
	}
	waited := c.leave(r)
	select {
	case a := <-r.done: // it came at the same moment
		return a.now, a.err
	default:
	}
	if waited {
		return 0, ctx.Err()
	}
	return 0, errors.Join(ctx.Err(), client.ErrUnknownOutcome)
}

// CompareAndSet sets the number to want if it is have, and reports whether it
// did. A counter that does not exist is 0. An error that matches
// client.ErrUnknownOutcome means that it may have been set.
func (c *Counter) CompareAndSet(ctx context.Context, have, want int64) (bool, error) {
	for tries := 0; ; tries++ {
		s, err := c.read(ctx)
		if err != nil || s.value != have {
			return false, err
		}
		_, err = c.write(ctx, c.c.Txn, s, want)
		if err == nil {
			return true, nil
		}
		if !conflict(err) {
			return false, err
		}
		if err := pause(ctx, tries); err != nil {
			return false, err
		}
	}
}
