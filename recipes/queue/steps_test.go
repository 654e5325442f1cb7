package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/recipetest"
)

// working puts an item and takes one, its own or another's.
func working(ctx context.Context, p *recipetest.Party) error {
	q := New(p.Client, p.Root+"/q", Retention(time.Second))
	if _, err := q.Put(ctx, []byte(p.Name), Key(p.Name), Priority(len(p.Name)%3)); err != nil {
		return err
	}
	it, err := q.Take(ctx)
	if err != nil {
		return err
	}
	leave := p.Enter(recipetest.Hold{Lock: it.ID, Token: it.Token, Context: it.Context()})
	err = recipetest.Pass(it.Context())
	leave()
	if errors.Is(err, ErrLost) {
		return err
	}
	return it.Done(ctx)
}

// drain works until nothing is left.
func drain(ctx context.Context, p *recipetest.Party) error {
	q := New(p.Client, p.Root+"/q", Retention(time.Second))
	for {
		n, err := q.Len(ctx)
		if n == 0 || err != nil {
			return err
		}
		it, err := q.Take(ctx)
		if err != nil {
			return err
		}
		if err := it.Done(ctx); err != nil {
			return err
		}
	}
}

// TestTakeAtEveryStep on a real server: whatever happens to one taker, the others
// get their items, and no claim, place or item is left.
func TestTakeAtEveryStep(t *testing.T) {
	s := recipetest.Contenders(working)
	s.After = drain
	s.Left = func(n client.Node) bool { // the reaper takes it
		return strings.Contains(n.Path, "/keys/") && n.Stat.Kind == client.TTL
	}
	recipetest.EachStep(t, s)
}

// TestReturnAtEveryStep: an item that is given back, now or later, comes out again.
func TestReturnAtEveryStep(t *testing.T) {
	var mu sync.Mutex
	puts := map[string]bool{}
	recipetest.EachStep(t, recipetest.Scenario{
		Act: func(ctx context.Context, p *recipetest.Party) error {
			q := New(p.Client, p.Root+"/q")
			if _, err := q.Put(ctx, []byte("1")); err != nil {
				return err
			}
			mu.Lock()
			puts[p.Root] = true
			mu.Unlock()
			for _, delay := range []time.Duration{0, 100 * time.Millisecond} {
				it, err := q.Take(ctx)
				if err != nil {
					return err
				}
				if err := it.Return(ctx, delay); err != nil {
					return err
				}
			}
			return nil
		},
		After: func(ctx context.Context, p *recipetest.Party) error {
			n, err := New(p.Client, p.Root+"/q").Len(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && (n == 0 && puts[p.Root] || n > 1) {
				p.Fail("%d items are left, one was put: %v", n, puts[p.Root])
			}
			delete(puts, p.Root) // the next fault has the same roots, in a cluster of its own
			return errors.Join(err, drain(ctx, p))
		},
		Left: func(n client.Node) bool { return n.Stat.Kind == client.TTL },
	})
}
