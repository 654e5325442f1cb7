package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/zxid"
)

// F1: the leader applies slowly, the follower is ahead of it. Alternating
// linearizable reads must never go back.
func TestAlternatingLinearizableReadsNeverGoBack(t *testing.T) {
	var slow atomic.Value
	slow.Store("")
	tune := func(c *Config) {
		name := c.Name
		c.Faults.Apply = func(uint64) {
			if slow.Load() == name {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		slow.Store(w.leader())
		follower := w.followers()[0]
		stop := make(chan struct{})
		var writers sync.WaitGroup
		writers.Go(func() { // without waiting, so that entries overlap
			for k := 0; ; k++ {
				select {
				case <-stop:
					return
				case <-time.After(7 * time.Millisecond):
					w.propose(follower, createOp(fmt.Sprintf("/w%d", k)))
				}
			}
		})
		ahead := 0
		var last zxid.ID
		for range 100 {
			for _, at := range []string{follower, w.leader()} {
				n := w.node(at)
				if n.Machine().Index() < w.node(follower).Machine().Index() {
					ahead++
				}
				if err := n.Linearize(w.t.Context()); err != nil {
					t.Fatal(err)
				}
				z := n.Machine().Zxid()
				if z < last {
					t.Fatalf("a read at %s shows %v after one that showed %v", at, z, last)
				}
				last = z
			}
		}
		close(stop)
		writers.Wait()
		slow.Store("")
		if ahead == 0 {
			t.Error("the follower was never ahead of the leader: nothing was tested")
		}
	})
}

func TestLinearizableReadSeesEveryAcknowledgedWrite(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for i := range 60 {
			at, from := w.peers[i%3].Name, w.peers[(i/3)%3].Name
			path := fmt.Sprintf("/n%d", i)
			if _, err := w.create(at, path); err != nil {
				t.Fatal(err)
			}
			if i%20 == 19 {
				if _, err := w.node(w.awaitLeader()).Transfer(w.t.Context(), ""); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.node(from).Linearize(w.t.Context()); err != nil {
				t.Fatal(err)
			}
			if !w.exists(from, path) {
				t.Fatalf("%s, written through %s, is not seen at %s", path, at, from)
			}
		}
	})
}

// An old leader that is cut off must not answer reads, however sure it is.
func TestDeposedLeaderAnswersNoLinearizableRead(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		old := w.leader()
		for _, f := range w.followers() {
			w.net.cut(old+":7421", f+":7421")
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		// From the very moment of the cut: its lease has not run out.
		if err := w.node(old).Linearize(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a leader that is cut off answered: %v", err)
		}
		for _, p := range w.peers {
			if p.Name != old {
				w.net.heal(old+":7421", p.Address)
			}
		}
		if err := w.node(old).Linearize(w.t.Context()); err != nil {
			t.Errorf("after the cut: %v", err)
		}
	})
}

func TestStaleAgeGrowsWithoutAQuorum(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		for _, p := range w.peers {
			if age := w.node(p.Name).StaleAge(); age > 500*time.Millisecond {
				t.Errorf("%s is %v old in a healthy cluster", p.Name, age)
			}
		}
		w.kill("n1")
		w.kill("n2")
		time.Sleep(3 * time.Second)
		if age := w.node("n3").StaleAge(); age < 2900*time.Millisecond {
			t.Errorf("without a quorum n3 claims to be %v old, want about 3 s", age)
		}
	})
}

// The age counts what the state machine has reached, not what it has heard of.
func TestStaleAgeCountsWhatIsApplied(t *testing.T) {
	var stuck atomic.Value
	stuck.Store("")
	tune := func(c *Config) {
		name := c.Name
		c.Faults.Apply = func(uint64) {
			for stuck.Load() == name {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		slow := w.followers()[0]
		stuck.Store(slow)
		if _, err := w.create(w.leader(), "/a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if age := w.node(slow).StaleAge(); age < 1800*time.Millisecond {
			t.Errorf("a server that does not apply claims to be %v old", age)
		}
		stuck.Store("")
		time.Sleep(time.Second)
		if age := w.node(slow).StaleAge(); age > 500*time.Millisecond {
			t.Errorf("after it has caught up it is %v old", age)
		}
	})
}
