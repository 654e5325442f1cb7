package cluster

import (
	"context"
	"time"
)

// roundRetry is how long a voter that cannot be asked is left alone while the
// round is open.
const roundRetry = 20 * time.Millisecond

// roundPeer asks one voter. It has one question under way; when that is
// answered it goes on with the newest round, so a voter that is frozen holds up
// nobody, and costs one goroutine.
type roundPeer struct {
	rounds *rounds
	id     serverID
	wake   nudge
	leave  context.CancelFunc // ends run
}

// run asks until ctx ends.
func (p *roundPeer) run(ctx context.Context) {
	defer p.leave()
	ask := p.rounds.askers(p.id)
	var asked uint64
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for ctx.Err() == nil {
			number, open := p.rounds.present()
			if !open || number == asked {
				break
			}
			a, err := ask(ctx, number)
			if err != nil {
				pause(ctx, nil, roundRetry)
				continue
			}
			asked = number
			p.rounds.answered(p.id, a)
		}
	}
}
