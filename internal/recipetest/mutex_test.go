package recipetest

import (
	"context"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/coordd/coord/recipes/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eachStep is EachStep beside other tests.
func eachStep(t *testing.T, s Scenario) {
	t.Helper()
	t.Parallel()
	EachStep(t, s)
}

// hold holds what was acquired for a while and gives it back.
func hold(ctx context.Context, p *Party, h *lock.Handle, what Hold) error {
	what.Token, what.Context = h.FencingToken(), h.Context()
	leave := p.Enter(what)
	_ = Pass(h.Context()) // the handle's end is no fault
	leave()
	return h.Release(ctx)
}

// mutex is one use of a mutex.
func mutex(ctx context.Context, p *Party) error {
	h, err := lock.New(p.Client, p.Root+"/lock").Acquire(ctx)
	if err != nil {
		return err
	}
	return hold(ctx, p, h, Hold{})
}

func TestMutexAtEveryStep(t *testing.T) { eachStep(t, Contenders(mutex)) }

// TestFreeMutexAtEveryStep: nobody is before the victim.
func TestFreeMutexAtEveryStep(t *testing.T) {
	s := Contenders(mutex)
	s.Before = nil
	eachStep(t, s)
}

// TestMutexOfThreeServersAtEveryStep: clients move to other servers, and those
// elect another leader.
func TestMutexOfThreeServersAtEveryStep(t *testing.T) {
	s := Contenders(mutex)
	s.Servers, s.Faults = 3, []Fault{None, Lose, Blink, Expire, Kill, Restart}
	eachStep(t, s)
}

// TestTryAcquireAtEveryStep: a try that fails leaves nothing, one that succeeds
// excludes others.
func TestTryAcquireAtEveryStep(t *testing.T) {
	s := Contenders(mutex)
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
	eachStep(t, s)
}

// TestWaiterThatGivesUpAtEveryStep: its limit is over long before its turn.
func TestWaiterThatGivesUpAtEveryStep(t *testing.T) {
	s := Contenders(mutex)
	s.Act = func(ctx context.Context, p *Party) error {
		_, err := lock.New(p.Client, p.Root+"/lock", lock.WaitLimit(HoldTime/2)).Acquire(ctx)
		if err == nil {
			p.Fail("it has got the lock")
		}
		return nil
	}
	eachStep(t, s)
}
