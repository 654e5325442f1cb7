package once

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

func TestEachPeriodIsDoneByOne(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		const hosts = 5
		var runs atomic.Int32
		var key atomic.Value
		results := make(chan Done, hosts)
		for i := range hosts {
			j := New(connect(t, c), "/jobs/invoices", Lock(lock.Owner(fmt.Sprint("host ", i))))
			go func() {
				results <- do(t, j, "2026-01-31", func(ctx context.Context, turn Turn) error {
					runs.Add(1)
					key.Store(turn.Key)
					time.Sleep(time.Minute)
					return nil
				})
			}()
		}
		repeated := 0
		var first Done
		for i := range hosts {
			d := <-results
			if d.Repeated {
				repeated++
				d.Repeated = false
			}
			if i == 0 {
				first = d
			}
			if d != first || d.Token == 0 || d.By == "" || d.Period != "2026-01-31" {
				t.Fatalf("%+v and %+v", first, d)
			}
		}
		if runs.Load() != 1 || repeated != hosts-1 {
			t.Fatalf("%d runs, %d repeated", runs.Load(), repeated)
		}
		j := New(connect(t, c), "/jobs/invoices")
		all, err := j.History(t.Context())
		if err != nil || len(all) != 1 || all[0] != first {
			t.Fatalf("%+v %v", all, err)
		}
		if d, ok, err := j.Done(t.Context(), "2026-01-31"); err != nil || !ok || d != first {
			t.Fatalf("%+v %v %v", d, ok, err)
		}
		if _, ok, err := j.Done(t.Context(), "2026-02-28"); err != nil || ok {
			t.Fatal("an undone period is done")
		}
		do(t, j, "2026-02-28", func(_ context.Context, turn Turn) error {
			if turn.Key == key.Load() || turn.Token <= first.Token {
				t.Errorf("the next period has key %s, token %s", turn.Key, turn.Token)
			}
			return nil
		})
	})
}

// TestRunnerThatDiesIsFollowedWithTheSameKey and a larger token; its late write is
// refused and its late marker is not made.
func TestRunnerThatDiesIsFollowedWithTheSameKey(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var s store
		first, second := connect(t, c), connect(t, c)
		var keys []string
		var tokens []fence.Token
		paused, resume := make(chan struct{}), make(chan struct{})
		errs := make(chan error, 1)
		never := func() bool { return false }
		go func() {
			_, err := New(first, "/j").Do(t.Context(), "p", func(ctx context.Context, turn Turn) error {
				keys, tokens = append(keys, turn.Key), append(tokens, turn.Token)
				close(paused)
				<-resume // it does not look at its context
				if repeated, err := s.once(turn.Key, turn.Token, never); err != nil || !repeated {
					t.Errorf("late write: %v %v", repeated, err)
				}
				if err := s.gate.Admit(t.Context(), "resource", turn.Token); !errors.Is(err, fence.ErrStale) {
					t.Errorf("late write without a key: %v", err)
				}
				return nil
			})
			errs <- err
		}()
		<-paused
		c.Expire(uint64(first.Session().ID()))
		d := do(t, New(second, "/j", Lock(lock.Owner("second"))), "p", func(ctx context.Context, turn Turn) error {
			keys, tokens = append(keys, turn.Key), append(tokens, turn.Token)
			_, err := s.once(turn.Key, turn.Token, never)
			return err
		})
		close(resume)
		if err := <-errs; !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		if keys[0] != keys[1] || tokens[1] <= tokens[0] || s.applied[keys[0]] != 1 || d.By != "second" || d.Token != tokens[1] {
			t.Fatalf("keys %v, tokens %v, applied %v, done %+v", keys, tokens, s.applied, d)
		}
	})
}

func TestFailedPeriodIsNotDone(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		j := New(connect(t, c), "/j")
		mine := errors.New("mine")
		if d, err := j.Do(t.Context(), "p", func(context.Context, Turn) error { return mine }); !errors.Is(err, mine) || d != (Done{}) {
			t.Fatalf("%+v %v", d, err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = j.Do(t.Context(), "p", func(context.Context, Turn) error { panic("x") })
		}()
		if _, ok, err := j.Done(t.Context(), "p"); ok || err != nil {
			t.Fatal("done")
		}
		// The lock is taken away under the function.
		_, err := j.Do(t.Context(), "p", func(ctx context.Context, turn Turn) error {
			c.Delete(turn.Handle.Node())
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrDeleted) {
			t.Fatal(err)
		}
		// Both know nothing of it: the cluster refuses the marker.
		do(t, j, "o", nothing) // now the folder is there
		_, err = j.Do(t.Context(), "p", func(ctx context.Context, turn Turn) error {
			c.Server("n1").Mute()
			c.Delete(turn.Handle.Node())
			time.AfterFunc(time.Second, c.Server("n1").Unmute)
			return nil
		})
		if !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		if _, ok, err := j.Done(t.Context(), "p"); ok || err != nil {
			t.Fatal("done")
		}
		if d := do(t, j, "p", nothing); d.Repeated {
			t.Fatal("repeated")
		}
	})
}

// TestFinishedWorkIsMarkedAlthoughTheContextHasEnded.
func TestFinishedWorkIsMarkedAlthoughTheContextHasEnded(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		j := New(connect(t, c), "/j")
		ctx, cancel := context.WithCancel(t.Context())
		d, err := j.Do(ctx, "p", func(context.Context, Turn) error { cancel(); return nil })
		if err != nil || d.Period != "p" || d.Repeated {
			t.Fatalf("%+v %v", d, err)
		}
		if _, err := j.Do(ctx, "q", nothing); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

// TestSessionLostAroundTheMarker: the answer to the marker's transaction does not
// come any more. The next attempt finds the marker or runs again; the store has it
// once in both cases.
func TestSessionLostAroundTheMarker(t *testing.T) {
	for _, made := range []bool{true, false} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			var s store
			cl := connect(t, c)
			runs := 0
			fn := func(ctx context.Context, turn Turn) error {
				runs++
				_, err := s.once(turn.Key, turn.Token, func() bool { return false })
				return err
			}
			_, err := New(cl, "/j").Do(t.Context(), "p", func(ctx context.Context, turn Turn) error {
				if made { // the marker's folder is there: the next write is the marker
					if _, err := cl.Create(ctx, "/j/done", nil); err != nil {
						t.Error(err)
					}
					lost := false
					c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
						if lost || r.Seq == 0 {
							return fakecoord.Pass
						}
						lost = true
						go c.Expire(uint64(cl.Session().ID()))
						return fakecoord.Drop
					})
				} else {
					c.Expire(uint64(cl.Session().ID()))
				}
				return fn(ctx, turn)
			})
			c.OnReply(nil)
			if !errors.Is(err, lock.ErrLost) || made && !errors.Is(err, client.ErrUnknownOutcome) {
				t.Fatalf("made %v: %v", made, err)
			}
			d := do(t, New(connect(t, c), "/j"), "p", fn)
			if d.Repeated != made || runs != map[bool]int{true: 1, false: 2}[made] || s.applied["/j@p"] != 1 {
				t.Fatalf("made %v: %+v, %d runs, applied %v", made, d, runs, s.applied)
			}
		})
	}
}

func TestMarkersMadeOrRemovedByHand(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		j := New(cl, "/j")
		do(t, j, "a", nothing)
		if _, err := cl.Create(t.Context(), "/j/done/b", []byte("skipped by me")); err != nil {
			t.Fatal(err)
		}
		fail := func(context.Context, Turn) error { t.Error("it runs"); return nil }
		if d := do(t, j, "b", fail); !d.Repeated || d.By != "" || d.Token != 0 {
			t.Fatalf("%+v", d)
		}
		c.Delete("/j/done/a")
		if d := do(t, j, "a", nothing); d.Repeated {
			t.Fatal("repeated")
		}
		// Made by hand while the function runs.
		d := do(t, j, "c", func(ctx context.Context, _ Turn) error {
			_, err := cl.Create(ctx, "/j/done/c", nil)
			return err
		})
		if !d.Repeated {
			t.Fatal("not repeated")
		}
		// The folder goes while the function runs.
		c.Delete("/j/done/a")
		c.Delete("/j/done/b")
		c.Delete("/j/done/c")
		do(t, j, "d", func(context.Context, Turn) error { c.Delete("/j/done"); return nil })
		if n := c.Paths("/j/done/"); len(n) != 1 || n[0] != "/j/done/d" {
			t.Fatal(n)
		}
	})
}

func TestOldMarkersAreRemovedAndTheirPeriodsNotRunAgain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		j := New(connect(t, c), "/j", Keep(10))
		for i := range 50 {
			do(t, j, fmt.Sprintf("%03d", i), nothing)
			if n := len(c.Paths("/j/done/")); n > 12 {
				t.Fatalf("%d markers after %d periods", n, i)
			}
		}
		all, err := j.History(t.Context())
		if err != nil || len(all) < 10 || all[len(all)-1].Period != "049" {
			t.Fatalf("%v %v", all, err)
		}
		fail := func(context.Context, Turn) error { t.Error("it runs again"); return nil }
		for i := range 50 {
			d, err := j.Do(t.Context(), fmt.Sprintf("%03d", i), fail)
			if old := i < 50-len(all); old != errors.Is(err, ErrForgotten) || old == d.Repeated {
				t.Fatalf("%d: %+v %v", i, d, err)
			}
		}
		keep := New(connect(t, c), "/k", Keep(-1))
		for i := range 50 {
			do(t, keep, fmt.Sprint(i), nothing)
		}
		if n := len(c.Paths("/k/done/")); n != 50 {
			t.Fatalf("%d markers", n)
		}
	})
}

func TestBadPeriodsAreRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		j := New(connect(t, c), "/j")
		for _, p := range []string{"", ".", "..", "a/b", "a\x00"} {
			if _, err := j.Do(t.Context(), p, nothing); !errors.Is(err, client.ErrBadPath) {
				t.Errorf("%q: %v", p, err)
			}
			if _, _, err := j.Done(t.Context(), p); !errors.Is(err, client.ErrBadPath) {
				t.Errorf("%q: %v", p, err)
			}
		}
		if _, err := New(connect(t, c, client.WithoutSession()), "/j").Do(t.Context(), "p", nothing); !errors.Is(err, client.ErrBadArguments) {
			t.Error(err)
		}
		err := j.nested(t)
		if !errors.Is(err, lock.ErrDeadlock) {
			t.Error(err)
		}
		if all, err := New(connect(t, c), "/none").History(t.Context()); err != nil || len(all) != 0 {
			t.Error(all, err)
		}
	})
}

// nested does a period within a period of the same job.
func (j *Job) nested(t *testing.T) error {
	_, err := j.Do(t.Context(), "p", func(ctx context.Context, _ Turn) error {
		_, err := j.Do(ctx, "q", nothing)
		return err
	})
	return err
}

// TestNoTwoJobsHaveAKeyInCommon: to a resource it would be one operation, and the
// second one would not be applied.
func TestNoTwoJobsHaveAKeyInCommon(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		seen := map[string]string{}
		for _, path := range []string{"/a", "/a@b", "/a@b%40c", "/a@b@c"} {
			for _, period := range []string{"p", "b@p", "b@c@p", "c@p", "b%40p", "c%40p"} {
				key, is := New(cl, path).key(period), fmt.Sprintf("%q of %q", period, path)
				if other := seen[key]; other != "" {
					t.Errorf("%s and %s have the key %s", is, other, key)
				}
				seen[key] = is
			}
		}
	})
}

// TestKeyDoesNotDependOnTheChroot.
func TestKeyDoesNotDependOnTheChroot(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		if _, err := connect(t, c).Create(t.Context(), "/app", nil); err != nil {
			t.Fatal(err)
		}
		a, b := New(connect(t, c), "/app/j"), New(connect(t, c, client.WithChroot("/app")), "/j")
		if a.key("p") != b.key("p") {
			t.Fatalf("%s and %s", a.key("p"), b.key("p"))
		}
		do(t, a, "p", nothing)
		if d := do(t, b, "p", nothing); !d.Repeated {
			t.Fatal("done twice")
		}
		synctest.Wait()
	})
}
