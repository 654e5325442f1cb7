package barrier

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/internal/recipetest"
)

// partners makes pairs with whoever is alone, until the victim has ended.
type partners struct {
	mu    sync.Mutex
	ended map[string]bool // by cluster and root
}

func key(p *recipetest.Party) string { return p.Client.ClusterID() + p.Root }

func (s *partners) act(ctx context.Context, p *recipetest.Party) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended[key(p)] = true
	}()
	return through(ctx, p)
}

func (s *partners) over(p *recipetest.Party) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[key(p)]
}

// join enters once, and again as long as the victim may need somebody.
func (s *partners) join(ctx context.Context, p *recipetest.Party) error {
	for ended := false; !ended; {
		ended = s.over(p)
		limit, cancel := context.WithTimeout(ctx, time.Second)
		err := through(limit, p)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
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
// happens to one, who needs a partner finds one, and no entry is left.
func TestEnterAtEveryStep(t *testing.T) {
	s := &partners{ended: map[string]bool{}}
	recipetest.EachStep(t, recipetest.Scenario{Act: s.act, Before: s.join, Behind: s.join})
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
