package sim

import (
	"context"
	"strings"
	"testing"

	"github.com/coordd/coord/internal/check"
)

// scheduled makes a run of a plan, which is as long as that needs, and checks that
// what is in the plan has really happened.
func scheduled(t *testing.T, c Config, plan func(Config) []Step) Outcome {
	t.Helper()
	c.Keep = *keepFlag
	c.Plan = []Step{}
	c = c.withDefaults()
	c.Plan = plan(c)
	for _, s := range c.Plan {
		c.Length = max(c.Length, s.At+s.Lasts+c.paces(60))
	}
	out := Must(t, c)
	want := map[Kind]int{}
	for _, s := range c.Plan {
		want[s.Kind]++
	}
	for kind, n := range want {
		if out.Happened[kind] != n {
			t.Errorf("%s happened %d times, want %d", kind, out.Happened[kind], n)
		}
	}
	return out
}

// inARow gives steps so many paces each.
func inARow(c Config, paces float64, steps ...Step) (plan []Step) {
	for i, s := range steps {
		s.At = c.paces(10 + paces*float64(i))
		plan = append(plan, s)
	}
	return plan
}

// errorsOfClients are the calls and sessions that have failed for another reason than
// the patience of their own callers.
func errorsOfClients(h *check.History) (out []string) {
	for _, r := range h.Records() {
		failed := r.Outcome == check.Failed || r.Outcome == check.Unknown
		impatient := strings.Contains(r.Detail, context.DeadlineExceeded.Error()) || strings.Contains(r.Detail, context.Canceled.Error())
		if r.Kind == check.Ended && r.Reason != check.ByClient || r.Kind != check.Ended && failed && !impatient {
			out = append(out, r.String())
		}
	}
	return out
}

// From one server to three, to five, and back to three: a delay at most, for
// everybody, and the first leader leads to the end.
func TestClusterGrowsAndShrinksWithoutAnErrorAtAClient(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole cluster under load, for some seconds")
	}
	t.Parallel()
	out := scheduled(t, Config{Servers: 1, Spares: 4, Steady: true}, func(c Config) []Step {
		return inARow(c, 70, Step{Kind: Grow}, Step{Kind: Grow}, Step{Kind: Shrink, A: 1}, Step{Kind: Grow}, Step{Kind: Shrink, A: 3})
	})
	for _, text := range errorsOfClients(out.History) {
		t.Errorf("an error at a client: %s", text)
	}
	if out.Records < 500 {
		t.Errorf("a load of %d records shows little", out.Records)
	}
}

// Whoever is removed, however it hears of it, who is cut off and who comes back, with
// its disk or without: a healthy leader leads on.
func TestServersThatComeAndGoNeverDeposeAHealthyLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole cluster under load, for some seconds")
	}
	t.Parallel()
	scheduled(t, Config{Servers: 3, Spares: 2, Steady: true}, func(c Config) []Step {
		long := c.paces(30)
		return inARow(c, 120,
			Step{Kind: Remove, A: 0, B: whileRunning, Lasts: c.paces(1)},
			Step{Kind: Remove, A: 1, B: whileCutOff, Lasts: long},
			Step{Kind: Remove, A: 2, B: whileDead, Lasts: long},
			Step{Kind: Isolate, A: 0, Lasts: long}, Step{Kind: CutOneWay, A: 1, B: 0, Lasts: long},
			Step{Kind: CutOneWay, A: 2, B: 1, Lasts: long}, Step{Kind: Cut, A: 0, B: 1, Lasts: long}, Step{Kind: Freeze, A: 1, Lasts: long},
			Step{Kind: Wipe, A: 0, Lasts: c.paces(1)},
			Step{Kind: Move, A: 1, B: 0, Lasts: c.paces(1)}, Step{Kind: Move, A: 2, B: 1, Lasts: c.paces(1)},
			Step{Kind: Replace, A: 0, Lasts: c.paces(1)}, Step{Kind: Kill, A: 1, Lasts: long}, Step{Kind: Grow},
			Step{Kind: Shrink, A: 1, B: whileCutOff, Lasts: long})
	})
}

// Observers are killed, cut off, wiped, removed, moved, made voters and observers
// again, while clients know no other servers.
func TestObserversServeThroughWhatHappensToThem(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole cluster under load, for some seconds")
	}
	t.Parallel()
	out := scheduled(t, Config{Servers: 3, Observers: 2, Clients: 6, Steady: true}, func(c Config) []Step {
		const o1, o2 = 3, 4
		long := c.paces(20)
		return inARow(c, 80,
			Step{Kind: Kill, A: o1, Lasts: long}, Step{Kind: Isolate, A: o2, Lasts: long}, Step{Kind: Freeze, A: o1, Lasts: long},
			Step{Kind: CutOneWay, A: o2, B: 0, Lasts: long}, Step{Kind: Wipe, A: o1}, Step{Kind: Remove, A: o2, B: whileCutOff, Lasts: long},
			Step{Kind: Move, A: o1, B: 1}, Step{Kind: Turn, A: o2}, Step{Kind: Kill, A: o2, Lasts: long}, Step{Kind: Turn, A: o2})
	})
	if out.AtObservers < 100 {
		t.Errorf("observers have answered %d times: this shows little", out.AtObservers)
	}
}

// With one of three down, the removal of another one is refused, whoever leads.
func TestRemovalThatWouldLoseTheQuorumIsRefusedUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a whole cluster under load, for some seconds")
	}
	t.Parallel()
	c := Config{Keep: *keepFlag, Servers: 3, Plan: []Step{}}.withDefaults()
	for i := range 6 {
		at := c.paces(float64(10 + 60*i))
		c.Plan = append(c.Plan,
			Step{At: at, Kind: Kill, A: i, Lasts: c.paces(40)},
			Step{At: at + c.paces(15), Kind: Remove, A: i + 1, B: whileRunning},
			Step{At: at + c.paces(25), Kind: Remove, A: i + 2, B: whileRunning})
	}
	c.Length = c.paces(400)
	out := Must(t, c)
	if out.Happened[Kill] != 6 || out.Happened[Remove] != 0 {
		t.Errorf("%d kills, %d removals", out.Happened[Kill], out.Happened[Remove])
	}
}
