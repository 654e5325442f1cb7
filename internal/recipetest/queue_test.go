package recipetest

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/queue"
)

func put(ctx context.Context, p *Party, key string) error {
	_, err := queue.New(p.Client, p.Root+"/queue").Put(ctx, []byte(key), queue.Key(key))
	return err
}

// work takes one item and gets it done.
func work(ctx context.Context, p *Party) error {
	it, err := queue.New(p.Client, p.Root+"/queue").Take(ctx)
	if err != nil {
		return err
	}
	leave := p.Enter(Hold{Lock: it.ID, Token: it.Token, Context: it.Context()})
	_ = Pass(it.Context())
	leave()
	return it.Done(ctx)
}

// empty gets done what is left.
func empty(ctx context.Context, p *Party) error {
	q := queue.New(p.Client, p.Root+"/queue")
	for {
		if n, err := q.Len(ctx); n == 0 || err != nil {
			return err
		}
		if err := work(ctx, p); err != nil {
			return err
		}
	}
}

// keys are remembered for an hour.
func remembered(n client.Node) bool { return n.Stat.Kind == client.TTL }

// TestWaitingTakerAtEveryStep: the victim waits at the head of the line; the item
// that comes is not lost with it.
func TestWaitingTakerAtEveryStep(t *testing.T) {
	eachStep(t, Scenario{
		Act: work,
		Behind: func(ctx context.Context, p *Party) error {
			_ = Pass(ctx)
			return errors.Join(put(ctx, p, "one"), put(ctx, p, "two"), work(ctx, p))
		},
		After: empty,
		Left:  remembered,
	})
}

// TestPutterAtEveryStep: with a key a Put may be repeated, and adds one item.
func TestPutterAtEveryStep(t *testing.T) {
	eachStep(t, Scenario{
		Act: func(ctx context.Context, p *Party) error { return put(ctx, p, "only") },
		After: func(ctx context.Context, p *Party) error {
			if err := put(ctx, p, "only"); err != nil {
				return err
			}
			if n, err := queue.New(p.Client, p.Root+"/queue").Len(ctx); n != 1 || err != nil {
				p.Fail("%d items after two Puts with one key, %v", n, err)
			}
			return empty(ctx, p)
		},
		Left: remembered,
	})
}
