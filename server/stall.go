package server

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// stallTick is how often the meter means to run with the default times.
	stallTick = 100 * time.Millisecond
	// stallGrace is how late it may be without counting: a busy scheduler is.
	stallGrace = 20 * time.Millisecond
)

// stallMeter finds out for how long this process did not run although it should
// have: it was stopped, starved of its CPU, or swapped out. Meanwhile no session
// of this server is heard of, and a leader is deposed; this tells such times from
// a network that lost its way. The zero value but for now has counted nothing; it
// is safe for concurrent use.
type stallMeter struct {
	now   func() int64 // monotonic, ns
	nanos atomic.Int64
}

// run measures until ctx ends, and means to run once in each tick.
func (m *stallMeter) run(ctx context.Context, tick time.Duration) {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		began := m.now()
		timer.Reset(tick)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if late := m.now() - began - int64(tick); late > int64(stallGrace) {
			m.nanos.Add(late)
		}
	}
}

// seconds is the time lost since the start.
func (m *stallMeter) seconds() float64 { return time.Duration(m.nanos.Load()).Seconds() }
