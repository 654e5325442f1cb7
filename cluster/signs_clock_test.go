package cluster

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A report that is not answered must not hold up the clock by which signs of
// life grow old: connections are closed by it before the leader expires anybody.
func TestUncountedSignOfLifeGrowsOldWhileAReportHangs(t *testing.T) {
	var hangs atomic.Bool
	tune := func(c *Config) {
		c.Faults.Report = func(sent bool) error {
			if hangs.Load() && !sent {
				time.Sleep(2 * time.Second)
				return errors.New("lost")
			}
			return nil
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		f := w.followers()[0]
		c := w.open(f, 10*time.Second)
		hangs.Store(true)
		w.node(f).Heard(c.id, c.generation)
		time.Sleep(1500 * time.Millisecond)
		if age := w.node(f).Uncounted(c.id, c.generation); age < 1400*time.Millisecond {
			t.Errorf("the oldest uncounted sign of life is %v old, want 1.5 s", age)
		}
	})
}

// A sign of life that waits for its turn must not be noted with the time at
// which it began to wait: a later one may have been reported and answered by
// then, and a new leader believes what it hears first.
func TestSignIsNotOlderThanWhatWasReportedBeforeIt(t *testing.T) {
	var asked atomic.Int64
	s := newSigns(func() time.Duration { return time.Duration(asked.Add(1)) }, time.Second)
	sh := s.shard(1)
	sh.mu.Lock()
	before := asked.Load()
	begun, done := make(chan struct{}), make(chan struct{})
	go func() {
		close(begun)
		s.heard(1, 1, nil)
		close(done)
	}()
	<-begun
	for range 1000 {
		runtime.Gosched()
	}
	if asked.Load() != before {
		t.Error("the time of a sign is taken before its turn")
	}
	sh.mu.Unlock()
	<-done
}
