package renewal

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/coordd/coord/client"
)

// Pauses between failed attempts: the first, and the longest.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 10 * time.Second
	// calm is how long after a pause nothing must have failed for the next one
	// to be the shortest again.
	calm = time.Minute
)

// Pause is a pause between failed attempts that doubles each time, up to ten
// seconds, and is shortened by a random part of up to a half, so that many who
// failed together do not come back together. It begins anew when nothing has
// failed for a minute. The zero value is ready; one goroutine at a time.
type Pause struct {
	next time.Duration
	over time.Time // the end of the pause before
}

// Wait pauses. It returns ctx's error if that ends first.
func (p *Pause) Wait(ctx context.Context) error {
	if time.Since(p.over) > calm {
		p.Reset()
	}
	defer func() { p.over = time.Now() }()
	p.next = min(max(2*p.next, firstPause), longestPause)
	t := time.NewTimer(p.next - rand.N(p.next/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset makes the next pause the shortest one again.
func (p *Pause) Reset() { p.next = 0 }

// hopeless are the errors that trying again does not heal.
var hopeless = []error{
	client.ErrBadArguments, client.ErrBadPath, client.ErrInvalidACL, client.ErrProtected, client.ErrEphemeralParent,
	client.ErrTooLarge, client.ErrNoAuth, client.ErrAuthFailed, client.ErrWrongCluster, client.ErrProtocol, client.ErrClosed,
}

// Hopeless says whether an attempt that ended with err had better not be made
// again: what was asked for is wrong, or not permitted, or the client is closed.
func Hopeless(err error) bool {
	for _, e := range hopeless {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
