package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/internal/recipetest"
	"github.com/coordd/coord/recipes/lock"
)

// several is what a party does that takes locks together, holds and releases.
func several(names []string, opts ...lock.Option) func(context.Context, *recipetest.Party) error {
	return func(ctx context.Context, p *recipetest.Party) error {
		var paths []string
		for _, name := range names {
			paths = append(paths, p.Root+"/"+name)
		}
		h, err := lock.NewMulti(p.Client, paths, opts...).Acquire(ctx)
		if err != nil {
			return err
		}
		var leave []func()
		for _, l := range h.Handles() {
			leave = append(leave, p.Enter(recipetest.Hold{Lock: l.Path(), Token: l.FencingToken(), Context: h.Context()}))
		}
		_ = recipetest.Pass(h.Context())
		for _, f := range leave {
			f()
		}
		return h.Release(ctx)
	}
}

// single is the same for one lock.
func single(name string) func(context.Context, *recipetest.Party) error {
	return func(ctx context.Context, p *recipetest.Party) error {
		h, err := lock.New(p.Client, p.Root+"/"+name).Acquire(ctx)
		if err != nil {
			return err
		}
		leave := p.Enter(recipetest.Hold{Lock: h.Path(), Token: h.FencingToken(), Context: h.Context()})
		_ = recipetest.Pass(h.Context())
		leave()
		return h.Release(ctx)
	}
}

// TestMultiAtEveryStep breaks several locks at each message: all or none, no
// place left behind, and users of one of the locks get their turn.
func TestMultiAtEveryStep(t *testing.T) {
	settings := []lock.Option{lock.LockDelay(100 * time.Millisecond), lock.WaitLimit(time.Minute), lock.RefuseDeadlock()}
	for name, s := range map[string]recipetest.Scenario{
		"overlapping": {
			Act: several([]string{"a", "b", "c"}), Before: several([]string{"c", "b"}), Behind: several([]string{"d", "a"}), After: several([]string{"a", "b", "c", "d"}),
		},
		"beside single locks, with settings": {
			Act: several([]string{"a", "b"}, settings...), Before: single("b"), Behind: single("a"), After: several([]string{"b", "a"}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Left = lingering
			recipetest.EachStep(t, s)
		})
	}
}

// TestRefusedDeadlockAtEveryStep breaks a session that has one lock and is refused
// another: whatever becomes of it, the other session gets both.
func TestRefusedDeadlockAtEveryStep(t *testing.T) {
	holdThen := func(first, second string, opts ...lock.Option) func(context.Context, *recipetest.Party) error {
		return func(ctx context.Context, p *recipetest.Party) error {
			h, err := lock.New(p.Client, p.Root+"/"+first).Acquire(ctx)
			if err != nil {
				return err
			}
			_ = recipetest.Pass(ctx)
			other, err := lock.New(p.Client, p.Root+"/"+second, opts...).Acquire(ctx)
			if err == nil {
				err = other.Release(ctx)
			}
			if errors.Is(err, lock.ErrDeadlock) {
				err = nil
			}
			return errors.Join(err, h.Release(ctx))
		}
	}
	recipetest.EachStep(t, recipetest.Scenario{
		Act:    holdThen("a", "b", lock.RefuseDeadlock()),
		Behind: holdThen("b", "a"),
	})
}
