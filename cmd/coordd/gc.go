package main

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector runs when the heap has grown by a percentage of what is
// live. Here what is live is the tree, from a few to hundreds of MiB, and what
// grows is requests on their way. A fixed percentage collects a small tree all
// the time and lets a large one double the memory; a fixed growth does neither.
const (
	heapGrowth   = 64 << 20
	minGCPercent = 15  // 64 MiB of 430 MiB; above that let it grow in proportion
	maxGCPercent = 800 // of less than 8 MiB
)

// gcPercent is the setting that lets a live heap grow by heapGrowth.
func gcPercent(live uint64) int {
	if live == 0 {
		return maxGCPercent
	}
	return int(min(max(heapGrowth*100/live, minGCPercent), maxGCPercent))
}

// tuneGC keeps the collector's percentage right until ctx ends. GOGC in the
// environment turns it off.
func tuneGC(ctx context.Context) {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for last := 0; ; {
		metrics.Read(sample)
		if p := gcPercent(sample[0].Value.Uint64()); p != last {
			debug.SetGCPercent(p)
			last = p
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
