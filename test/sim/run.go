package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/internal/check"
)

// Outcome is what a run has come to.
type Outcome struct {
	// Wrong says what was broken, at most 20 of it; nothing is what should be.
	Wrong []string
	// Violations are those of Wrong that the history shows.
	Violations []check.Violation
	// Simulated is the time that has passed in the cluster.
	Simulated time.Duration
	// Records is how long the history is.
	Records int
	// History is what the clients have done and seen.
	History *check.History
	// AtObservers is how many reads were answered, and events told, to clients that
	// know only observers.
	AtObservers int
	// Happened counts the faults that were really done.
	Happened map[Kind]int
	// Kept is the directory with history, logs and seed; "" if nothing is wrong.
	Kept string
}

// Run runs a cluster through a schedule of faults under load, heals everything,
// and judges. It does not fail the test for what is wrong. It must not be called
// in a bubble, and makes one of its own: a goroutine that is left at the end is a
// panic.
func Run(t *testing.T, cfg Config) (out Outcome) {
	t.Helper()
	cfg = cfg.withDefaults()
	name := t.Name() // of the test, not of the bubble
	var w *world
	defer func() {
		p := recover()
		if w == nil {
			panic(p)
		}
		if p != nil {
			w.wrong("panic: %v", p)
		}
		w.assess(&out) // the search for an order needs a clock that goes on
		if len(out.Wrong) > 0 {
			t.Logf("seed %d: history, drawings and logs are in %s; to repeat it:\n%s", cfg.Seed, out.Kept, w.again)
		}
		if p != nil {
			t.Logf("seed %d: %s", cfg.Seed, strings.Join(out.Wrong, "\n"))
			panic(p) // the test binary prints what is left over
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, cfg)
		w.again = again(name, cfg)
		w.run()
		out.Simulated = time.Since(w.began)
	})
	return out
}

// run is one run from the first server's start to the last one's end.
func (w *world) run() {
	defer w.end()
	if !w.start() {
		return
	}
	var riders, working sync.WaitGroup
	for i := range w.cfg.Clients {
		w.riders = append(w.riders, w.newRider(i))
	}
	for _, r := range w.riders {
		working.Add(1)
		r.atRest = sync.OnceFunc(working.Done)
		riders.Go(r.run)
	}
	if w.cfg.Beside != nil {
		riders.Go(func() { w.cfg.Beside(w) })
	}
	w.trouble()
	w.settle()
	for _, r := range w.riders {
		r.stopping.Store(true)
	}
	w.awaitRiders(&working)
	w.settleWatches()
	close(w.rested)
	w.awaitRiders(&riders)
	w.judge()
}

// settleWatches gives the watches of all riders the time to tell of the last write.
// One that has fallen silent for good is not noticed otherwise.
func (w *world) settleWatches() {
	c, err := w.dial("last", w.cfg.sessionTimeout())
	if err != nil {
		w.wrong("when all is at rest: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(100))
	defer cancel()
	z, err := w.history.Client("last", c).Sync(ctx)
	if err != nil {
		w.wrong("when all is at rest: %v", err)
	}
	_ = c.Close()
	time.Sleep(w.cfg.paces(30))
	w.history.Settled(z)
}

// settle waits until the cluster has recovered and serves everybody.
func (w *world) settle() {
	if !w.until(300, "all is healed, and all servers have a vote and serve", w.whole) {
		return
	}
	before := make([]int64, len(w.riders))
	for i, r := range w.riders {
		before[i] = r.answers.Load()
	}
	w.until(300, "each client has answers", func() error {
		for i, r := range w.riders {
			if r.answers.Load() == before[i] {
				return fmt.Errorf("%s has none, it is at: %s", r.hostName(), r.did())
			}
		}
		return nil
	})
}

// awaitRiders waits until all riders have come to rest, or to their end, within
// reason.
func (w *world) awaitRiders(riders *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { riders.Wait(); close(done) }()
	t := time.NewTimer(w.cfg.paces(600))
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		for _, r := range w.riders {
			w.wrong("%s does not end, it is at: %s", r.hostName(), r.did())
		}
	}
}

// judge compares the servers, reads what is left, and looks at the history.
func (w *world) judge() {
	w.until(100, "all servers have come to the same state", w.agreed)
	c, err := w.dial("judge", w.cfg.sessionTimeout())
	if err != nil {
		w.wrong("when all is over: %v", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(300))
	defer cancel()
	cl := w.history.Client("judge", c)
	if err := cl.Final(ctx, "/"); err != nil {
		w.wrong("what is left cannot be read: %v", err)
	}
	_ = cl.Close()
	w.history.Wait()
	if w.until(100, "all servers have come to the same state", w.agreed) {
		for _, h := range w.present() {
			digest, _, _ := h.process.server.Node().Machine().Digest()
			w.history.Digest(h.name, fmt.Sprintf("%016x", digest))
		}
	}
}

// end stops all servers.
func (w *world) end() {
	var all sync.WaitGroup
	for _, h := range w.hosts {
		all.Go(func() {
			if err := h.stop(); err != nil {
				w.wrong("%s did not stop in order: %v", h.name, err)
			}
			if h.process != nil {
				<-h.process.done
			}
		})
	}
	all.Wait()
}

// assess looks at the history, and keeps what is needed to look into a failure.
func (w *world) assess(out *Outcome) {
	out.Records, out.Happened, out.History = w.history.Len(), w.happened, w.history
	out.AtObservers = w.atObservers()
	out.Violations = check.Check(w.history, check.Options{Bound: w.cfg.paces(boundPaces)})
	for _, v := range out.Violations {
		w.wrong("%v", v)
	}
	if out.Wrong = w.failures; len(out.Wrong) > 0 {
		out.Kept = w.keep(out)
	}
}

// atObservers counts what clients that know only observers have seen.
func (w *world) atObservers() (n int) {
	for _, r := range w.history.Records() {
		var rider, life int
		if _, err := fmt.Sscanf(r.Client, "c%d-%d", &rider, &life); err != nil || !w.cfg.onlyObservers(rider) {
			continue
		}
		if r.Kind == check.Event || (r.Kind == check.Get || r.Kind == check.Children) && r.Outcome == check.Done {
			n++
		}
	}
	return n
}

// boundPaces is how much later than at its deadline the end of a session may take
// effect: most of that is the time without a leader, for which several faults in
// a row can be the reason.
const boundPaces = 400

// keep saves what a failed run leaves. It returns the directory, or why there is
// none.
func (w *world) keep(out *Outcome) string {
	base := w.cfg.Keep
	if base == "" {
		base = os.TempDir()
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err.Error()
	}
	dir, err := os.MkdirTemp(base, fmt.Sprintf("coord-sim-%d-", w.cfg.Seed)) // many tests have the same seed
	if err != nil {
		return err.Error()
	}
	notes := []string{
		fmt.Sprintf("seed %d", w.cfg.Seed),
		fmt.Sprintf("%d servers, %d more to join, %d observers, %d clients, %s at a pace of %s", w.cfg.Servers, w.cfg.Spares,
			w.cfg.Observers, w.cfg.Clients, w.cfg.Length, w.cfg.Pace),
		"to repeat it: " + w.again,
	}
	if err := check.Save(dir, w.history, out.Violations, append(notes, out.Wrong...)...); err != nil {
		return err.Error()
	}
	for name, content := range map[string][]byte{"plan.txt": []byte(describe(w.cfg.Plan)), "log.txt": w.journal.bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err.Error()
		}
	}
	return dir
}

// again is the command that makes a run of a test once more. Random runs find their
// configuration by the seed; the others have their own.
func again(test string, cfg Config) string {
	parts := strings.Split(test, "/")
	chance, runs := "", ""
	if parts[0] == randomTest {
		parts, chance, runs = parts[:1], fmt.Sprintf("COORD_SEED=%d ", cfg.Seed), " -runs 1"
	}
	if testing.Short() {
		runs += " -short"
	}
	return fmt.Sprintf("%sgo test ./test/sim -count=1 -timeout 0 -v -run '^%s$'%s", chance, strings.ReplaceAll(strings.Join(parts, "$/^"), "'", "."), runs)
}

// randomTest is the test that draws seeds.
const randomTest = "TestRandomSchedules"

// Must runs a cluster and fails the test if anything is wrong.
func Must(t *testing.T, cfg Config) Outcome {
	t.Helper()
	out := Run(t, cfg)
	for _, text := range out.Wrong {
		t.Errorf("seed %d: %s", cfg.Seed, text)
	}
	return out
}
