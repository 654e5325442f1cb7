package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestStallsCountAndOrdinaryLatenessDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var stopped atomic.Int64 // time in which the process did not run
		m := stallMeter{now: func() int64 { return int64(time.Since(start)) + stopped.Load() }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.run(ctx, stallTick) }()

		for range 100 {
			time.Sleep(stallTick + time.Millisecond)
			stopped.Add(int64(stallGrace) / 2)
		}
		synctest.Wait()
		if got := m.seconds(); got != 0 {
			t.Errorf("%v s of stalls although it always ran", got)
		}
		stopped.Add(int64(3 * time.Second))
		time.Sleep(2 * stallTick)
		synctest.Wait()
		if got := m.seconds(); got < 3 || got > 3.1 {
			t.Errorf("%v s of stalls after 3 s", got)
		}
		cancel()
		<-done
	})
}
