package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/recipetest"
	"github.com/coordd/coord/recipes/lock"
)

// acquirer is one way to get a lock.
type acquirer func(ctx context.Context, p *recipetest.Party, opts ...lock.Option) (*lock.Handle, error)

func read(ctx context.Context, p *recipetest.Party, opts ...lock.Option) (*lock.Handle, error) {
	return lock.NewRW(p.Client, p.Root+"/lock", opts...).AcquireRead(ctx)
}

func write(ctx context.Context, p *recipetest.Party, opts ...lock.Option) (*lock.Handle, error) {
	return lock.NewRW(p.Client, p.Root+"/lock", opts...).AcquireWrite(ctx)
}

func mutex(ctx context.Context, p *recipetest.Party, opts ...lock.Option) (*lock.Handle, error) {
	return lock.New(p.Client, p.Root+"/lock", opts...).Acquire(ctx)
}

func permit(n int) acquirer {
	return func(ctx context.Context, p *recipetest.Party, opts ...lock.Option) (*lock.Handle, error) {
		return lock.NewSemaphore(p.Client, p.Root+"/lock", n, opts...).Acquire(ctx)
	}
}

// holding is what a party does that acquires, sets a value, holds and releases.
func holding(acquire acquirer, as recipetest.Hold, opts ...lock.Option) func(context.Context, *recipetest.Party) error {
	return func(ctx context.Context, p *recipetest.Party) error {
		h, err := acquire(ctx, p, opts...)
		if err != nil {
			return err
		}
		as.Token, as.Context = h.FencingToken(), h.Context()
		leave := p.Enter(as)
		err = h.SetValue(ctx, []byte(p.Name))
		_ = recipetest.Pass(h.Context())
		leave()
		return errors.Join(err, h.Release(ctx))
	}
}

// lingering lets znodes be that outlive an expired session for their time.
func lingering(n client.Node) bool { return n.Stat.Kind == client.TTL }

// TestEveryKindAtEveryStep breaks each way to get a lock at each message.
func TestEveryKindAtEveryStep(t *testing.T) {
	alone, shared, two := recipetest.Hold{}, recipetest.Hold{Shared: true}, recipetest.Hold{Limit: 2}
	settings := []lock.Option{lock.LockDelay(100 * time.Millisecond), lock.WaitLimit(time.Minute)}
	for name, s := range map[string]recipetest.Scenario{
		"mutex with settings": recipetest.Contenders(holding(mutex, alone, settings...)),
		"reader": {
			Act: holding(read, shared), Before: holding(write, alone), Behind: holding(write, alone), After: holding(read, shared),
		},
		"writer": {
			Act: holding(write, alone), Before: holding(read, shared), Behind: holding(read, shared), After: holding(write, alone),
		},
		"semaphore of one": recipetest.Contenders(holding(permit(1), alone, settings...)),
		"semaphore of two": recipetest.Contenders(holding(permit(2), two)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.Left = lingering
			recipetest.EachStep(t, s)
		})
	}
}
