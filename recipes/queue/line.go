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
	node string
	stat client.Stat
	gone bool // it is deleted already
}

// errAgain asks for a new place: somebody has deleted this one.
var errAgain = errors.New("queue: the place in the line was deleted")

// join puts an entry at the end of the line.
func (q *Queue) join(ctx context.Context) (*place, error) {
	for range maxParents {
		op := client.OpCreate(q.at(takersFolder)+"/"+newTaker(), card(q.c), client.WithEphemeral(), client.WithSequential())
		results, err := settle.Write(ctx, q.c, func(done []client.OpResult) { q.place(done[0]).abandon() }, op)
		if err == nil {
			return q.place(results[0]), nil
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

func (q *Queue) place(made client.OpResult) *place {
	return &place{q: q, node: made.Path, stat: made.Stat}
}

func (p *place) removal() client.Op {
	return client.OpDeleteNode(p.node, p.stat.Czxid, p.stat.EphemeralOwner)
}

// abandon has the entry deleted as soon as the session can, without waiting.
func (p *place) abandon() { _ = p.q.c.WriteAsync(nil, p.removal()) }

// leave deletes the entry and waits for that as long as ctx lasts, and a little
// longer.
func (p *place) leave(ctx context.Context) {
	if !p.gone {
		p.gone = true
		_, _ = settle.Async(ctx, p.q.c, settle.Grace, p.removal())
	}
}

// first returns when the place is the first in the line.
func (p *place) first(ctx context.Context) error {
	for {
		at, err := p.q.c.Predecessor(ctx, p.node, client.Mode(client.ReadSession))
		if errors.Is(err, client.ErrNoNode) || err == nil && at.Stat.Czxid != p.stat.Czxid {
			return errAgain
		}
		if err != nil || at.Before == "" {
			return err
		}
		if err := p.untilGone(ctx, at.Before); err != nil {
			return err
		}
	}
}

// untilGone returns when the node is not there or its changes may have been missed.
func (p *place) untilGone(ctx context.Context, node string) error {
	for ev, err := range p.q.c.Watch(ctx, node, client.Initial(client.ReadSession)) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case client.EventAbsent, client.EventDeleted, client.EventResync:
			return nil
		default: // it is still there
		}
	}
	return ctx.Err()
}
