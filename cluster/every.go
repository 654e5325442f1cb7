package cluster

import (
	"context"
	"time"
)

// every calls f once in each tick until ctx ends. A call that takes longer makes
// the ticks that it misses fall out.
func every(ctx context.Context, tick time.Duration, f func()) {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			f()
		}
	}
}
