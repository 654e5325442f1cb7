package recipetest

import (
	"context"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// Scenario is the use of one recipe by several clients, of which one, the victim,
// meets a fault. A nil function is left out.
type Scenario struct {
	// Act is what the victim does. It ends when ctx does, or when what it uses
	// returns an error, and returns that; without a fault it must return nil.
	Act func(ctx context.Context, p *Party) error
	// Before is what a rival does that comes first, Behind one that comes after
	// the victim, and After one that comes when all have ended. They must return
	// nil, whatever becomes of the victim.
	Before, Behind, After func(ctx context.Context, p *Party) error
	// Left tells of a znode that is there at the end whether it may be. nil: none
	// may. Containers may always be; they go when nobody uses them, which is
	// checked at the end of EachStep.
	Left func(n client.Node) bool
	// Check looks at the outcome of a run.
	Check func(t testing.TB, o Outcome)
	// Faults are those to try; nil is all.
	Faults []Fault
	// Servers is the size of the cluster; 1.
	Servers int
	// Limit bounds each part of a run, in fake time; a minute. What takes longer
	// hangs.
	Limit time.Duration
}

// Contenders is the scenario of several clients that all do the same.
func Contenders(act func(ctx context.Context, p *Party) error) Scenario {
	return Scenario{Act: act, Before: act, Behind: act, After: act}
}

// Party is one client of a run.
type Party struct {
	// Name is "victim", "before", "behind" or "after".
	Name   string
	Client *client.Client
	// Root is a path of this run's own. It does not exist at the beginning.
	Root string

	watch *observer
}

// Outcome is what has become of a run.
type Outcome struct {
	Fault Fault
	Step  int
	// Struck says that the run has come to that step.
	Struck bool
	// Err is what Act has returned.
	Err error
	// Client is one that nothing has happened to, and Root the run's path.
	Client *client.Client
	Root   string
}

// Timeout is the timeout of the sessions in a run.
const Timeout = 4 * time.Second

// HoldTime is how long a party may well hold what it has got, so that the others
// have to wait for it.
const HoldTime = 200 * time.Millisecond

// Pass holds for HoldTime, or until ctx ends, and returns why it ended.
func Pass(ctx context.Context) error {
	t := time.NewTimer(HoldTime)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
