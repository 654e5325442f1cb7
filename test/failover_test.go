package test

import (
	"syscall"
	"testing"
	"time"
)

// The aims for the pauses stand in docs/performance.md. These bounds are ten
// times looser, as a test must not fail because the machine is busy.
const (
	maxPause      = 10 * time.Second
	maxMedian     = 5 * time.Second
	maxCleanPause = 500 * time.Millisecond // median
)

// disturb repeats an act against the leader under the load of eight clients
// and returns the longest pause of each time.
func disturb(t *testing.T, times int, act func(c *processes, lead *process) (heal func())) []time.Duration {
	t.Helper()
	c := startProcesses(t, 3, "")
	w := startCounters(t, c.endpoints(), 8)
	var pauses []time.Duration
	for range times {
		w.waitProgress(maxPause)
		lead := c.leader()
		w.resetPause()
		heal := act(c, lead)
		w.waitProgress(3 * maxPause)
		pauses = append(pauses, w.longestPause())
		heal()
		c.waitReady(30 * time.Second)
	}
	w.stop()
	c.sameDigests()
	t.Logf("longest pause each time: %v, median %v", pauses, median(pauses))
	return pauses
}

func checkPauses(t *testing.T, pauses []time.Duration, each, middle time.Duration) {
	t.Helper()
	for _, p := range pauses {
		if p > each {
			t.Errorf("a client waited %s for an answer, the bound is %s", p, each)
		}
	}
	if m := median(pauses); m > middle {
		t.Errorf("the median pause is %s, the bound is %s", m, middle)
	}
}

func TestKillOfTheLeaderIsOnlyADelay(t *testing.T) {
	skipIfShort(t)
	pauses := disturb(t, 10, func(_ *processes, lead *process) func() {
		lead.kill()
		return lead.start
	})
	checkPauses(t, pauses, maxPause, maxMedian)
}

func TestPausedLeaderIsOnlyADelay(t *testing.T) {
	skipIfShort(t)
	pauses := disturb(t, 10, func(_ *processes, lead *process) func() {
		lead.signal(syscall.SIGSTOP)
		resumed := make(chan struct{})
		time.AfterFunc(5*time.Second, func() {
			lead.signal(syscall.SIGCONT)
			close(resumed)
		})
		return func() { <-resumed }
	})
	checkPauses(t, pauses, maxPause, maxMedian)
}

func TestCleanStopOfTheLeaderIsHardlyNoticed(t *testing.T) {
	skipIfShort(t)
	pauses := disturb(t, 10, func(_ *processes, lead *process) func() {
		if took := lead.stop(); took > 10*time.Second {
			t.Errorf("the stop took %s", took)
		}
		return lead.start
	})
	checkPauses(t, pauses, maxPause, maxCleanPause)
}

func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("whole clusters of processes are not part of the quick tests")
	}
}
