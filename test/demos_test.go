package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/internal/pgtest"
)

// demoCase is one run of a demonstration and what must come of it.
type demoCase struct {
	args string
	// anomaly is what the run must show and fail with; "" for a promise that is
	// kept. No other may be named.
	anomaly string
	says    []string // parts of its timeline, in this order
}

// anomalies are all that the demonstrations know.
var anomalies = []string{
	"OLD OVER NEW", "NOT TOLD", "DUPLICATE WORK", "LOGICAL REPEAT", "NEVER RUN", "MONEY LOST",
	"DOUBLE OWNER", "GRANT LOST", "FOREIGN RELEASE", "THUNDERING HERD", "UNEXPECTED OUTCOME",
}

// kept are the demonstrations with all their layers.
var kept = []demoCase{
	{args: "paused-worker", says: []string{"A         is stopped", "B         writes", "REFUSED, fence: stale token", "its context was cancelled before", "the row is by B"}},
	{args: "wallet", says: []string{
		" 1/10  asks node 1", " 2/10  takes the lock for 10s: token 12 (really ", " 3/10  begins its work of 15s", " 4/10  the lease of 10s is over",
		" 5/10  has no answer and asks node 2", " 6/10  takes the lock: token 13 (really ", " 7/10  moves the money in one transaction: Success",
		" 8/10  releases the lock and answers", " 9/10  goes on", "10/10  moves the money: AlreadyProcessed, under token 13",
		"without a record of operations: Rejected (stale token): the row has seen token 13", "takes token 14", "AlreadyProcessed", "sum before = 300 = sum after",
	}},
	{args: "wallet --all-outcomes", says: []string{
		"the holder pays", "Success", "AlreadyProcessed", "Rejected (stale token)", "InsufficientBalance", "older token of its own lock", "Success",
		"nothing was taken from alice", "sum before = 300 = sum after",
	}},
	{args: "double-click", says: []string{
		"click-1: move 10", "Success", "AlreadyProcessed", "click-2: waits for node 1's transaction", "node 2    click-2: AlreadyProcessed",
		"node 1 fails before its commit", "node 2    click-3: Success",
	}},
	{args: "nightly-job", says: []string{
		"is killed (SIGKILL) in the middle of its run", "has written the invoices", "is killed (SIGKILL) after its commit", "AlreadyProcessed",
		"2026-01-01: runs: 1, applied by host", "2026-01-02: runs: 1, applied by host", "2026-01-03: runs: 1, applied by host",
	}},
	{args: "late-release", says: []string{"releases: not owner (you held ", "releases again: not owner (you held ", "no such node", "B's entry is still there"}},
	{args: "herd", says: []string{": 1 of 100 waiters woken", ": 1 of 91 waiters woken"}},
	{args: "layers", says: []string{"does not get the lock", "REFUSED", "AlreadyProcessed", "the work was done by 1, the report is by B, payments made: 1"}},
}

// damaged are the demonstrations with a layer left out.
var damaged = []demoCase{
	{"paused-worker --fencing=off", "OLD OVER NEW", []string{"fencing is OFF", "the row is by A", "CORRUPTED: A's late write replaced B's"}},
	{"wallet --fencing=off", "OLD OVER NEW", []string{"10/10  moves the money: AlreadyProcessed", "without a record of operations: Success"}},
	{"wallet --idempotency=off", "LOGICAL REPEAT", []string{"10/10  moves the money: Rejected (stale token)", "takes token 14", "Success"}},
	{"wallet --all-outcomes --fencing=off", "OLD OVER NEW", []string{"the former holder pays", "Success"}},
	{"wallet --all-outcomes --idempotency=off", "LOGICAL REPEAT", []string{"the same operation again", "Success"}},
	{"wallet --credit-check=off", "MONEY LOST", []string{"Success", "the sum is 290"}},
	{"double-click --idempotency=off", "LOGICAL REPEAT", []string{"the fence could not help", "payments asked for: 1, paid: 2"}},
	{"nightly-job --once=off", "LOGICAL REPEAT", []string{"it knows of nobody else", "2026-01-01: runs: 5"}},
	{"nightly-job --idempotency=off", "LOGICAL REPEAT", []string{"is killed (SIGKILL) after its commit", "2026-01-02: runs: 2"}},
	{"failover --quorum=off", "DOUBLE OWNER", []string{"has never heard of A", "B         gets the lock, too", "1 times two owners at once"}},
	{"late-release --owner-check=off", "FOREIGN RELEASE", []string{"without a question whose it is", "the lock is free, while B works"}},
	{"herd --predecessor=off --waiters 40", "THUNDERING HERD", []string{": 40 of 40 waiters woken", ": 31 of 31 waiters woken"}},
	{"layers --without=lock", "DUPLICATE WORK", []string{"begins the work, too", "REFUSED", "AlreadyProcessed"}},
	{"layers --without=fence", "OLD OVER NEW", []string{"does not get the lock", "AlreadyProcessed", "the report is by A"}},
	{"layers --without=idempotency", "LOGICAL REPEAT", []string{"does not get the lock", "REFUSED", "payments made: 2"}},
}

// TestDemonstrationsKeepTheirPromises runs each demonstration as a visitor does,
// against a cluster of real servers.
func TestDemonstrationsKeepTheirPromises(t *testing.T) {
	skipIfShort(t)
	pgtest.Get(t, pgtest.Options{}) // skips visibly where there is none
	c := startProcesses(t, 3, "")
	runDemos(t, c, kept)
}

// TestDemonstrationsShowTheDamageWithoutTheirLayer is the other half of it: a
// demonstration that cannot fail proves nothing.
func TestDemonstrationsShowTheDamageWithoutTheirLayer(t *testing.T) {
	skipIfShort(t)
	pgtest.Get(t, pgtest.Options{})
	c := startProcesses(t, 3, "")
	runDemos(t, c, damaged)
}

// TestDemonstrationOfFailoverKillsItsOwnServers leaves the cluster at the
// endpoints alone and starts one of its own.
func TestDemonstrationOfFailoverKillsItsOwnServers(t *testing.T) {
	skipIfShort(t)
	pgtest.Get(t, pgtest.Options{})
	program(t, "coordd") // beside coordctl
	c := startProcesses(t, 3, "")
	runDemos(t, c, []demoCase{{args: "failover --rounds 4", says: []string{
		"three servers are ready at", "the leader, is killed (SIGKILL)", "is refused by the new leader: held by",
		"4 leaders killed, 0 grants lost, 0 times two owners at once",
	}}})
	for _, p := range c.nodes {
		if !p.running() {
			t.Errorf("%s was killed, which is none of the demonstration's servers", p.name)
		}
	}
}

// TestDemonstrationsPassWhileServersAreKilled kills the leader, over and over,
// under demonstrations that do not know of it.
func TestDemonstrationsPassWhileServersAreKilled(t *testing.T) {
	skipIfShort(t)
	pgtest.Get(t, pgtest.Options{})
	c := startProcesses(t, 3, "")
	program(t, "coordctl")
	done := make(chan struct{})
	var results []demoResult
	go func() {
		defer close(done)
		results = startDemos(t, c, kept)
	}()
	kills := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-time.After(time.Second):
			lead := c.leader()
			lead.kill()
			kills++
			time.Sleep(500 * time.Millisecond)
			lead.start()
			c.waitReady(30 * time.Second)
		}
	}
	t.Logf("%d leaders killed", kills)
	if kills < 3 {
		t.Errorf("only %d leaders were killed meanwhile", kills)
	}
	for _, r := range results {
		t.Run(r.args, func(t *testing.T) { r.check(t, false) })
	}
}

// demosAtOnce is how many run at the same time: they wait most of the time.
const demosAtOnce = 6

// demoLimit is more than a demonstration allows itself.
const demoLimit = 150 * time.Second

type demoResult struct {
	demoCase
	out  string
	code int
	err  error // it could not be run
}

// runDemos runs all and checks each.
func runDemos(t *testing.T, c *processes, cases []demoCase) {
	t.Helper()
	program(t, "coordctl")
	for _, r := range startDemos(t, c, cases) {
		t.Run(r.args, func(t *testing.T) { r.check(t, true) })
	}
}

// startDemos runs some at once and returns when all have ended. It may be called
// from any goroutine once coordctl is built.
func startDemos(t *testing.T, c *processes, cases []demoCase) []demoResult {
	coordctl := program(t, "coordctl")
	results := make([]demoResult, len(cases))
	slots := make(chan struct{}, demosAtOnce)
	config := filepath.Join(t.TempDir(), "contexts.yaml")
	var wg sync.WaitGroup
	for i, d := range cases {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i] = d.run(coordctl, c.target(), config)
		})
	}
	wg.Wait()
	return results
}

func (d demoCase) run(coordctl, target, config string) demoResult {
	ctx, cancel := context.WithTimeout(context.Background(), demoLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, coordctl, append([]string{"-e", target, "demo"}, strings.Fields(d.args)...)...)
	cmd.Env = append(os.Environ(), "COORDCTL_CONFIG="+config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := demoResult{demoCase: d, out: out.String(), code: cmd.ProcessState.ExitCode()}
	if err != nil && !errors.As(err, new(*exec.ExitError)) || ctx.Err() != nil {
		r.err = fmt.Errorf("%w %w", err, ctx.Err())
	}
	return r
}

// check compares a run with what must come of it. The words in between may
// differ where servers are killed meanwhile.
func (r *demoResult) check(t *testing.T, words bool) {
	t.Helper()
	want := 0
	if r.anomaly != "" {
		want = 1
	}
	if r.err != nil || r.code != want {
		t.Errorf("exit code %d, want %d (%v)", r.code, want, r.err)
	}
	for _, a := range anomalies {
		if has := strings.Contains(r.out, a+": "); has != (a == r.anomaly) {
			t.Errorf("names %q: %t", a, has)
		}
	}
	rest := r.out
	for _, part := range r.says {
		_, after, found := strings.Cut(rest, part)
		if !found && words {
			t.Errorf("does not say %q, or not in its place", part)
			continue
		}
		if found {
			rest = after
		}
	}
	if t.Failed() {
		t.Logf("coordctl demo %s:\n%s", r.args, r.out)
	}
}
