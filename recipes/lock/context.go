package lock

import (
	"context"

	"github.com/coordd/coord/fence"
)

// handleKey finds the handle of the lock with this path.
type handleKey struct{ path string }

func withHandle(ctx context.Context, h *Handle) context.Context {
	return context.WithValue(ctx, handleKey{h.Path()}, h)
}

// FromContext finds the handle that Do (or Handle.Context) put into ctx, so that
// a callee can require a lock instead of taking it again. Acquire with such a
// ctx for the same path returns ErrDeadlock while the handle holds the lock.
func FromContext(ctx context.Context, path string) (*Handle, bool) {
	h, ok := ctx.Value(handleKey{path}).(*Handle)
	return h, ok
}

// withGrant adds the grant. Its path is that in the cluster: two clients that see
// the lock through different chroots must name it alike to the resource.
func (h *Handle) withGrant(ctx context.Context) context.Context {
	return fence.NewContext(ctx, fence.Grant{Lock: h.place.f.fullPath(), Token: h.FencingToken()})
}

// inside is the context of what runs while the lock is held.
func (h *Handle) inside(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.within(h.withGrant(ctx))
}

// within is a child of ctx that is also done when the handle is over.
func (h *Handle) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return h.hold.Within(withHandle(ctx, h), h.hold.Check)
}
