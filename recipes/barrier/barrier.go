package barrier

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Barrier is a sign by name, raised or not. It has no state: share it freely
// between goroutines.
type Barrier struct {
	c    *client.Client
	path string
}

// New names a barrier; nothing is sent.
func New(c *client.Client, path string) *Barrier { return &Barrier{c: c, path: path} }

// Path is the barrier's path.
func (b *Barrier) Path() string { return b.path }

// maxParents bounds how often a folder is made again because it was reaped
// between its making and its use.
const maxParents = 10

// Raise makes waiters wait from now on. A barrier that is raised stays so.
// Missing parts of the path above it are made as containers.
func (b *Barrier) Raise(ctx context.Context) error {
	for tries := 0; ; tries++ {
		_, err := b.c.Create(ctx, b.path, settle.Card(b.c))
		switch {
		case err == nil, errors.Is(err, client.ErrNodeExists):
			return nil
		case !errors.Is(err, client.ErrNoNode) || tries == maxParents:
			return err
		}
		if err := settle.Folders(ctx, b.c, settle.Parent(b.path)); err != nil {
			return err
		}
	}
}

// Lower releases all waiters. A barrier that is not raised stays so.
func (b *Barrier) Lower(ctx context.Context) error {
	if err := b.c.Delete(ctx, b.path, client.AnyVersion); !errors.Is(err, client.ErrNoNode) {
		return err
	}
	return nil
}

// Raised reports whether the barrier is raised.
func (b *Barrier) Raised(ctx context.Context) (bool, error) {
	_, ok, err := b.c.Exists(ctx, b.path, client.Mode(client.Linearizable))
	return ok, err
}

// Wait returns nil once the barrier was down at any moment since the call, which
// may be at once. It returns the error of ctx, or of the session, if that ends
// first.
func (b *Barrier) Wait(ctx context.Context) error {
	var raised client.Zxid // by which transaction it was raised when the wait began
	for ev, err := range b.c.Watch(ctx, b.path, client.Initial(client.Linearizable)) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case client.EventPresent:
			raised = ev.Stat.Czxid
		case client.EventResync:
			st, ok, err := b.c.Exists(ctx, b.path, client.Mode(client.Linearizable), client.AtLeast(ev.Zxid))
			if err != nil {
				return err
			}
			if !ok || st.Czxid != raised { // it was lowered, and maybe raised again
				return nil
			}
		case client.EventAbsent, client.EventDeleted, client.EventCreated:
			return nil
		default: // its data was set
		}
	}
	return ctx.Err()
}
