package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// Handle is one acquisition. It is safe for concurrent use.
type Handle struct {
	place   *spot
	session *client.Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	lost    chan struct{}
	stop    func() bool // of the wait for the session's end

	// mu guards the fields below.
	mu       sync.Mutex
	timer    *time.Timer
	over     error         // not nil once lost or released: the cause of ctx
	released chan struct{} // not nil once Release was called; closed when relErr is set
	relErr   error
}

// newHandle begins to watch over a queue entry, already while it waits.
func newHandle(p *spot) *Handle {
	h := &Handle{place: p, session: p.m.c.Session(), lost: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancelCause(withHandle(context.Background(), h))
	h.stop = context.AfterFunc(h.session.Context(), func() { h.lose(context.Cause(h.session.Context())) })
	h.mu.Lock()
	h.timer = time.AfterFunc(h.nextLook(), h.look)
	h.mu.Unlock()
	go h.watchNode()
	return h
}

// FencingToken is larger than that of every earlier holder of the lock. Hand it
// to the protected resource with each write. Tokens of different locks cannot be
// compared.
func (h *Handle) FencingToken() fence.Token { return fence.Token(h.place.stat.Czxid) }

// Path is the lock's path, Node that of the holder's queue entry.
func (h *Handle) Path() string { return h.place.m.path }

// Node is the path of the holder's queue entry.
func (h *Handle) Node() string { return h.place.node() }

// Session is the session that the lock depends on.
func (h *Handle) Session() *client.Session { return h.session }

// Context is a child of nothing. It is done when the lock is lost or released;
// context.Cause is then a *LostError or ErrReleased. Its Err and Done look at
// the clock themselves, so that they are right at once after a pause of the
// process. It carries the handle for [FromContext].
func (h *Handle) Context() context.Context { return checkedContext{h.ctx, h} }

// Lost is closed when the lock is lost, and not by Release.
func (h *Handle) Lost() <-chan struct{} {
	h.check()
	return h.lost
}

// Held says whether the lock is held, as far as this process can know: no
// request is made. It is false from a safety margin before the session's
// deadline on.
func (h *Handle) Held() bool {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over == nil
}

// Deadline is the moment before which nobody else can be granted the lock
// because of silence. It moves on while the session lives. Deliberate removal
// (an administrator, another client, the end of the session by its own client)
// may come earlier: the holder is told of it, and the token is for it.
func (h *Handle) Deadline() time.Time { return h.session.Deadline() }

// Remaining is the time until the lock counts as lost if nothing is heard from
// the cluster any more: until the deadline less the safety margin, 0 when it is
// over.
func (h *Handle) Remaining() time.Duration {
	return max(0, h.session.DeadlineAt()-h.place.opts.margin-h.session.Now())
}

// Verify asks the cluster whether the lock is still held. It returns nil, or an
// error that matches ErrLost or ErrReleased, or that of the request.
func (h *Handle) Verify(ctx context.Context) error {
	h.check()
	h.mu.Lock()
	over := h.over
	h.mu.Unlock()
	if over != nil {
		return over
	}
	st, ok, err := h.place.m.c.Exists(ctx, h.Node(), client.Mode(client.Linearizable))
	if err != nil {
		return err
	}
	if !ok || st.Czxid != h.place.stat.Czxid || st.EphemeralOwner != h.place.stat.EphemeralOwner {
		h.lose(ErrDeleted)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.over
}

// Guard goes first into a [client.Client.Txn]: the transaction fails unless this
// very acquisition still holds the lock. A check of the path alone would also
// pass for a later holder.
func (h *Handle) Guard() client.Op {
	return client.OpCheckNode(h.Node(), h.place.stat.Czxid, h.place.stat.EphemeralOwner)
}

// Release gives the lock up. Its context is done before the request is sent. It
// returns nil when the queue entry is gone, and an error that matches ErrLost if
// the lock had been lost before; in no case does it touch another holder. It is
// idempotent, and works with a ctx that is done: it waits a few seconds then. If
// there is no answer in time the entry is removed as soon as the session can,
// at the latest with the end of the session.
func (h *Handle) Release(ctx context.Context) error {
	h.check()
	h.mu.Lock()
	first := h.released == nil
	if first {
		h.released = make(chan struct{})
	}
	released := h.released
	h.mu.Unlock()
	if first {
		err := h.release(ctx)
		h.mu.Lock()
		h.relErr = err
		h.mu.Unlock()
		close(released)
	}
	select {
	case <-released:
	case <-ctx.Done():
		t := time.NewTimer(releaseGrace)
		defer t.Stop()
		select {
		case <-released:
		case <-t.C:
			return fmt.Errorf("release %s: %w", h.Path(), ctx.Err())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.relErr
}

func (h *Handle) release(ctx context.Context) error {
	if err := h.lostError(); err != nil {
		if !h.sessionOver() {
			h.place.m.remove(h.Node(), h.place.stat)
		}
		return err
	}
	h.drop(ErrReleased)
	grace := h.session.Timeout() + releaseGrace // the session ends before that
	if d, ok := ctx.Deadline(); ok {
		grace = min(grace, time.Until(d)+releaseGrace)
	}
	if ctx.Err() != nil {
		grace = releaseGrace
	}
	err, ok := settled(h.place.m.remove(h.Node(), h.place.stat), grace)
	switch {
	case !ok:
		return fmt.Errorf("release %s: %w: it is done as soon as the cluster answers", h.Path(), client.ErrUnknownOutcome)
	case err == nil:
		return nil
	case h.sessionOver():
		return h.lostBy(context.Cause(h.session.Context()))
	case errors.Is(err, client.ErrNoNode), errors.Is(err, client.ErrBadVersion):
		return h.lostBy(ErrDeleted)
	default:
		return err
	}
}

func (h *Handle) sessionOver() bool { return h.session.Context().Err() != nil }
