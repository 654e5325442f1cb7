package recipetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/znode"
)

// rootPrefix is how the roots of the runs begin.
const rootPrefix = "/step-"

// maxSteps ends a scenario that never comes to its end.
const maxSteps = 400

// EachStep runs the scenario once for each fault and step, until a run has no
// such step. With -short, or under the race detector, it tries some of the steps
// only.
func EachStep(t *testing.T, s Scenario) {
	t.Helper()
	faults := s.Faults
	if faults == nil {
		faults = everyFault
	}
	chance := seed.New(t)
	for _, f := range faults {
		t.Run(string(f), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, p := range s.everyStep(t, f, chance, stride()) {
					t.Errorf("%s (COORD_SEED=%d)", p, chance)
				}
			})
		})
	}
}

// stride is how far it is from one step that is tried to the next.
func stride() int {
	switch {
	case testing.Short() && slow: // without the race detector each step is tried
		return 12
	case testing.Short():
		return 6
	case slow:
		return 5
	default:
		return 1
	}
}

// everyStep lets one fault happen at each step in turn, or at one in so many. It
// returns the problems of the first run that has any.
func (s *Scenario) everyStep(t *testing.T, f Fault, seed uint64, stride int) (problems []string) {
	c := coordtest.StartCluster(t, max(s.Servers, 1), coordtest.SessionTimeout(Timeout), coordtest.Latency(time.Millisecond))
	eye := c.Dial(client.WithoutSession())
	steps := 0
	for step := 1; step <= maxSteps; step += stride {
		r := &run{scenario: s, cluster: c, eye: eye, root: fmt.Sprint(rootPrefix, step)}
		r.rng = rand.New(rand.NewPCG(seed, uint64(step)))
		r.strike = &strike{fault: f, step: int64(step), cluster: c}
		out := r.whole(t)
		for _, p := range r.problems {
			problems = append(problems, fmt.Sprintf("%s at step %d: %s", f, step, p))
		}
		if f == None || !out.Struck || len(problems) > 0 {
			break
		}
		steps = step
	}
	switch {
	case len(problems) > 0:
	case f != None && steps == 0:
		problems = []string{"the scenario has no step: it sends nothing"}
	case (f == Cancel || f == Kill) && !testing.Short(): // these leave something half done
		problems = s.foldersLeft(t, eye)
	}
	return problems
}

// whole does one run and looks at what it has left.
func (r *run) whole(t *testing.T) Outcome {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := r.do(ctx)
	left, err := r.scenario.orphans(ctx, r.eye, r.root, false)
	if err != nil {
		r.fail("look at what is left: %v", err)
	}
	for _, path := range left {
		r.fail("left behind: %s", path)
	}
	if r.scenario.Check != nil {
		out.Client = r.eye
		r.scenario.Check(t, out)
	}
	r.strike.end()
	r.closeAll()
	return out
}

// foldersLeft are the folders that do not go although nobody uses them.
func (s *Scenario) foldersLeft(t *testing.T, eye *client.Client) (problems []string) {
	time.Sleep(2*znode.ContainerGrace + time.Minute)
	left, err := s.orphans(t.Context(), eye, "/", true)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, path := range left {
		if strings.HasPrefix(path, rootPrefix) {
			problems = append(problems, "still there long after: "+path)
		}
	}
	return problems
}
