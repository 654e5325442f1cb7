package cluster

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Where every step of a message waits for a processor, as on a machine with ten
// times the work that it can do, a heartbeat and its answer take most of a timer.
// With no third server to help out the leader stays nevertheless: a new one would be
// no better off, and each election is more work.
func TestLeaderOfAStarvedPairStays(t *testing.T) {
	var starved atomic.Bool
	starve := func(raft.ServerID, rpcKind) error {
		if starved.Load() {
			time.Sleep(time.Duration(30+rand.IntN(45)) * time.Millisecond)
		}
		return nil
	}
	inFakeTime(t, 3, func(c *Config) { c.transport = lossy{starve, starve} }, func(w *world) {
		w.start()
		w.awaitFormed()
		w.kill(w.followers()[0])
		l := w.leading()
		starved.Store(true)
		w.checkStays(l, time.Minute)
	})
}
