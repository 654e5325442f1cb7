package hold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errGivenUp = errors.New("given up")

func lostBy(reason error) error { return fmt.Errorf("lost: %w", reason) }

// TestNothingTellsOfTheEndBeforeTheContextDoes: whoever sees by one method that it
// is over finds the context done, with its cause, and Lost closed.
func TestNothingTellsOfTheEndBeforeTheContextDoes(t *testing.T) {
	for range 2000 {
		e := NewEnd(t.Context())
		begun := make(chan struct{})
		go func() {
			close(begun)
			e.Come(errGivenUp, true)
		}()
		<-begun
		for e.Cause() == nil {
		}
		select {
		case <-e.Lost():
		default:
			t.Fatal("over, and not lost")
		}
		if cause := context.Cause(e.Context()); e.Context().Err() == nil || !errors.Is(cause, errGivenUp) {
			t.Fatalf("over, and the context is done by %v", cause)
		}
	}
}

func TestTheEndComesOnce(t *testing.T) {
	e := NewEnd(t.Context())
	if !e.Come(errGivenUp, false) || e.Come(ErrMargin, true) || !errors.Is(e.Cause(), errGivenUp) {
		t.Fatal(e.Cause())
	}
	select {
	case <-e.Lost():
		t.Fatal("what was given up is not lost")
	default:
	}
}

// TestHoldEndsBeforeItsSession does, by the clock of the client alone.
func TestHoldEndsBeforeItsSession(t *testing.T) {
	rig.Fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := rig.Connect(t, c, client.WithSessionTimeout(10*time.Second))
		var late atomic.Int32
		h := New(t.Context(), cl.Session(), 2*time.Second, lostBy, func() { late.Add(1) })
		time.Sleep(time.Minute)
		if h.Over() != nil || h.Remaining() < 5*time.Second {
			t.Fatal(h.Over(), h.Remaining())
		}
		c.Server("n1").Stop()
		deadline := cl.Session().Deadline()
		<-h.Lost()
		if early := time.Until(deadline); early < 1900*time.Millisecond || early > 2100*time.Millisecond {
			t.Fatalf("told %s before the deadline", early)
		}
		time.Sleep(time.Minute)
		if !errors.Is(h.Over(), ErrMargin) || h.Remaining() != 0 || !h.SessionOver() || late.Load() != 1 {
			t.Fatal(h.Over(), h.Remaining(), h.SessionOver(), late.Load())
		}
	})
}

// TestHoldInASessionThatIsOver is lost, however early that shows.
func TestHoldInASessionThatIsOver(t *testing.T) {
	rig.Fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := rig.Connect(t, c)
		c.Expire(uint64(cl.Session().ID()))
		<-cl.Session().Context().Done()
		for range 100 {
			h := New(t.Context(), cl.Session(), 0, lostBy, func() { t.Error("not by the margin") })
			if err := h.Over(); !errors.Is(err, client.ErrSessionExpired) {
				t.Fatal(err)
			}
			synctest.Wait()
			h.Come(errGivenUp, false)
		}
	})
}

// TestFirstQuestionAfterAPauseIsAnsweredRight: nothing has run since but what asks.
func TestFirstQuestionAfterAPauseIsAnsweredRight(t *testing.T) {
	rig.Fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		began := time.Now()
		var slept atomic.Int64
		cl := rig.Connect(t, c, client.WithSessionTimeout(10*time.Second),
			client.WithClock(func() time.Duration { return time.Hour + time.Duration(slept.Load()) + time.Since(began) }))
		for _, asks := range []func(ctx context.Context) bool{
			func(ctx context.Context) bool { return ctx.Err() != nil },
			func(ctx context.Context) bool {
				select {
				case <-ctx.Done():
					return true
				default:
					return false
				}
			},
		} {
			s, err := cl.NewSession(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			h := New(t.Context(), s, time.Second, lostBy, func() {})
			within, cancel := h.Within(t.Context(), h.Check)
			slept.Add(int64(9500 * time.Millisecond))
			if !asks(within) || !errors.Is(context.Cause(within), ErrMargin) {
				t.Errorf("the cause is %v", context.Cause(within))
			}
			cancel()
			_ = s.Close(t.Context())
		}
	})
}
