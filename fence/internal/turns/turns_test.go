package turns

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/seed"
)

func enter(t *testing.T, turns *Turns, store fence.Store, token fence.Token) (context.Context, func()) {
	t.Helper()
	ctx, leave, err := turns.Enter(t.Context(), store, Request{Resource: "r", Token: token})
	if err != nil {
		t.Fatalf("token %s: %v", token, err)
	}
	return ctx, leave
}

// A request of an older holder has ended before one of a newer holder begins,
// and was told to.
func TestNewerHolderWaitsForTheOldersRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		gate := fence.NewGate()
		first, leaveFirst := enter(t, &turns, gate, 33)
		second, leaveSecond := enter(t, &turns, gate, 33) // the same holder may do several things at once
		entered := make(chan func(), 1)
		go func() {
			_, leave, err := turns.Enter(context.Background(), gate, Request{Resource: "r", Token: 34})
			if err != nil {
				t.Error(err)
			}
			entered <- leave
		}()
		synctest.Wait()
		for i, ctx := range []context.Context{first, second} {
			var stale *fence.StaleError
			if !errors.As(context.Cause(ctx), &stale) || stale.Got != 33 || stale.Seen != 34 {
				t.Errorf("request %d was not told: %v", i, context.Cause(ctx))
			}
		}
		leaveFirst()
		synctest.Wait()
		if len(entered) != 0 {
			t.Error("entered while an older request was running")
		}
		leaveSecond()
		(<-entered)()
		if len(turns.resources) != 0 {
			t.Error("an idle resource is kept")
		}
	})
}

// Whoever gives up waiting leaves no trace, except that its token was admitted.
func TestGivingUpTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns
		gate := fence.NewGate()
		_, leave := enter(t, &turns, gate, 33)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := turns.Enter(ctx, gate, Request{Resource: "r", Token: 34})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if _, _, err := turns.Enter(t.Context(), gate, Request{Resource: "r", Token: 33}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("an older token came in: %v", err)
		}
		leave()
		if len(turns.resources) != 0 {
			t.Error("an idle resource is kept")
		}
	})
}

// overtaken admits the older token, and lets the newer one have its whole turn
// before it says so.
type overtaken struct {
	turns *Turns
	gate  *fence.Gate
}

func (o overtaken) Admit(ctx context.Context, resource string, t fence.Token) error {
	if err := o.gate.Admit(ctx, resource, t); err != nil {
		return err
	}
	_, leave, err := o.turns.Enter(ctx, o.gate, Request{Resource: resource, Token: t + 1})
	if err == nil {
		leave()
	}
	return err
}

func TestOvertakenBetweenTheStoreAndTheTurn(t *testing.T) {
	var turns Turns
	_, _, err := turns.Enter(t.Context(), overtaken{&turns, fence.NewGate()}, Request{Resource: "r", Token: 33})
	var stale *fence.StaleError
	if !errors.As(err, &stale) || stale.Seen != 34 {
		t.Errorf("%v", err)
	}
	if len(turns.resources) != 0 {
		t.Error("an idle resource is kept")
	}
}

// Tokens never go down in the order of the requests' beginnings, and never two
// different ones run at a time.
func TestTokensNeverGoDown(t *testing.T) {
	var turns Turns
	gate := fence.NewGate()
	var last, runningToken atomic.Uint64
	var mu sync.Mutex
	count := map[uint64]int{}
	s := seed.New(t)
	var wg sync.WaitGroup
	for i := range uint64(8) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(s, i))
			for range 300 {
				token := fence.Token(last.Load() + 1 + rnd.Uint64N(3))
				_, leave, err := turns.Enter(context.Background(), gate, Request{Resource: "r", Token: token})
				if err != nil {
					if !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
					continue
				}
				mu.Lock()
				if uint64(token) < last.Load() {
					t.Errorf("%s after %d", token, last.Load())
				}
				last.Store(uint64(token))
				if r := runningToken.Load(); count[r] > 0 && r != uint64(token) {
					t.Errorf("%s while %d is running", token, r)
				}
				runningToken.Store(uint64(token))
				count[uint64(token)]++
				mu.Unlock()
				mu.Lock()
				count[uint64(token)]--
				mu.Unlock()
				leave()
			}
		})
	}
	wg.Wait()
	if len(turns.resources) != 0 {
		t.Error("an idle resource is kept")
	}
}
