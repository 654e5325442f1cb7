package recipetest

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/coordd/coord/recipes/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMutexAtEveryStep(t *testing.T) {
	EachStep(t, Contenders(func(ctx context.Context, p *Party) error {
		h, err := lock.New(p.Client, p.Root+"/lock").Acquire(ctx)
		if err != nil {
			return err
		}
		leave := p.Enter(Hold{Token: h.FencingToken(), Context: h.Context()})
		_ = Pass(h.Context())
		leave()
		return h.Release(ctx)
	}))
}
