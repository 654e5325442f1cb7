package queue

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// place is one entry in the line of takers: of those, only the first looks at the
// items, so that a Put wakes one and not all. The line is not what makes a claim
// exclusive; that is the claim itself.
type place struct {
	q    *Queue
	own  settle.Node
	gone bool // it is deleted already
}

// errAgain asks for a new place: somebody has deleted this one.
var errAgain = errors.New("queue: the place in the line was deleted")

// join puts an entry at the end of the line.
func (q *Queue) join(ctx context.Context) (*place, error) {
	for range maxParents {
		op := client.OpCreate(q.at(takersFolder)+"/"+settle.Name("take-"), settle.Card(q.c), client.WithEphemeral(), client.WithSequential())
		undo := func(made []client.OpResult) <-chan error { return settle.NodeOf(made[0]).Remove(q.c) }
		made, err := settle.Write(ctx, q.c, undo, op)
		if err == nil {
			return &place{q: q, own: settle.NodeOf(made[0])}, nil
		}
		if !errors.Is(err, client.ErrNoNode) {
			return nil, err
		}
		if err := q.folders(ctx, takersFolder); err != nil {
			return nil, err
		}
	}
	return nil, q.noFolder()
}

// leave deletes the entry and waits for that as long as ctx lasts, and a little
// longer.
func (p *place) leave(ctx context.Context) {
	if !p.gone {
		p.gone = true
		_ = settle.Await(ctx, p.own.Remove(p.q.c), settle.Grace)
	}
}

// first returns when the place is the first in the line.
func (p *place) first(ctx context.Context) error {
	for {
		at, err := p.q.c.Predecessor(ctx, p.own.Path, client.Mode(client.ReadSession))
		if errors.Is(err, client.ErrNoNode) || err == nil && !p.own.Same(at.Stat) {
			return errAgain
		}
		if err != nil || at.Before == "" {
			return err
		}
		if err := settle.UntilGone(ctx, p.q.c, at.Before); err != nil {
			return err
		}
	}
}
