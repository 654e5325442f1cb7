package lock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// outcome waits for the end of a wait.
func outcome(t *testing.T, got <-chan error, within time.Duration) error {
	t.Helper()
	select {
	case err := <-got:
		return err
	case <-time.After(within):
		t.Fatalf("it waits on after %s", within)
		return nil
	}
}

// TestAcquireThatClosesACycleIsRefused: at once, with the cycle named, and the
// other one gets its lock.
func TestAcquireThatClosesACycleIsRefused(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		a, b := connect(t, c), connect(t, c)
		ha := acquire(t, New(a, "/l/a", Owner("alice")))
		acquire(t, New(b, "/l/b", Owner("bob")))
		waiting := begin(t.Context(), New(b, "/l/a", Owner("bob")).Acquire)
		closing := begin(t.Context(), New(a, "/l/b", Owner("alice"), RefuseDeadlock()).Acquire)
		err := outcome(t, closing, 100*time.Millisecond)
		var e *DeadlockError
		if !errors.Is(err, ErrDeadlock) || !errors.As(err, &e) || e.Path != "/l/b" || len(e.Cycle) != 2 {
			t.Fatalf("error %v", err)
		}
		want := "bob waits for /l/a, which alice holds; alice waits for /l/b, which bob holds"
		if e.Cycle.String() != want || err.Error() != "lock /l/b: waiting would never end: "+want {
			t.Fatalf("error %q", err)
		}
		wantEntries(t, c, 1, "/l/b")
		wantEntries(t, c, 2, "/l/a")
		release(t, ha)
		if err := outcome(t, waiting, time.Second); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOnlyOneOfACycleGivesWay: all have the option, and come at the same time.
func TestOnlyOneOfACycleGivesWay(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
			clients, own := make([]*client.Client, n), make([]*Handle, n)
			for i := range clients {
				clients[i] = connect(t, c)
				own[i] = acquire(t, New(clients[i], fmt.Sprintf("/l/%d", i)))
			}
			type result struct {
				i   int
				h   *Handle
				err error
			}
			results := make(chan result, n)
			for i, cl := range clients {
				go func() {
					h, err := New(cl, fmt.Sprintf("/l/%d", (i+1)%n), RefuseDeadlock()).Acquire(t.Context())
					results <- result{i, h, err}
				}()
			}
			refused := 0
			for range n { // who gets its locks, or does not, gives back what it has
				r := <-results
				if r.err != nil {
					if refused++; !errors.Is(r.err, ErrDeadlock) {
						t.Fatal(r.err)
					}
				} else {
					release(t, r.h)
				}
				release(t, own[r.i])
			}
			if refused != 1 {
				t.Fatalf("%d of %d were refused", refused, n)
			}
		})
	}
}

// TestWaiterGivesWayWhenTheCycleClosesLater: by somebody who has not asked to be
// refused, and by a lock that goes on to the next in line.
func TestWaiterGivesWayWhenTheCycleClosesLater(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		a, b := connect(t, c), connect(t, c)
		acquire(t, New(a, "/l/a"))
		hb := acquire(t, New(b, "/l/b"))
		first := begin(ctx, New(a, "/l/b", RefuseDeadlock()).Acquire)
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if len(first) != 0 {
			t.Fatal("refused without a reason")
		}
		second := begin(ctx, New(b, "/l/a").Acquire)
		if err := outcome(t, first, time.Second); !errors.Is(err, ErrDeadlock) {
			t.Fatalf("error %v", err)
		}
		if len(second) != 0 {
			t.Fatal("the other went as well")
		}
		release(t, hb)
		cancel()
		<-second
	})
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		s1, s2, s3 := connect(t, c), connect(t, c), connect(t, c)
		h1 := acquire(t, New(s1, "/l/a"))
		acquire(t, New(s2, "/l/b"))
		several := make(chan error, 1)
		go func() {
			_, err := NewMulti(s3, []string{"/l/a", "/l/b"}).Acquire(ctx)
			several <- err
		}()
		synctest.Wait()
		behind := begin(ctx, New(s2, "/l/a", RefuseDeadlock()).Acquire)
		time.Sleep(3 * time.Second)
		if len(behind) != 0 {
			t.Fatal("refused while the holder may do anything")
		}
		release(t, h1)
		if err := outcome(t, behind, time.Second); !errors.Is(err, ErrDeadlock) {
			t.Fatalf("error %v", err)
		}
		cancel()
		<-several
	})
}

// TestSeveralLocksGiveWayTogether: the Multi leaves all of its queues.
func TestSeveralLocksGiveWayTogether(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		a, b := connect(t, c), connect(t, c)
		acquire(t, New(a, "/l/x"))
		acquire(t, New(b, "/l/y"))
		waiting := begin(ctx, New(b, "/l/x").Acquire)
		began := time.Now()
		_, err := NewMulti(a, []string{"/l/y", "/l/z"}, RefuseDeadlock()).Acquire(ctx)
		if !errors.Is(err, ErrDeadlock) || time.Since(began) > time.Second {
			t.Fatalf("error %v after %s", err, time.Since(began))
		}
		wantEntries(t, c, 0, "/l/z")
		wantEntries(t, c, 1, "/l/y")

		// Its own entries are all it has, and one of them holds up another.
		free := connect(t, c)
		several := make(chan error, 1)
		go func() {
			_, err := NewMulti(free, []string{"/l/y", "/l/z"}, RefuseDeadlock()).Acquire(ctx)
			several <- err
		}()
		synctest.Wait()
		second := begin(ctx, New(b, "/l/z").Acquire)
		if err := outcome(t, several, time.Second); !errors.Is(err, ErrDeadlock) {
			t.Fatalf("error %v", err)
		}
		if err := outcome(t, second, time.Second); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-waiting
	})
}

// TestLooksForDeadlocksCostLittle: a waiter whose session has nothing else makes
// one small read each half second, however long the queue is.
func TestLooksForDeadlocksCostLittle(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		acquire(t, New(connect(t, c), "/l"))
		for range 20 {
			go func() { _, _ = New(connect(t, c), "/l").Acquire(ctx) }()
		}
		synctest.Wait()
		got := begin(ctx, New(connect(t, c), "/l", RefuseDeadlock()).Acquire)
		before := c.Counts()
		time.Sleep(10 * time.Second)
		after := c.Counts()
		if n := after.Reads - before.Reads; n < 19 || n > 21 || after.Lists-before.Lists > 21 {
			t.Fatalf("from %+v to %+v", before, after)
		}
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}
