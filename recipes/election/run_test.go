package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
	"github.com/coordd/coord/recipes/lock"
)

// TestThousandResignationsRequeueAtTheEnd: leaders give up voluntarily again and
// again; each goes behind the others and always comes back.
func TestThousandResignationsRequeueAtTheEnd(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		const candidates = 3
		terms := rig.Times(1000)
		var order []int
		var inside, count atomic.Int32
		var last fence.Token
		full := make(chan struct{})
		runs := make([]*running, candidates)
		for i := range candidates {
			runs[i] = run(t, New(connect(t, c), "/e"), fmt.Sprint(i), func(ctx context.Context, l *Leadership) error {
				if inside.Add(1) != 1 {
					t.Error("two lead")
				}
				defer inside.Add(-1)
				if l.FencingToken() <= last {
					t.Errorf("token %s after %s", l.FencingToken(), last)
				}
				last = l.FencingToken()
				order = append(order, i)
				time.Sleep(time.Second) // the others are in the queue then
				if int(count.Add(1)) == terms {
					close(full)
				}
				return nil
			})
			time.Sleep(10 * time.Millisecond)
		}
		<-full
		for _, r := range runs {
			if err := r.stop(t); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		for i, who := range order[:terms] {
			if who != i%candidates {
				t.Fatalf("term %d went to %d: %v", i, who, order[:i+1])
			}
		}
		if left := c.Paths("/e/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// TestRunWaitsForItsFunction: it ignores its context; nothing else of this
// process leads meanwhile, but others do.
func TestRunWaitsForItsFunction(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		e := New(cl, "/e")
		var inside, terms atomic.Int32
		finish := make(chan struct{})
		r := run(t, e, "a", func(ctx context.Context, l *Leadership) error {
			if inside.Add(1) != 1 {
				t.Error("the function runs twice at a time")
			}
			defer inside.Add(-1)
			if terms.Add(1) == 1 {
				<-finish
			}
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		c.Expire(uint64(cl.Session().ID()))
		time.Sleep(time.Hour)
		if terms.Load() != 1 || inside.Load() != 1 {
			t.Fatal("it was started again")
		}
		if err := e.Run(t.Context(), nil, nil); !errors.Is(err, ErrRunning) {
			t.Fatalf("second Run: %v", err)
		}
		resign(t, campaign(t, New(connect(t, c), "/e"), "other"))
		close(finish)
		time.Sleep(time.Second)
		if terms.Load() != 2 {
			t.Fatal("it was not started again")
		}
		if err := r.stop(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// TestRunMakesItselfNewSessions with the timeout and name of the old ones, and
// closes the last.
func TestRunMakesItselfNewSessions(t *testing.T) {
	for _, given := range []bool{false, true} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c, client.WithSessionTimeout(7*time.Second), client.WithSessionName("scheduler"))
			var opts []lock.Option
			if given {
				s, err := cl.NewSession(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				opts = append(opts, lock.WithSession(s))
			}
			led := make(chan *Leadership, 1)
			seen := observe(t, New(connect(t, c), "/e"))
			wantLeaders(t, seen, "-")
			r := run(t, New(cl, "/e", opts...), "a", func(ctx context.Context, l *Leadership) error {
				led <- l
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, lock.ErrLost) && !errors.Is(cause, context.Canceled) {
					t.Errorf("cause %v", cause)
				}
				return fmt.Errorf("stopped: %w", ctx.Err())
			})
			var old client.SessionID
			for range 5 {
				l := <-led
				if s := l.Session(); s.ID() == old || s.Timeout() != 7*time.Second || s.Name() != "scheduler" {
					t.Fatalf("session %s %q with %s", s.ID(), s.Name(), s.Timeout())
				}
				old = l.Session().ID()
				wantLeaders(t, seen, "a")
				c.Expire(uint64(old))
				if l := next(t, seen); !l.None() {
					t.Fatalf("observed %+v", l)
				}
			}
			<-led
			wantLeaders(t, seen, "a")
			sessions := c.Sessions()
			if err := r.stop(t); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if c.Sessions() != sessions-1 {
				t.Fatalf("%d sessions are left of %d", c.Sessions(), sessions)
			}
			wantLeaders(t, seen, "-")
		})
	}
}

// TestSessionExpiresWhileWaiting: the candidate gets into the queue again.
func TestSessionExpiresWhileWaiting(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		first := campaign(t, New(connect(t, c), "/e"), "first")
		cl := connect(t, c)
		led := make(chan *Leadership, 1)
		r := run(t, New(cl, "/e"), "a", func(ctx context.Context, l *Leadership) error {
			led <- l
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(time.Second)
		c.Expire(uint64(cl.Session().ID()))
		time.Sleep(5 * time.Second)
		for _, p := range c.Paths("/e/_") { // and an administrator takes it out
			if p != first.Node() {
				c.Delete(p)
			}
		}
		time.Sleep(5 * time.Second)
		resign(t, first)
		if l := <-led; l.Session().ID() == cl.Session().ID() {
			t.Fatal("it leads in a dead session")
		}
		_ = r.stop(t)
		if left := c.Paths("/e/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

func TestRunReturnsTheErrorOfItsFunction(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		e := New(cl, "/e")
		mine := errors.New("mine")
		if err := e.Run(t.Context(), nil, func(context.Context, *Leadership) error { return mine }); !errors.Is(err, mine) {
			t.Fatal(err)
		}
		// An error of its own, although the leadership was lost as well.
		err := e.Run(t.Context(), nil, func(ctx context.Context, l *Leadership) error {
			c.Delete(l.Node())
			<-ctx.Done()
			return mine
		})
		if !errors.Is(err, mine) {
			t.Fatal(err)
		}
		// context.Canceled of its own making is no loss.
		if err := e.Run(t.Context(), nil, func(context.Context, *Leadership) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		// Errors that tell of the loss make it campaign again.
		for _, of := range []error{context.Canceled, lock.ErrLost, client.ErrSessionExpired, fence.ErrStale} {
			terms := 0
			err = e.Run(t.Context(), nil, func(ctx context.Context, l *Leadership) error {
				if terms++; terms == 3 {
					return mine
				}
				c.Delete(l.Node())
				<-ctx.Done()
				return fmt.Errorf("write: %w", of)
			})
			if !errors.Is(err, mine) || terms != 3 {
				t.Fatalf("%v: %d terms, %v", of, terms, err)
			}
		}
		func() {
			defer func() { _ = recover() }()
			_ = e.Run(t.Context(), nil, func(context.Context, *Leadership) error { panic("x") })
		}()
		synctest.Wait()
		if left := c.Paths("/e/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
		if err := e.Run(t.Context(), nil, func(context.Context, *Leadership) error { return mine }); !errors.Is(err, mine) {
			t.Fatalf("after a panic: %v", err)
		}
	})
}

func TestRunGivesUpWhatDoesNotHeal(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		never := func(context.Context, *Leadership) error { t.Error("leads"); return nil }
		if err := New(connect(t, c), "no-slash").Run(t.Context(), nil, never); !errors.Is(err, client.ErrBadPath) {
			t.Error(err)
		}
		closed := connect(t, c)
		_ = closed.Close()
		if err := New(closed, "/e").Run(t.Context(), nil, never); !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
		if err := New(connect(t, c), "/e", lock.SafetyMargin(time.Hour)).Run(t.Context(), nil, never); !errors.Is(err, client.ErrBadArguments) {
			t.Error(err)
		}
		cl := connect(t, c)
		err := New(cl, "/e").Run(t.Context(), nil, func(ctx context.Context, l *Leadership) error {
			return New(cl, "/e").Run(ctx, nil, never)
		})
		if !errors.Is(err, lock.ErrDeadlock) {
			t.Error(err)
		}
		// The client is closed under a leader.
		err = New(cl, "/e").Run(t.Context(), nil, func(ctx context.Context, l *Leadership) error {
			_ = cl.Close()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
	})
}

// TestRunBacksOff: a leadership that is lost again and again at once costs the
// cluster little.
func TestRunBacksOff(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		terms := 0
		r := run(t, New(connect(t, c), "/e"), "", func(ctx context.Context, l *Leadership) error {
			terms++
			c.Delete(l.Node())
			<-ctx.Done()
			return ctx.Err()
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if terms > 150 || terms < 50 {
			t.Fatalf("%d terms", terms)
		}
		_ = r.stop(t)
	})
}
