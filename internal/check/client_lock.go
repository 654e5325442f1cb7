package check

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Held is a lock that is held, as the history knows it.
type Held struct {
	*lock.Handle
	c     *Client
	grant Record // the Acquire record
	hold  int
	once  sync.Once // the first end counts
	over  chan struct{}
}

// Acquire records an acquisition: of a mutex or a writer Alone, of a reader
// Shared, of a semaphore Slot with its limit. The lock is named by the handle.
//
//	held, err := c.Acquire(ctx, "/l", check.Alone, 0, lock.New(c.Client, "/l").Acquire)
func (c *Client) Acquire(ctx context.Context, path, as string, limit int, acquire func(context.Context) (*lock.Handle, error)) (*Held, error) {
	r := c.begin(Acquire, path)
	r.As, r.Limit = as, limit
	return c.acquire(ctx, r, acquire)
}

func (c *Client) acquire(ctx context.Context, r Record, acquire func(context.Context) (*lock.Handle, error)) (*Held, error) {
	handle, err := acquire(ctx)
	if err != nil {
		c.end(&r, err)
		return nil, err
	}
	r.Token, r.End, r.Outcome = uint64(handle.FencingToken()), c.h.now(), Done
	r.Session = handle.Session().ID()
	h := &Held{Handle: handle, c: c, grant: r, hold: c.h.Add(r), over: make(chan struct{})}
	c.h.wg.Go(h.follow)
	return h, nil
}

// follow records the loss of the lock.
func (h *Held) follow() {
	select {
	case <-h.over:
		return
	case <-h.Context().Done():
	}
	cause := context.Cause(h.Context())
	if errors.Is(cause, lock.ErrReleased) {
		return // Release records it
	}
	r := h.record(Lost)
	r.Reason, r.Detail = lossReason(cause), cause.Error()
	if d := h.c.h.deadline(h.Session()); r.Reason != ByOther && r.Reason != ByRestore && d < r.Begin {
		r.Begin = d // a process that was paused: its clock knew by then
	}
	h.ended(r)
}

func lossReason(cause error) string {
	var e *client.SessionError
	switch {
	case errors.Is(cause, lock.ErrMargin):
		return ByMargin
	case errors.Is(cause, lock.ErrDeleted), !errors.As(cause, &e):
		return ByOther
	case e.Reason == client.Silent:
		return BySilent
	case e.Reason == client.ByClient:
		return ByClient
	case e.Reason == client.Restore:
		return ByRestore
	default:
		return ByOther
	}
}

// record is one about the end of the hold.
func (h *Held) record(kind Kind) Record {
	r := h.c.begin(kind, h.grant.Path)
	r.End, r.Hold, r.Token, r.As = r.Begin, h.hold, h.grant.Token, h.grant.As
	r.Session = h.grant.Session
	return r
}

// ended records the first end of the hold.
func (h *Held) ended(r Record) {
	h.once.Do(func() {
		h.c.h.Add(r)
		close(h.over)
	})
}

// Release gives the lock up. The hold has ended when it is called.
func (h *Held) Release(ctx context.Context) error { return h.giveUp(ctx, h.Handle.Release) }

func (h *Held) giveUp(ctx context.Context, release func(context.Context) error) error {
	if h.Held() {
		h.ended(h.record(Release))
	}
	return release(ctx)
}

// Granted records a grant that is no lock.Handle, as of an election; ended
// records its end, which came at the time at.
func (c *Client) Granted(path, as string, limit int, begin time.Duration, token uint64) (ended func(kind Kind, reason string, at time.Duration)) {
	r := c.begin(Acquire, path)
	r.Begin, r.End, r.As, r.Limit, r.Token, r.Outcome = begin, c.h.now(), as, limit, token, Done
	hold := c.h.Add(r)
	return func(kind Kind, reason string, at time.Duration) {
		o := r
		o.Kind, o.Begin, o.End, o.Hold, o.Reason, o.Outcome = kind, at, at, hold, reason, ""
		c.h.Add(o)
	}
}
