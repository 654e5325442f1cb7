package recipetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
)

// run is one run of a scenario.
type run struct {
	scenario *Scenario
	cluster  *coordtest.Cluster
	eye      *client.Client // without a session; nothing happens to it
	strike   *strike
	watch    *observer
	root     string
	rng      *rand.Rand
	victim   *Party
	parties  []*Party
	act      chan error // result of Act
	rivals   []*rival
	problems []string
}

// rival is a party that must succeed.
type rival struct {
	name string
	done chan error
}

func (r *run) fail(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

func (r *run) party(name string, opts ...client.Option) *Party {
	cl := r.cluster.Dial(append(opts, client.WithSessionName(name))...)
	p := &Party{Name: name, Client: cl, Root: r.root, watch: r.watch}
	r.parties = append(r.parties, p)
	return p
}

// closeAll ends the clients of the run.
func (r *run) closeAll() {
	var all sync.WaitGroup
	for _, p := range r.parties {
		all.Go(func() { _ = p.Client.Close() }) // its session may have expired
	}
	all.Wait()
}

// do runs the scenario.
func (r *run) do(ctx context.Context) Outcome {
	var p probe
	r.watch = newObserver()
	r.victim = r.party(victim, p.option())
	actCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.strike.victim, r.strike.cancel, r.strike.watch = r.victim.Client, cancel, r.watch
	p.strike.Store(r.strike)

	r.enter(ctx, "before", r.scenario.Before)
	r.strike.armed.Store(true)
	r.act = make(chan error, 1)
	go func() { r.act <- r.scenario.Act(actCtx, r.victim) }()
	r.enter(ctx, "behind", r.scenario.Behind)
	out := Outcome{Fault: r.strike.fault, Step: int(r.strike.step), Root: r.root}
	out.Err = r.await("Act", r.act)
	r.strike.armed.Store(false)
	out.Struck = r.strike.struck()
	if out.Err != nil && (!out.Struck || !r.strike.fault.mayFail()) {
		r.fail("Act returned an error for nothing: %v", out.Err)
	}
	for _, v := range r.rivals {
		if err := r.await(v.name, v.done); err != nil {
			r.fail("%s: %v", v.name, err)
		}
	}
	r.after(ctx)
	r.problems = append(r.problems, r.watch.found()...)
	return out
}

// enter starts a rival and gives it time to get somewhere.
func (r *run) enter(ctx context.Context, name string, f func(context.Context, *Party) error) {
	if f == nil {
		return
	}
	if name == "behind" {
		r.pause(20 * time.Millisecond)
	}
	v := &rival{name, make(chan error, 1)}
	p := r.party(name)
	go func() { v.done <- f(ctx, p) }()
	r.rivals = append(r.rivals, v)
	if name == "before" {
		r.pause(20 * time.Millisecond)
	}
}

// after lets one more have its turn when everybody has left and the victim's
// session has expired, if it was to.
func (r *run) after(ctx context.Context) {
	time.Sleep(r.strike.fault.lasting())
	if r.scenario.After == nil {
		return
	}
	done := make(chan error, 1)
	p := r.party("after")
	began := time.Now()
	go func() { done <- r.scenario.After(ctx, p) }()
	if err := r.await("after", done); err != nil {
		r.fail("after: %v", err)
	}
	if took := time.Since(began); took > Timeout/2 {
		r.fail("after: it took %s although nobody was there", took)
	}
}

// pause waits for about d.
func (r *run) pause(d time.Duration) {
	time.Sleep(d/2 + time.Duration(r.rng.Int64N(int64(d))))
}

func (r *run) limit() time.Duration {
	if r.scenario.Limit > 0 {
		return r.scenario.Limit
	}
	return time.Minute
}

// await waits for the result of a part.
func (r *run) await(name string, done <-chan error) error {
	t := time.NewTimer(r.limit())
	defer t.Stop()
	select {
	case err := <-done:
		return err
	case <-t.C:
		return fmt.Errorf("%s hangs: it has not ended after %s", name, r.limit())
	}
}
