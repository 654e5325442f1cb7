package lock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
)

// lostWithin waits for the loss of h and returns its cause.
func lostWithin(t *testing.T, h *Handle, d time.Duration) error {
	t.Helper()
	select {
	case <-h.Lost():
	case <-time.After(d):
		t.Fatalf("not lost after %s", d)
	}
	cause := context.Cause(h.Context())
	var e *LostError
	if h.Held() || h.Context().Err() == nil || !errors.As(cause, &e) || e.Token != h.FencingToken() {
		t.Fatalf("lost, but held %v, cause %v", h.Held(), cause)
	}
	return cause
}

// TestCutHolderKnowsBeforeTheNextHolder: nothing reaches the holder any more; it
// is told by its own clock, a margin before the cluster can let the next one in.
func TestCutHolderKnowsBeforeTheNextHolder(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		h := acquire(t, New(cl, "/l", SafetyMargin(2*time.Second)))
		time.Sleep(30 * time.Second)
		if !h.Held() || h.Remaining() < 5*time.Second {
			t.Fatalf("held %v, %s remaining", h.Held(), h.Remaining())
		}
		c.Server("n1").Stop()
		c.Server("n2").Stop()
		cut := time.Now()
		deadline := h.Deadline()
		cause := lostWithin(t, h, time.Minute)
		if !errors.Is(cause, ErrMargin) {
			t.Fatalf("cause %v", cause)
		}
		if early := time.Until(deadline); early < 1900*time.Millisecond || early > 2100*time.Millisecond {
			t.Fatalf("told %s before the deadline", early)
		}
		if c.ExpireSilent() != 0 || time.Since(cut) > 8*time.Second {
			t.Fatal("the cluster was earlier")
		}
		time.Sleep(4 * time.Second)
		if c.ExpireSilent() != 1 {
			t.Fatal("the cluster has not expired the session")
		}
		if err := h.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Fatalf("release of a lost lock: %v", err)
		}
	})
}

// TestClockThatRunsWrongStillLosesFirst: the holder's clock runs a tenth too slow
// or too fast; it hears of the loss before the cluster lets the next one in.
func TestClockThatRunsWrongStillLosesFirst(t *testing.T) {
	for _, rate := range []float64{0.9, 1.1} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			began := time.Now()
			clock := func() time.Duration { return time.Duration(float64(time.Since(began)) * rate) }
			cl := connect(t, c, client.WithSessionTimeout(10*time.Second), client.WithClock(clock))
			h := acquire(t, New(cl, "/l"))
			time.Sleep(15 * time.Second)
			c.Server("n1").Stop()
			for h.Held() {
				if c.ExpireSilent() != 0 {
					t.Fatal("the cluster was first")
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// TestLostByTheMarginIsGivenUpForGood: the session lives on after all, and the
// entry does not stand in the way of others for ever.
func TestLostByTheMarginIsGivenUpForGood(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		h := acquire(t, New(cl, "/l", SafetyMargin(4*time.Second)))
		c.Server("n1").Mute()
		lostWithin(t, h, 7*time.Second)
		c.Server("n1").Unmute()
		next := acquire(t, New(cl, "/l"))
		if next.FencingToken() <= h.FencingToken() || h.Held() {
			t.Fatal("token")
		}
		release(t, next)
	})
}

func TestHolderHearsOfDeliberateRemoval(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := New(cl, "/l")
		h := acquire(t, m)
		c.Delete(h.Node())
		if cause := lostWithin(t, h, time.Second); !errors.Is(cause, ErrDeleted) {
			t.Fatalf("cause %v", cause)
		}
		for why, want := range map[coordpb.SessionEnd]struct {
			reason client.Reason
			words  string
		}{
			coordpb.SessionEnd_SESSION_END_EXPIRED:    {client.Silent, "heard nothing"},
			coordpb.SessionEnd_SESSION_END_KILLED:     {client.Killed, "administrator"},
			coordpb.SessionEnd_SESSION_END_TAKEN_OVER: {client.Killed, "taken over"},
		} {
			for range 20 { // the end of the node and that of the session arrive together
				cl = connect(t, c)
				h = acquire(t, New(cl, "/l"))
				c.End(uint64(cl.Session().ID()), why)
				cause := lostWithin(t, h, time.Second)
				var se *client.SessionError
				if !errors.Is(cause, client.ErrSessionExpired) || !errors.As(cause, &se) || se.Reason != want.reason || !strings.Contains(se.Error(), want.words) {
					t.Fatalf("%s: cause %v", why, cause)
				}
			}
		}
		cl = connect(t, c)
		h = acquire(t, New(cl, "/l"))
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		if cause := lostWithin(t, h, time.Millisecond); !errors.Is(cause, client.ErrClosed) {
			t.Fatalf("cause %v", cause)
		}
	})
}

// TestWaiterWhoseSessionDiesLearnsItNow: it does not wait for the holder first.
func TestWaiterWhoseSessionDiesLearnsItNow(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		holder := acquire(t, New(connect(t, c), "/l"))
		cl := connect(t, c)
		errs := make(chan error, 1)
		go func() {
			_, err := New(cl, "/l").Acquire(t.Context())
			errs <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		c.Expire(uint64(cl.Session().ID()))
		if err := <-errs; !errors.Is(err, client.ErrSessionExpired) || !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		if time.Since(began) > time.Second {
			t.Fatal("late")
		}
		// The same for a waiter whose entry an administrator deletes.
		cl = connect(t, c)
		go func() {
			_, err := New(cl, "/l").Acquire(t.Context())
			errs <- err
		}()
		time.Sleep(time.Second)
		for _, p := range c.Paths("/l/") {
			if p != holder.Node() {
				c.Delete(p)
			}
		}
		if err := <-errs; !errors.Is(err, ErrDeleted) {
			t.Fatal(err)
		}
		release(t, holder)
	})
}

// TestLateReleaseHarmsNobody: a holder that lost the lock releases it while
// another holds it.
func TestLateReleaseHarmsNobody(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		old := acquire(t, New(connect(t, c), "/l"))
		c.Delete(old.Node())
		<-old.Lost()
		next := acquire(t, New(connect(t, c), "/l"))
		for range 3 {
			if err := old.Release(t.Context()); !errors.Is(err, ErrLost) {
				t.Fatalf("late release: %v", err)
			}
		}
		if err := next.Verify(t.Context()); err != nil || !next.Held() {
			t.Fatalf("the next holder lost it: %v", err)
		}
		release(t, next)
	})
}

func TestReleaseIsIdempotentAndWorksWithADoneContext(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		h := acquire(t, New(connect(t, c), "/l"))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 {
			if err := h.Release(done); err != nil {
				t.Fatal(err)
			}
		}
		if entries(c, "/l") != 0 || h.Held() {
			t.Fatal("still held")
		}
		select {
		case <-h.Lost():
			t.Fatal("a release is no loss")
		default:
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrReleased) {
			t.Fatalf("cause %v", cause)
		}
		if err := h.Verify(t.Context()); !errors.Is(err, ErrReleased) {
			t.Fatalf("verify: %v", err)
		}
	})
}

// TestReleaseDuringAnOutage: it is made up for as soon as the cluster is back.
func TestReleaseDuringAnOutage(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		m := New(cl, "/l")
		h := acquire(t, m)
		c.Server("n1").Stop()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := h.Release(done); !errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took > releaseGrace+time.Second {
			t.Fatalf("took %s", took)
		}
		c.Server("n1").Start()
		release(t, acquire(t, m))
		if n := entries(c, "/l"); n != 0 {
			t.Fatalf("%d entries left", n)
		}
	})
}

// TestGuardIsForThisHolderOnly: the same path and version come again, the guard
// of the former holder fails.
func TestGuardIsForThisHolderOnly(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		h := acquire(t, New(cl, "/l"))
		if _, err := cl.Txn(ctx, h.Guard(), client.OpCreate("/done", nil)); err != nil {
			t.Fatal(err)
		}
		guard := h.Guard()
		c.Delete(h.Node())
		<-h.Lost()
		if _, err := cl.Create(ctx, h.Node(), nil, client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Txn(ctx, guard, client.OpCreate("/late", nil)); !errors.Is(err, client.ErrBadVersion) {
			t.Fatalf("the guard of a former holder: %v", err)
		}
		if len(c.Paths("/late")) != 0 {
			t.Fatal("the late write was done")
		}
	})
}

// TestPausedHolderSeesTheLossFirst: the process did not run for longer than the
// timeout; the first look tells it, before any timer has fired.
func TestPausedHolderSeesTheLossFirst(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		began := time.Now()
		var slept time.Duration
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second),
			client.WithClock(func() time.Duration { return time.Since(began) + slept }))
		h := acquire(t, New(cl, "/l"))
		ctx := h.Context()
		synctest.Wait()
		slept = 12 * time.Second // no goroutine runs in between
		if ctx.Err() == nil || h.Held() || h.Remaining() != 0 {
			t.Fatal("still held")
		}
		var gate fence.Gate
		if err := gate.Admit(context.Background(), "r", h.FencingToken()+1); err != nil {
			t.Fatal(err)
		}
		if err := gate.Admit(context.Background(), "r", h.FencingToken()); !errors.Is(err, fence.ErrStale) {
			t.Fatalf("late write: %v", err)
		}
	})
}

// TestMinRemaining: an Acquire that took long is not returned with little left.
func TestMinRemaining(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		c.Server("n1").IgnoreBeats(true)
		c.Server("n1").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
		time.Sleep(4 * time.Second)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			c.Server("n1").Refuse(nil)
			c.Server("n1").IgnoreBeats(false)
		})
		h := acquire(t, New(cl, "/l", MinRemaining(5*time.Second)))
		if h.Remaining() < 5*time.Second || time.Since(began) < time.Second {
			t.Fatalf("%s left after %s", h.Remaining(), time.Since(began))
		}
		release(t, h)
	})
}

func TestAnotherSessionHoldsTheLock(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		s, err := cl.NewSession(t.Context(), client.WithSessionTimeout(30*time.Second), client.WithSessionName("worker"))
		if err != nil {
			t.Fatal(err)
		}
		h := acquire(t, New(cl, "/l", WithSession(s)))
		info, err := New(cl, "/l").Inspect(t.Context())
		if err != nil || len(info.Holders) != 1 || info.Holders[0].Session != s.ID() || info.Holders[0].Owner != "worker" {
			t.Fatalf("%+v %v", info, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		lostWithin(t, h, time.Millisecond)
		if cl.Session().State() != client.Connected {
			t.Fatal("the client's own session ended")
		}
	})
}

// TestFirstQuestionAfterAPauseIsAnsweredRight: the process has stood still past the
// deadline, and nothing has run yet but what asks.
func TestFirstQuestionAfterAPauseIsAnsweredRight(t *testing.T) {
	for name, asked := range map[string]func(ctx context.Context) bool{
		"Err":  func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool { return isClosed(ctx.Done()) },
		"Err of a child": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(context.WithValue(ctx, handleKey{"x"}, nil))
			defer cancel()
			return child.Err() != nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
				var slept atomic.Int64
				began := time.Now()
				cl := connect(t, c, client.WithClock(func() time.Duration { return time.Hour + time.Duration(slept.Load()) + time.Since(began) }))
				err := New(cl, "/l").Do(t.Context(), func(ctx context.Context, h *Handle) error {
					slept.Add(int64(time.Minute))
					if !asked(ctx) || !errors.Is(context.Cause(ctx), ErrLost) || h.Held() {
						t.Errorf("the context's cause is %v, held %v", context.Cause(ctx), h.Held())
					}
					return nil
				})
				if !errors.Is(err, ErrLost) {
					t.Error(err)
				}
				s, err := cl.NewSession(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				err = NewMulti(cl, []string{"/a", "/b"}, WithSession(s)).Do(t.Context(), func(ctx context.Context, h *MultiHandle) error {
					slept.Add(int64(time.Minute))
					if !asked(ctx) || !errors.Is(context.Cause(ctx), ErrLost) || h.Held() {
						t.Errorf("several: the context's cause is %v, held %v", context.Cause(ctx), h.Held())
					}
					return nil
				})
				if !errors.Is(err, ErrLost) {
					t.Error(err)
				}
			})
		})
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
