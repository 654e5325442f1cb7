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
