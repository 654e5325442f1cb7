package cluster

import (
	"context"
	"time"
)

const (
	// roundRetry is how long a voter that cannot be asked is left alone while
	// the round is open.
	roundRetry = 20 * time.Millisecond
	// behindRetry is the same for one that has not heard of the term yet: it
	// will with the leader's next message.
	behindRetry = 2 * time.Millisecond
	// retryDoublings is how often these pauses double while it stays so: a round may
	// be open for as long as there is no majority.
	retryDoublings = 4
)

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
		for vain := 0; ctx.Err() == nil; vain++ {
			number, term, open := p.rounds.present()
			if !open || number == asked {
				break
			}
			a, err := ask(ctx, number)
			if err != nil {
				pause(ctx, nil, roundRetry<<min(vain, retryDoublings))
				continue
			}
			p.rounds.answered(p.id, a)
			if a.term < term {
				pause(ctx, nil, behindRetry<<min(vain, retryDoublings))
				continue
			}
			asked, vain = number, -1
		}
	}
}
