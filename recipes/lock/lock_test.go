package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/internal/rig"
)

func acquire(t *testing.T, m *Mutex) *Handle {
	t.Helper()
	h, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func release(t *testing.T, h *Handle) {
	t.Helper()
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// entries are the queue entries that are left of a lock.
func entries(c *fakecoord.Cluster, path string) int { return len(c.Paths(path + "/")) }

func TestTokensRiseAndTheQueueIsFair(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		var mu sync.Mutex
		var order []int
		var tokens []fence.Token
		var inside atomic.Int32
		first := acquire(t, New(connect(t, c), "/locks/a"))
		var wg sync.WaitGroup
		const waiters = 20
		for i := range waiters {
			cl := connect(t, c)
			wg.Go(func() {
				time.Sleep(time.Duration(i+1) * 10 * time.Millisecond) // the order of joining
				h, err := New(cl, "/locks/a").Acquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				mu.Lock()
				order, tokens = append(order, i), append(tokens, h.FencingToken())
				mu.Unlock()
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := h.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		release(t, first)
		wg.Wait()
		last := first.FencingToken()
		for i := range waiters {
			if order[i] != i || tokens[i] <= last {
				t.Fatalf("order %v, tokens %v", order, tokens)
			}
			last = tokens[i]
		}
		if n := entries(c, "/locks/a"); n != 0 {
			t.Fatalf("%d entries left", n)
		}
	})
}

// TestEachReleaseWakesOneWaiter counts what the waiters hear and ask.
func TestEachReleaseWakesOneWaiter(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		waiters := rig.Times(30)
		h := acquire(t, New(connect(t, c), "/locks/a"))
		got := make(chan *Handle, waiters)
		for range waiters {
			cl := connect(t, c)
			go func() {
				if h, err := New(cl, "/locks/a").Acquire(t.Context()); err == nil {
					got <- h
				}
			}()
		}
		time.Sleep(time.Second)
		for range waiters {
			before := c.Counts()
			time.Sleep(time.Minute)
			if n := c.Counts(); n.Reads != before.Reads || n.Events != before.Events {
				t.Fatalf("waiters ask while nothing happens: %+v", n)
			}
			release(t, h)
			h = <-got
			synctest.Wait()
			// One event for the next in line and one for the holder's own watch
			// of its entry, if that was not ended in time.
			if n := c.Counts().Events - before.Events; n > 2 {
				t.Fatalf("%d events for one release", n)
			}
			if n := c.Counts().Reads - before.Reads; n > 2 {
				t.Fatalf("%d reads for one release", n)
			}
		}
		release(t, h)
	})
}

// TestWaitingCostsTheSameInAnyQueue: neither joining nor a handover lists the
// folder.
func TestWaitingCostsTheSameInAnyQueue(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		h := acquire(t, New(connect(t, c), "/l"))
		next := make(chan *Handle)
		for range 5 {
			cl := connect(t, c)
			before := c.Counts()
			go func() {
				if h, err := New(cl, "/l").Acquire(t.Context()); err == nil {
					next <- h
				}
			}()
			synctest.Wait()
			if n := c.Counts(); n.Reads-before.Reads != 1 || n.Writes-before.Writes != 1 || n.Watches-before.Watches != 2 {
				t.Fatalf("joining took %+v, before %+v", n, before)
			}
		}
		for range 5 {
			release(t, h)
			h = <-next
		}
		release(t, h)
		if n := c.Counts().Lists; n != 0 {
			t.Fatalf("the folder was listed %d times", n)
		}
	})
}

// TestSameNumberIsNoSecondFirst: an entry of another client with the number of
// ours is before it or behind it, by its name, and never beside it.
func TestSameNumberIsNoSecondFirst(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl, other := connect(t, c), connect(t, c)
		if _, err := other.Create(ctx, "/l", nil); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"/l/A-0000000002", "/l/z-0000000002"} { // ours begin with _
			if _, err := other.Create(ctx, name, nil, client.WithEphemeral()); err != nil {
				t.Fatal(err)
			}
		}
		got := make(chan *Handle, 1)
		go func() {
			if h, err := New(cl, "/l").Acquire(ctx); err == nil {
				got <- h
			}
		}()
		time.Sleep(time.Minute)
		if len(got) != 0 {
			t.Fatal("two are first")
		}
		c.Delete("/l/A-0000000002")
		h := <-got
		if name := h.Node(); name[len(name)-10:] != "0000000002" {
			t.Fatalf("the entry is %s", name)
		}
		release(t, h)
	})
}

// TestLeavingFromTheMiddle: waiters go away by context, by session loss and by
// an administrator; the others keep their order and nobody enters early.
func TestLeavingFromTheMiddle(t *testing.T) {
	r := seed.Rand(t)
	for range rig.Times(12) {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			const waiters = 12
			h := acquire(t, New(connect(t, c), "/l"))
			type result struct {
				i   int
				h   *Handle
				err error
			}
			results := make(chan result, waiters)
			cancels := make([]context.CancelFunc, waiters)
			clients := make([]*client.Client, waiters)
			for i := range waiters {
				var ctx context.Context
				ctx, cancels[i] = context.WithCancel(t.Context())
				clients[i] = connect(t, c)
				go func() {
					h, err := New(clients[i], "/l").Acquire(ctx)
					results <- result{i, h, err}
				}()
				time.Sleep(10 * time.Millisecond)
			}
			gone := map[int]bool{}
			for range waiters / 2 {
				i := r.IntN(waiters)
				if gone[i] {
					continue
				}
				gone[i] = true
				switch r.IntN(3) {
				case 0:
					cancels[i]()
				case 1:
					c.Expire(uint64(clients[i].Session().ID()))
				case 2:
					c.Server(c.Connected(uint64(clients[i].Session().ID()))).CutAll()
					cancels[i]()
				}
				if res := <-results; res.i != i || res.err == nil {
					t.Fatalf("waiter %d left, %d came back with %v", i, res.i, res.err)
				}
			}
			for i := range waiters {
				if gone[i] {
					continue
				}
				select {
				case res := <-results:
					t.Fatalf("waiter %d came in early: %v", res.i, res.err)
				case <-time.After(5 * time.Second):
				}
				release(t, h)
				res := <-results
				if res.i != i || res.err != nil {
					t.Fatalf("waiter %d comes before %d (%v)", res.i, i, res.err)
				}
				h = res.h
			}
			release(t, h)
			if n := entries(c, "/l"); n != 0 {
				t.Fatalf("%d entries left", n)
			}
			for _, f := range cancels {
				f()
			}
		})
	}
}

// TestCancelAnywhereLeavesNoEntry ends the context after each possible time,
// with answers lost and connections cut.
func TestCancelAnywhereLeavesNoEntry(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		holder := acquire(t, New(connect(t, c), "/l"))
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		n := 0
		actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
		for wait := time.Duration(0); wait < 800*time.Millisecond; wait += 7 * time.Millisecond {
			n++
			act, countdown := actions[n%3], n%5
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if countdown--; countdown == 0 {
					return act
				}
				return fakecoord.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			h, err := New(cl, "/l").Acquire(ctx)
			cancel()
			if h != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %s: %v", wait, err)
			}
			c.OnReply(nil)
		}
		time.Sleep(5 * time.Second)
		if left := entries(c, "/l"); left != 1 {
			t.Fatalf("%d entries, want the holder's: %v", left, c.Paths("/l/"))
		}
		release(t, holder)
		release(t, acquire(t, New(cl, "/l")))
	})
}

// TestLostReplyMakesNoSecondEntry: the create was done and its answer is lost.
func TestLostReplyMakesNoSecondEntry(t *testing.T) {
	for _, how := range []fakecoord.Action{fakecoord.Drop, fakecoord.Cut} {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c)
			m := New(cl, "/locks/x")
			release(t, acquire(t, m)) // the folder is there now
			lost := false
			c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
				if r.Seq != 0 && !lost {
					lost = true
					return how
				}
				return fakecoord.Pass
			})
			h := acquire(t, m)
			if n := entries(c, "/locks/x"); n != 1 || !lost {
				t.Fatalf("%d entries", n)
			}
			lost = false
			release(t, h)
			if n := entries(c, "/locks/x"); n != 0 || !lost {
				t.Fatalf("%d entries", n)
			}
		})
	}
}

func TestCancelWhileTheClusterIsGoneReturnsSoon(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		release(t, acquire(t, New(cl, "/l")))
		c.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := New(cl, "/l").Acquire(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Fatalf("took %s", took)
		}
		c.Thaw()
		time.Sleep(time.Second)
		if n := entries(c, "/l"); n != 0 {
			t.Fatalf("%d entries left", n)
		}
	})
}

func TestTryAcquireNamesTheHolder(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		a, b := connect(t, c), connect(t, c)
		held := acquire(t, New(a, "/l", Owner("batch-7"), Labels(map[string]string{"run": "9"})))
		m := New(b, "/l")
		before := c.Counts().Writes
		for range 100 {
			_, err := m.TryAcquire(t.Context())
			var busy *BusyError
			if !errors.Is(err, ErrBusy) || !errors.As(err, &busy) || busy.Holder.Owner != "batch-7" ||
				busy.Holder.Token != held.FencingToken() || busy.Holder.Labels["run"] != "9" || busy.Holder.Session != a.Session().ID() {
				t.Fatalf("got %v", err)
			}
		}
		if n := c.Counts().Writes - before; n != 0 {
			t.Fatalf("%d writes by failed tries", n)
		}
		release(t, held)
		h, err := m.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A second try by the same process is refused, not granted.
		if _, err = m.TryAcquire(t.Context()); !errors.Is(err, ErrBusy) {
			t.Fatalf("got %v", err)
		}
		release(t, h)
	})
}

func TestOfTwoTriesOneWins(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		a, b := connect(t, c), connect(t, c)
		for range 100 {
			var won atomic.Int32
			var wg sync.WaitGroup
			var handles [2]*Handle
			for i, cl := range []*client.Client{a, b} {
				wg.Go(func() {
					h, err := New(cl, "/l").TryAcquire(t.Context())
					if err == nil {
						won.Add(1)
						handles[i] = h
					} else if !errors.Is(err, ErrBusy) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if won.Load() != 1 {
				t.Fatalf("%d winners", won.Load())
			}
			for _, h := range handles {
				if h != nil {
					release(t, h)
				}
			}
			synctest.Wait()
			if n := entries(c, "/l"); n != 0 {
				t.Fatalf("%d entries left", n)
			}
		}
	})
}

func TestSameChainIsADeadlock(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := New(cl, "/l")
		var outer *Handle
		err := m.Do(t.Context(), func(ctx context.Context, h *Handle) error {
			outer = h
			if got, ok := FromContext(ctx, "/l"); !ok || got != h {
				t.Error("the handle is not in the context")
			}
			if _, ok := FromContext(ctx, "/other"); ok {
				t.Error("a handle of another lock")
			}
			if _, err := m.Acquire(ctx); !errors.Is(err, ErrDeadlock) {
				t.Errorf("acquire: %v", err)
			}
			if _, err := m.TryAcquire(h.Context()); !errors.Is(err, ErrDeadlock) {
				t.Errorf("try: %v", err)
			}
			return New(cl, "/other").Do(ctx, func(context.Context, *Handle) error { return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		// Released: the same chain may take it again.
		ctx := context.WithValue(t.Context(), handleKey{"/l"}, outer)
		h, err := m.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		release(t, h)
	})
}

func TestDoReturnsWhatHappened(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := New(cl, "/l")
		mine := errors.New("mine")
		if err := m.Do(t.Context(), func(context.Context, *Handle) error { return mine }); !errors.Is(err, mine) || errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
		err := m.Do(t.Context(), func(ctx context.Context, h *Handle) error {
			c.Delete(h.Node())
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("cause %v", context.Cause(ctx))
			}
			return nil
		})
		if !errors.Is(err, ErrLost) || !errors.Is(err, ErrDeleted) {
			t.Fatal(err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = m.Do(t.Context(), func(context.Context, *Handle) error { panic("x") })
		}()
		synctest.Wait()
		if n := entries(c, "/l"); n != 0 {
			t.Fatal("a panic left the lock held")
		}
		ctx, cancel := context.WithCancel(t.Context())
		err = m.Do(ctx, func(inner context.Context, _ *Handle) error {
			cancel()
			<-inner.Done()
			return inner.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, ErrLost) || entries(c, "/l") != 0 {
			t.Fatal(err)
		}
	})
}

// TestAcquireOnAClosedClient ends with a typed error and does not hang.
func TestAcquireOnAClosedClient(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		_ = cl.Close()
		if _, err := New(cl, "/l").Acquire(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Fatal(err)
		}
		plain := connect(t, c, client.WithoutSession())
		if _, err := New(plain, "/l").Acquire(t.Context()); !errors.Is(err, client.ErrBadArguments) {
			t.Fatal(err)
		}
		if _, err := New(connect(t, c), "no-slash").Acquire(t.Context()); !errors.Is(err, client.ErrBadPath) {
			t.Fatal(err)
		}
		if _, err := New(connect(t, c), "/l", SafetyMargin(time.Minute)).Acquire(t.Context()); !errors.Is(err, client.ErrBadArguments) {
			t.Fatal(err)
		}
	})
}

func TestParentsAreContainers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		release(t, acquire(t, New(cl, "/a/b/c")))
		for _, p := range []string{"/a", "/a/b", "/a/b/c"} {
			n, err := cl.Get(t.Context(), p)
			if err != nil || n.Stat.Kind != client.Container {
				t.Fatalf("%s: %v %v", p, n.Stat.Kind, err)
			}
		}
	})
}

// waitFor polls in fake time.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for range 10000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("waited in vain")
}
