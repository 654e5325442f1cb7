package recipetest

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coord/recipes/barrier"
	"github.com/coordd/coord/recipes/election"
)

func campaign(ctx context.Context, p *Party) error {
	l, err := election.New(p.Client, p.Root+"/election").Campaign(ctx, []byte(p.Name))
	if err != nil {
		return err
	}
	leave := p.Enter(Hold{Token: l.FencingToken(), Context: l.Context()})
	said := l.Proclaim(ctx, []byte("second thoughts"))
	_ = Pass(l.Context())
	leave()
	if err := l.Resign(ctx); err != nil {
		return err
	}
	return said
}

func TestElectionAtEveryStep(t *testing.T) { eachStep(t, Contenders(campaign)) }

// TestRaiserAtEveryStep: the one who raises and lowers a barrier may vanish with
// the barrier up. Nobody waits for it here.
func TestRaiserAtEveryStep(t *testing.T) {
	eachStep(t, Scenario{
		Act: func(ctx context.Context, p *Party) error {
			b := barrier.New(p.Client, p.Root+"/barrier")
			if err := b.Raise(ctx); err != nil {
				return err
			}
			return b.Lower(ctx)
		},
		After: func(ctx context.Context, p *Party) error {
			b := barrier.New(p.Client, p.Root+"/barrier")
			return errors.Join(b.Lower(ctx), b.Wait(ctx))
		},
	})
}
