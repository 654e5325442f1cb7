package recipetest

import (
	"context"
	"testing"

	"github.com/coordd/coord/recipes/lock"
)

// TestSlotAtEveryStep: each slot is a lock of its own, with rising tokens.
func TestSlotAtEveryStep(t *testing.T) {
	eachStep(t, Contenders(func(ctx context.Context, p *Party) error {
		h, err := lock.NewSemaphore(p.Client, p.Root+"/sem", 2).Acquire(ctx)
		if err != nil {
			return err
		}
		return hold(ctx, p, h, Hold{Lock: string(rune('0' + h.Slot()))})
	}))
}

// several takes some locks at once.
func several(names ...string) func(context.Context, *Party) error {
	return func(ctx context.Context, p *Party) error {
		var paths []string
		for _, name := range names {
			paths = append(paths, p.Root+"/"+name)
		}
		m, err := lock.NewMulti(p.Client, paths).Acquire(ctx)
		if err != nil {
			return err
		}
		var leave []func()
		for _, h := range m.Handles() {
			leave = append(leave, p.Enter(Hold{Lock: h.Path(), Token: h.FencingToken(), Context: h.Context()}))
		}
		_ = Pass(m.Context())
		for _, f := range leave {
			f()
		}
		return m.Release(ctx)
	}
}

// TestMultiAtEveryStep: those before and behind want one of the two each, so the
// victim waits for one, and each of the others for the victim or nobody.
func TestMultiAtEveryStep(t *testing.T) {
	eachStep(t, Scenario{Before: several("a"), Act: several("a", "b"), Behind: several("b", "c"), After: several("c", "b", "a")})
}
