package recipetest

import (
	"context"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/once"
)

// TestOnceAtEveryStep: three hosts do one period. No two are at it at the same
// time, and there is one marker, of one who came to the end.
func TestOnceAtEveryStep(t *testing.T) {
	do := func(ctx context.Context, p *Party) error {
		done, err := once.New(p.Client, p.Root+"/job").Do(ctx, "2026-01-31", func(ctx context.Context, turn once.Turn) error {
			leave := p.Enter(Hold{Token: turn.Token, Context: ctx})
			defer leave()
			return Pass(ctx)
		})
		if p.Name == "after" && err == nil && !done.Repeated {
			p.Fail("the period was done again")
		}
		return err
	}
	eachStep(t, Scenario{
		Act: do, Behind: do, After: do,
		Left: func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Check: func(t testing.TB, o Outcome) {
			list, err := once.New(o.Client, o.Root+"/job").History(t.Context())
			if err != nil || len(list) != 1 {
				t.Errorf("%s at step %d: markers %v, %v", o.Fault, o.Step, list, err)
			}
		},
	})
}

// TestPeriodicJobAtEveryStep: two hosts run a schedule; each period has its marker,
// also the one that was due when the host was lost that was at it.
func TestPeriodicJobAtEveryStep(t *testing.T) {
	const period = 6 * Timeout
	run := func(ctx context.Context, p *Party) error {
		ctx, cancel := context.WithTimeout(ctx, 2*period)
		defer cancel()
		enough := func(d once.Done, err error) {
			if err == nil && d.Period != first(ctx, p) {
				cancel()
			}
		}
		job := once.New(p.Client, p.Root+"/job", once.OnResult(enough))
		err := job.Run(ctx, once.Every(period), func(ctx context.Context, turn once.Turn) error {
			leave := p.Enter(Hold{Token: turn.Token, Context: ctx})
			defer leave()
			return Pass(ctx)
		})
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	eachStep(t, Scenario{
		Act: run, Behind: run,
		Left:   func(n client.Node) bool { return n.Stat.Kind == client.Persistent },
		Faults: []Fault{Lose, Expire, Kill, Pause},
		Check: func(t testing.TB, o Outcome) {
			list, err := once.New(o.Client, o.Root+"/job").History(t.Context())
			if err != nil || len(list) < 2 {
				t.Errorf("%s at step %d: markers %v, %v", o.Fault, o.Step, list, err)
			}
		},
	})
}

// first is the oldest period that is done.
func first(ctx context.Context, p *Party) string {
	list, err := once.New(p.Client, p.Root+"/job").History(ctx)
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Period
}
