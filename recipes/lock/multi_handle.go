package lock

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/hold"
	"github.com/coordd/coord/recipes/internal/settle"
)

// MultiHandle is one acquisition of several locks. It is safe for concurrent
// use.
//
// It is held as long as all of its locks are. When one is lost the others are
// still ours until Release, which is to be called in any case.
type MultiHandle struct {
	c       *client.Client
	handles []*Handle // ascending by path; one session
	end     *hold.End

	// mu guards the field below.
	mu      sync.Mutex
	release *releasing // not nil once Release was called
}

func newMultiHandle(m *Multi, opts options, c card, made []client.OpResult) *MultiHandle {
	h := &MultiHandle{c: m.c}
	base := context.Background()
	for i, l := range m.locks {
		p := newSpot(&l.folder, roleLock, opts, c, made[i])
		p.handle = newHandle(p)
		h.handles = append(h.handles, p.handle)
		base = withHandle(base, p.handle)
	}
	h.end = hold.NewEnd(base)
	for _, l := range h.handles {
		context.AfterFunc(l.hold.Context(), h.check)
	}
	return h
}

// Handles are those of the single locks, ascending by path. Each has a fencing
// token of its own: tokens of different locks do not compare. Releasing one of
// them gives up that lock alone and ends the MultiHandle's context, which says
// that all are held.
func (h *MultiHandle) Handles() []*Handle { return append([]*Handle(nil), h.handles...) }

// Handle is that of the lock with this path, nil if it is none of them.
func (h *MultiHandle) Handle(path string) *Handle {
	for _, l := range h.handles {
		if l.Path() == path {
			return l
		}
	}
	return nil
}

// Context is a child of nothing. It is done when the first of the locks is lost
// or released; context.Cause is then a *LostError that names it, or ErrReleased.
// It carries each handle for [FromContext], and each grant for
// [fence.FromContextFor].
func (h *MultiHandle) Context() context.Context {
	return hold.Checked(h.withGrants(h.end.Context()), h.check)
}

func (h *MultiHandle) withGrants(ctx context.Context) context.Context {
	for _, l := range h.handles {
		ctx = l.withGrant(ctx)
	}
	return ctx
}

// inside is the context of what runs while the locks are held.
func (h *MultiHandle) inside(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.within(h.withGrants(ctx))
}

// Lost is closed when one of the locks is lost, and not by Release.
func (h *MultiHandle) Lost() <-chan struct{} {
	h.check()
	return h.end.Lost()
}

// Held says whether all locks are held, as far as this process can know; see
// [Handle.Held].
func (h *MultiHandle) Held() bool {
	h.check()
	return h.end.Cause() == nil
}

// Deadline is that of [Handle.Deadline]: all locks depend on one session.
func (h *MultiHandle) Deadline() time.Time { return h.handles[0].Deadline() }

// Remaining is that of [Handle.Remaining].
func (h *MultiHandle) Remaining() time.Duration { return h.handles[0].Remaining() }

// Session is the session that the locks depend on.
func (h *MultiHandle) Session() *client.Session { return h.handles[0].Session() }

// Guards go first into a [client.Client.Txn]: the transaction fails unless this
// very acquisition still holds all of the locks.
func (h *MultiHandle) Guards() []client.Op {
	out := make([]client.Op, len(h.handles))
	for i, l := range h.handles {
		out[i] = l.Guard()
	}
	return out
}

// Verify asks the cluster whether all locks are still held; see [Handle.Verify].
func (h *MultiHandle) Verify(ctx context.Context) error {
	for _, l := range h.handles {
		if err := l.Verify(ctx); err != nil {
			return err
		}
	}
	return nil
}

// check takes note of the end of one of the handles, which it may be the first to
// find.
func (h *MultiHandle) check() {
	for _, l := range h.handles {
		if over := l.hold.Over(); over != nil {
			h.end.Come(over, errors.Is(over, ErrLost))
			return
		}
	}
}

// finish ends the handle: by the loss of one of the locks, if there is one, else
// because it is released.
func (h *MultiHandle) finish(lost error) {
	h.end.Come(cmp.Or(lost, ErrReleased), lost != nil)
}

// lostError is the *LostError of the first lock that is lost, else nil.
func (h *MultiHandle) lostError() error {
	for _, l := range h.handles {
		if err := l.lostError(); err != nil {
			return err
		}
	}
	return nil
}

// handleOf is the handle that depends on the node.
func (h *MultiHandle) handleOf(n settle.Node) *Handle {
	for _, l := range h.handles {
		if l.Node() == n.Path {
			return l
		}
	}
	return h.handles[0]
}

// claimed ends the handles that nobody has released yet, as if each had been,
// and returns their nodes: they are now the caller's to remove. That of a handle
// that was lost is among them, as it may still be there.
func (h *MultiHandle) claimed() []settle.Node {
	var out []settle.Node
	for _, l := range h.handles {
		lost := l.lostError()
		l.mu.Lock()
		mine := l.release == nil
		if mine {
			l.release = released(lost)
		}
		l.mu.Unlock()
		if mine {
			l.hold.Come(ErrReleased, false)
			out = append(out, l.node())
		}
	}
	return out
}

func (h *MultiHandle) paths() string {
	var out []string
	for _, l := range h.handles {
		out = append(out, l.Path())
	}
	return strings.Join(out, " ")
}

// within is a child of ctx that is also done when the handle is over.
func (h *MultiHandle) within(ctx context.Context) (context.Context, context.CancelFunc) {
	for _, l := range h.handles {
		ctx = withHandle(ctx, l)
	}
	return h.end.Within(ctx, h.check)
}
