package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/recipes/election"
)

// TestObserverSeesEachLeaderAndEachGap while leaders of the cluster are killed, in
// the order in which they led.
func TestObserverSeesEachLeaderAndEachGap(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithCancel(testContext(t, 2*time.Minute))
	defer cancel()
	const times = 60
	r := &reigns{t: t}
	var wg sync.WaitGroup
	observer := dial(t, c.endpoints())
	var seen []election.Leader
	watching := testContext(t, 2*time.Minute)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l, err := range election.New(observer, "/election").Observe(watching) {
			if err == nil {
				seen = append(seen, l)
			}
			if string(l.Value) == "the last" {
				return
			}
		}
	}()
	for _, who := range []string{"a", "b"} {
		cl := dial(t, c.endpoints(), quiet)
		wg.Go(func() {
			r.standing(ctx, cl, "/election", who, func(ctx context.Context, l *election.Leadership) {
				if r.count() >= times {
					cancel()
				}
				if err := l.Proclaim(ctx, []byte(who+" again")); err != nil && ctx.Err() == nil {
					t.Errorf("proclaim: %v", err)
				}
			})
		})
	}
	for range 3 {
		before := r.count()
		poll(t, 30*time.Second, "leaders", func() error {
			if n := r.count(); n < min(before+15, times) {
				return fmt.Errorf("%d leaderships", n)
			}
			return nil
		})
		if r.count() < times {
			c.bounceLeader()
		}
	}
	wg.Wait()
	if last, err := election.New(observer, "/election").Campaign(watching, []byte("the last")); err != nil {
		t.Error(err)
	} else {
		r.begin("the last", last) // who sees it has seen all before it
	}
	<-done
	checkSeen(t, r, seen)
}

// checkSeen compares what an observer saw with who led: each leader once or more,
// in order, and a gap only between two. Of a leader that had gone already when the
// observer got another server, the token may not be known any more.
func checkSeen(t *testing.T, r *reigns, seen []election.Leader) {
	t.Helper()
	var leaders []election.Leader
	gaps := 0
	for i, l := range seen {
		switch last := len(leaders) - 1; {
		case l.Missed:
			t.Errorf("%d: changes were missed", i)
		case l.None() && i > 0 && seen[i-1].None():
			t.Errorf("%d: two gaps in a row", i)
		case l.None():
			gaps++
		case last >= 0 && leaders[last].Session == l.Session && leaders[last].Since.Equal(l.Since):
			leaders[last].Token = max(leaders[last].Token, l.Token)
		default:
			leaders = append(leaders, l)
		}
	}
	if len(leaders) < len(r.tokens) || gaps == 0 {
		t.Errorf("%d leaders and %d gaps were seen, %d led", len(leaders), gaps, len(r.tokens))
	}
	known := 0
	for i, token := range r.tokens[:min(len(leaders), len(r.tokens))] {
		if leaders[i].Token == 0 {
			continue
		}
		if known++; leaders[i].Token != token {
			t.Fatalf("leader %d has token %s, seen was %s", i, token, leaders[i].Token)
		}
	}
	if known < len(r.tokens)*3/4 {
		t.Errorf("of %d leaders only %d were seen with their tokens", len(r.tokens), known)
	}
}
