package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// releaseGrace is how long a Release whose context is done is still waited for.
// The removal of the queue entry goes on after that.
const releaseGrace = 5 * time.Second

// releasing is the one release of a handle: begun once, waited for by any number
// of callers.
type releasing struct {
	done chan struct{} // closed when err is set
	err  error
}

// released is a release that has ended already.
func released(err error) *releasing {
	r := &releasing{done: make(chan struct{}), err: err}
	close(r.done)
	return r
}

// after is a release that ends with an outcome, of which err tells what it means.
func after(outcome <-chan error, err func(error) error) *releasing {
	r := &releasing{done: make(chan struct{})}
	go func() { // ends with the outcome, at the latest with the session
		defer close(r.done)
		r.err = err(<-outcome)
	}()
	return r
}

// wait waits as long as ctx lasts, and a little longer.
func (r *releasing) wait(ctx context.Context, what string) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	t := time.NewTimer(releaseGrace)
	defer t.Stop()
	select {
	case <-r.done:
		return r.err
	case <-t.C:
		return fmt.Errorf("release %s: %w, %w: it is done as soon as the cluster answers", what, client.ErrUnknownOutcome, ctx.Err())
	}
}

// Release gives the lock up. Its context is done before the request is sent. It
// returns nil when the queue entry is gone, and an error that matches ErrLost if
// the lock had been lost before; in no case does it touch another holder.
//
// It is idempotent, and works with a ctx that is done: it waits a few seconds then.
// If there is no answer in time the error matches client.ErrUnknownOutcome, and
// another Release goes on waiting; the entry is removed as soon as the session can,
// at the latest with the end of the session.
func (h *Handle) Release(ctx context.Context) error {
	lost := h.lostError()
	h.hold.Come(ErrReleased, false)
	h.mu.Lock()
	r := h.release
	if r == nil {
		r = h.begin(lost)
		h.release = r
	}
	h.mu.Unlock()
	return r.wait(ctx, h.Path())
}

// begin begins the release. The caller has mu.
func (h *Handle) begin(lost error) *releasing {
	c, n := h.place.f.c, h.held
	switch {
	case lost != nil && h.hold.SessionOver():
		return released(lost)
	case lost != nil: // the entry may still be there
		n.Remove(c)
		return released(lost)
	default:
		return after(n.Remove(c), h.afterRelease)
	}
}

// afterRelease is what the outcome of the removal means for the holder.
func (h *Handle) afterRelease(err error) error {
	switch {
	case err == nil:
		return nil
	case h.hold.SessionOver():
		return h.lostBy(context.Cause(h.session.Context()))
	case settle.Missing(err):
		return h.lostBy(ErrDeleted)
	default:
		return err
	}
}

// Release gives all locks up, in one transaction; see [Handle.Release]. It
// returns an error that matches ErrLost if one had been lost before; the others
// are given up all the same.
func (h *MultiHandle) Release(ctx context.Context) error {
	lost := h.lostError()
	h.finish(lost)
	h.mu.Lock()
	r := h.release
	if r == nil {
		r = h.begin(lost)
		h.release = r
	}
	h.mu.Unlock()
	return r.wait(ctx, h.paths())
}

// begin begins the release. The caller has mu.
func (h *MultiHandle) begin(lost error) *releasing {
	left := h.claimed()
	if h.handles[0].hold.SessionOver() || len(left) == 0 {
		return released(lost)
	}
	return after(removeAll(h.c, left), func(err error) error {
		return cmp.Or(lost, h.afterRelease(err))
	})
}

// afterRelease is what the outcome of the removal means for the holder.
func (h *MultiHandle) afterRelease(err error) error {
	var gone *goneError
	if errors.As(err, &gone) && !h.handles[0].hold.SessionOver() {
		return h.handleOf(gone.nodes[0]).lostBy(ErrDeleted)
	}
	return h.handles[0].afterRelease(err)
}
