package lock

import (
	"cmp"
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// SetValue changes the value that others read as Party.Value; see [Value]. It is
// done only while this very acquisition holds the lock, and does not change the
// token. It returns an error that matches ErrLost or ErrReleased if the lock is
// not held any more, or that of the request. Of two calls at the same time one is
// the last.
func (h *Handle) SetValue(ctx context.Context, value []byte) error {
	if len(value) > MaxValueBytes {
		return tooLong(value)
	}
	if over := h.hold.Over(); over != nil {
		return over
	}
	h.mu.Lock()
	n, c := h.held, h.place.card
	c.Value = value
	if h.place.f.kind == KindRW {
		c.Token = h.token
	}
	h.mu.Unlock()
	_, err := h.place.f.c.Txn(ctx, n.Check(), client.OpSet(n.Path, c.encode(), client.AnyVersion))
	if settle.Missing(err) {
		return cmp.Or(h.Verify(ctx), err)
	}
	return err
}
