package lock

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
	"github.com/coordd/coord/znode"
)

// lostBy describes the loss.
func (h *Handle) lostBy(reason error) error {
	return &LostError{Path: h.Path(), Node: h.Node(), Token: h.FencingToken(), Reason: reason}
}

// lostError is the *LostError of a lost handle, else nil.
func (h *Handle) lostError() error {
	var e *LostError
	if errors.As(h.hold.Over(), &e) {
		return e
	}
	return nil
}

// freeLater removes the queue entry of a handle that was lost by the margin, if
// the session turns out to live on: nobody may be left to do it. It waits until
// the deadline that the margin was before, so that the work has the time to stop
// that the margin is meant to give, and for the lock-delay, if the lock was held:
// this is no clean release.
func (h *Handle) freeLater() {
	h.mu.Lock()
	wait := h.place.opts.margin
	if h.holds {
		wait += h.place.opts.lockDelay
	}
	h.mu.Unlock()
	time.AfterFunc(wait, func() {
		if h.session.Context().Err() == nil {
			h.node().Remove(h.place.f.c)
		}
	})
}

// watch begins to tell of the end of the node that the handle depends on now. It
// ends with the handle, or when unwatch is called.
func (h *Handle) watch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx, cancel := context.WithCancel(h.hold.Context())
	h.unwatch = cancel
	go h.watchNode(ctx, h.held)
}

// ignore ends the watch: the node is about to go by our own doing.
func (h *Handle) ignore() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unwatch()
}

func (h *Handle) watchNode(ctx context.Context, n settle.Node) {
	for ev, err := range h.place.f.c.Watch(ctx, n.Path, client.Since(n.Stat.Czxid)) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !h.hold.SessionOver():
			// The node cannot be watched (a limit, a permission): its holder
			// could not be told of its end, so it must not rely on it.
			h.hold.Lose(err)
			h.freeLater()
			return
		case err != nil:
			return
		case ev.Type == client.EventDeleted, ev.Type == client.EventChanged && ev.Stat.EphemeralOwner == 0:
			h.hold.Lose(h.endedBy(&ev)) // changed: it lingers, no longer ours
			return
		case ev.Type == client.EventResync:
			_ = h.Verify(ctx) // it takes note of a loss itself
		}
	}
}

// awaitReason makes a handle lost whose queue entry is not there any more. The
// watch of the entry is about to say why.
func (h *Handle) awaitReason() {
	t := time.NewTimer(reasonWait)
	defer t.Stop()
	select {
	case <-h.hold.Lost():
	case <-t.C:
		h.hold.Lose(ErrDeleted)
	}
}

const reasonWait = time.Second

// endedBy is the reason of a loss that is seen as the end of the node. The server
// tells of the end of a session together with what it did; where that took more
// than one message, the node's end is seen first, and its cause says less.
func (h *Handle) endedBy(ev *client.Event) error {
	s := h.session
	over := func(r client.Reason) error {
		return &client.SessionError{ID: s.ID(), Reason: r, Timeout: s.Timeout(), Detail: "the cluster has ended it"}
	}
	h.mu.Lock()
	waits := !h.holds
	h.mu.Unlock()
	switch {
	case h.hold.SessionOver():
		return context.Cause(s.Context())
	case ev.Cause == znode.BySessionExpiry:
		return over(client.Silent)
	case ev.Cause == znode.BySessionClose, ev.Cause == znode.ByAdmin && ev.Session == s.ID():
		return over(client.Killed)
	case ev.Cause == znode.ByReaper && waits && h.place.opts.waitLimit > 0:
		return ErrWaitLimit
	default:
		return ErrDeleted
	}
}
