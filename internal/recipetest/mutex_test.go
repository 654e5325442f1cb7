package recipetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/recipes/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold holds what was acquired for a while and gives it back.
func hold(ctx context.Context, p *Party, h *lock.Handle, what Hold) error {
	what.Token, what.Context = h.FencingToken(), h.Context()
	leave := p.Enter(what)
	_ = Pass(h.Context()) // the handle's end is no fault
	leave()
	return h.Release(ctx)
}

// mutex is one use of a mutex.
func mutex(opts ...lock.Option) func(context.Context, *Party) error {
	return func(ctx context.Context, p *Party) error {
		h, err := lock.New(p.Client, p.Root+"/lock", opts...).Acquire(ctx)
		if err != nil {
			return err
		}
		return hold(ctx, p, h, Hold{})
	}
}

func TestMutexAtEveryStep(t *testing.T) { EachStep(t, Contenders(mutex())) }

// TestFreeMutexAtEveryStep: nobody is before the victim.
func TestFreeMutexAtEveryStep(t *testing.T) {
	s := Contenders(mutex())
	s.Before = nil
	EachStep(t, s)
}

func TestMutexWithLockDelayAtEveryStep(t *testing.T) {
	EachStep(t, Contenders(mutex(lock.LockDelay(time.Second))))
}

func TestMutexWithWaitLimitAtEveryStep(t *testing.T) {
	EachStep(t, Contenders(mutex(lock.WaitLimit(30*time.Second))))
}

func TestMutexWithValueAtEveryStep(t *testing.T) {
	act := func(ctx context.Context, p *Party) error {
		h, err := lock.New(p.Client, p.Root+"/lock", lock.Value([]byte("one"))).Acquire(ctx)
		if err != nil {
			return err
		}
		set := h.SetValue(ctx, []byte("two"))
		if err := hold(ctx, p, h, Hold{}); err != nil {
			return err
		}
		return set
	}
	EachStep(t, Contenders(act))
}

// TestTryAcquireAtEveryStep: a try that fails leaves nothing, one that succeeds
// excludes others.
func TestTryAcquireAtEveryStep(t *testing.T) {
	s := Contenders(mutex())
	s.Before = nil
	s.Act = func(ctx context.Context, p *Party) error {
		h, err := lock.New(p.Client, p.Root+"/lock").TryAcquire(ctx)
		if errors.Is(err, lock.ErrBusy) {
			return nil // the other one was faster, because of the fault
		}
		if err != nil {
			return err
		}
		return hold(ctx, p, h, Hold{})
	}
	EachStep(t, s)
}

// TestWaiterThatGivesUpAtEveryStep: its limit is over long before its turn.
func TestWaiterThatGivesUpAtEveryStep(t *testing.T) {
	s := Contenders(mutex())
	s.Act = func(ctx context.Context, p *Party) error {
		_, err := lock.New(p.Client, p.Root+"/lock", lock.WaitLimit(HoldTime/2)).Acquire(ctx)
		if err == nil {
			p.Fail("it has got the lock")
		}
		return nil
	}
	EachStep(t, s)
}
