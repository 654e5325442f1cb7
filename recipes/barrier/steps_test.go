package barrier

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/internal/recipetest"
)

// pair enters a barrier of two, once by itself and once more if it is asked to,
// so that somebody is there for whoever is alone.
func pair(ctx context.Context, p *recipetest.Party) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, 2)
	for range 2 {
		go func() { results <- through(ctx, p) }()
	}
	if err := <-results; err != nil {
		return err
	}
	stop := time.AfterFunc(10*time.Second, cancel) // one of an odd number stays alone
	defer stop.Stop()
	if err := <-results; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// through enters and leaves.
func through(ctx context.Context, p *recipetest.Party) error {
	leave, err := NewDouble(p.Client, p.Root+"/d", 2).Enter(ctx)
	if err != nil {
		return err
	}
	out := p.Enter(recipetest.Hold{Limit: 2, Context: p.Client.Session().Context()})
	_ = recipetest.Pass(ctx)
	out()
	return leave(ctx)
}

// TestEnterAtEveryStep on a real server: never more than two are inside, whatever
// happens to one, the others get through, and no entry is left.
func TestEnterAtEveryStep(t *testing.T) {
	recipetest.EachStep(t, recipetest.Scenario{Act: through, Before: pair, Behind: pair})
}

// TestWaitAtEveryStep: each waiter goes on when the barrier is lowered, and it can
// be lowered whatever happens to one who raised it.
func TestWaitAtEveryStep(t *testing.T) {
	const lowered = 2 * time.Second
	waiting := func(ctx context.Context, p *recipetest.Party) error {
		b := New(p.Client, p.Root+"/b")
		if err := b.Raise(ctx); err != nil {
			return err
		}
		return b.Wait(ctx)
	}
	recipetest.EachStep(t, recipetest.Scenario{
		Act: waiting, Before: waiting,
		Behind: func(ctx context.Context, p *recipetest.Party) error {
			b := New(p.Client, p.Root+"/b")
			for range 10 { // a raise may come late
				time.Sleep(lowered)
				if err := b.Lower(ctx); err != nil {
					return err
				}
			}
			return nil
		},
	})
}
