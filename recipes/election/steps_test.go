package election_test

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coord/internal/recipetest"
	"github.com/coordd/coord/recipes/election"
)

// leading campaigns, leads for a while, proclaims, and resigns.
func leading(ctx context.Context, p *recipetest.Party) error {
	l, err := election.New(p.Client, p.Root).Campaign(ctx, []byte(p.Name))
	if err != nil {
		return err
	}
	leave := p.Enter(recipetest.Hold{Token: l.FencingToken(), Context: l.Context()})
	err = l.Proclaim(ctx, []byte(p.Name+" leads"))
	_ = recipetest.Pass(l.Context())
	leave()
	return errors.Join(err, l.Resign(ctx))
}

// TestRunLeadsInTheEnd, whatever step of it lost its session.
func TestRunLeadsInTheEnd(t *testing.T) {
	done := errors.New("done")
	running := func(ctx context.Context, p *recipetest.Party) error {
		inside := false
		err := election.New(p.Client, p.Root).Run(ctx, []byte(p.Name), func(ctx context.Context, l *election.Leadership) error {
			if inside {
				p.Fail("the function runs twice at a time")
			}
			inside = true
			defer func() { inside = false }()
			leave := p.Enter(recipetest.Hold{Token: l.FencingToken(), Context: l.Context()})
			_ = recipetest.Pass(ctx)
			leave()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return done
		})
		if errors.Is(err, done) {
			return nil
		}
		return err
	}
	s := recipetest.Contenders(running)
	s.Faults = []recipetest.Fault{recipetest.Cut, recipetest.Expire, recipetest.Pause}
	s.Check = func(t testing.TB, o recipetest.Outcome) {
		if o.Err != nil {
			t.Errorf("%s at step %d: %v", o.Fault, o.Step, o.Err)
		}
	}
	recipetest.EachStep(t, s)
}

// TestObserveAtEveryStep: the observer sees each leader once, in the order of the
// tokens, with a gap before and after, over connections that break anywhere.
func TestObserveAtEveryStep(t *testing.T) {
	recipetest.EachStep(t, recipetest.Scenario{
		Act: func(ctx context.Context, p *recipetest.Party) error {
			var last election.Leader
			began := false
			for l, err := range election.New(p.Client, p.Root).Observe(ctx) {
				if err != nil {
					return err
				}
				switch {
				case l.Missed:
					p.Fail("missed changes before %+v", l)
				case l.None() && began && last.None():
					p.Fail("two gaps")
				case !l.None() && !last.None() && (l.Token != last.Token || string(l.Value) == string(last.Value)):
					p.Fail("%+v after %+v", l, last)
				}
				began, last = true, l
				if string(l.Value) == "behind leads" {
					return nil
				}
			}
			return ctx.Err()
		},
		Before: leading, Behind: leading, After: leading,
		Faults: []recipetest.Fault{recipetest.Lose, recipetest.Blink, recipetest.Restart},
	})
}
