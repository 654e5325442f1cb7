package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
)

// TestOnePutWakesOneTaker counts what many idle takers hear and ask.
func TestOnePutWakesOneTaker(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		takers := rig.Times(60)
		got := make(chan *Item, takers)
		for range takers {
			q := New(connect(t, c), "/q")
			go func() {
				if it, err := q.Take(t.Context()); err == nil {
					got <- it
				}
			}()
			synctest.Wait()
		}
		q := New(connect(t, c), "/q")
		for i := range takers {
			time.Sleep(time.Second) // the next in line takes its place
			synctest.Wait()
			before := c.Counts()
			time.Sleep(time.Minute)
			if n := c.Counts(); n.Reads != before.Reads || n.Events != before.Events {
				t.Fatal("takers ask while nothing happens")
			}
			put(t, q, fmt.Sprint(i))
			it := <-got
			wantData(t, it, fmt.Sprint(i))
			synctest.Wait()
			n := c.Counts()
			// The taker: its item, then its own claim. The next in line: that it is
			// first now, and what the items are.
			if events := n.Events - before.Events; events > 8 {
				t.Fatalf("%d events for one put", events)
			}
			if reads := n.Reads - before.Reads; reads > 8 {
				t.Fatalf("%d reads for one put", reads)
			}
			must(t, it.Done(t.Context()))
		}
	})
}

// TestTakeDoesNotListTheQueue: with many items, a Take costs what it costs with
// few.
func TestTakeDoesNotListTheQueue(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.PageSize = 100
		cl := connect(t, c)
		q := New(cl, "/q")
		put(t, q, "0")
		var wg sync.WaitGroup
		items := rig.Times(2000)
		for i := 1; i < items; i++ {
			wg.Go(func() { put(t, q, fmt.Sprint(i)) })
		}
		wg.Wait()
		must(t, take(t, q).Done(t.Context())) // it reads the names
		for range 50 {
			before := c.Counts()
			it := take(t, q)
			must(t, it.Done(t.Context()))
			synctest.Wait()
			n := c.Counts()
			// The stand-in keeps no pzxid of folders, so a claim may be tried in vain.
			if reads := n.Reads - before.Reads; reads > 12 {
				t.Fatalf("%d reads for one of %d items", reads, items)
			}
			if writes := n.Writes - before.Writes; writes > 5 {
				t.Fatalf("%d writes", writes)
			}
		}
		if n, err := q.Len(t.Context()); n != items-51 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// TestTakersAreServedInOrder: who came first gets the first item.
func TestTakersAreServedInOrder(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		var outs []<-chan taken
		for range 6 {
			outs = append(outs, taking(t.Context(), New(connect(t, c), "/q")))
			synctest.Wait()
		}
		q := New(connect(t, c), "/q")
		for i := range outs {
			put(t, q, fmt.Sprint(i))
		}
		for i, out := range outs {
			got := <-out
			must(t, got.err)
			wantData(t, got.it, fmt.Sprint(i))
		}
	})
}

// TestTakerEndsWithContextOrSession and nobody behind it waits for ever.
func TestTakerEndsWithContextOrSession(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		first, second := connect(t, c), connect(t, c)
		a := taking(t.Context(), New(first, "/q"))
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		b := taking(ctx, New(second, "/q"))
		synctest.Wait()
		third := taking(t.Context(), New(connect(t, c), "/q"))
		synctest.Wait()
		cancel()
		if got := <-b; !errors.Is(got.err, context.Canceled) {
			t.Fatal(got.err)
		}
		c.Expire(uint64(first.Session().ID()))
		if got := <-a; !errors.Is(got.err, client.ErrSessionExpired) {
			t.Fatal(got.err)
		}
		q := New(second, "/q")
		put(t, q, "1")
		got := <-third
		must(t, got.err)
		must(t, got.it.Done(t.Context()))
		wantEmpty(t, c, "/q")
		if _, err := New(first, "/q").Take(t.Context()); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
		if _, err := New(connect(t, c, client.WithoutSession()), "/q").Take(t.Context()); !errors.Is(err, client.ErrBadArguments) {
			t.Fatal(err)
		}
	})
}

// TestDeletedPlacesAreTakenAgain: an administrator clears the line.
func TestDeletedPlacesAreTakenAgain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var outs []<-chan taken
		for range 3 {
			outs = append(outs, taking(t.Context(), New(connect(t, c), "/q")))
			synctest.Wait()
		}
		for _, p := range c.Paths("/q/takers/") {
			c.Delete(p)
		}
		synctest.Wait()
		q := New(connect(t, c), "/q")
		for i := range 3 {
			put(t, q, fmt.Sprint(i))
		}
		for _, out := range outs {
			got := <-out
			must(t, got.err)
			must(t, got.it.Done(t.Context()))
		}
		wantEmpty(t, c, "/q")
	})
}

// TestQueueThatIsDeletedAndMadeAnew by an administrator, with the same names.
func TestQueueThatIsDeletedAndMadeAnew(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		q, worker := New(connect(t, c), "/q"), New(connect(t, c), "/q")
		for round := range 3 {
			put(t, q, "a", Key("k"))
			put(t, q, fmt.Sprint(round))
			it := take(t, worker)
			wantData(t, it, "a")
			paths := c.Paths("/q")
			for i := range paths {
				c.Delete(paths[len(paths)-1-i])
			}
			if err := it.Done(t.Context()); !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
			if n, err := q.Len(t.Context()); n != 0 || err != nil {
				t.Fatal(n, err)
			}
		}
		put(t, q, "b")
		wantData(t, take(t, worker), "b")
	})
}

// TestItemIsLostBeforeAnotherGetsIt: nothing reaches the worker any more; its own
// clock tells it, a margin before the cluster can give the item away.
func TestItemIsLostBeforeAnotherGetsIt(t *testing.T) {
	for _, rate := range []float64{0.93, 1, 1.05} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			began := time.Now()
			clock := func() time.Duration { return time.Duration(float64(time.Since(began)) * rate) }
			cl := connect(t, c, client.WithSessionTimeout(10*time.Second), client.WithClock(clock))
			q := New(cl, "/q")
			put(t, q, "1")
			it := take(t, q)
			time.Sleep(30 * time.Second)
			if it.Context().Err() != nil {
				t.Fatal(context.Cause(it.Context()))
			}
			c.Server("n1").Stop()
			for it.Context().Err() == nil {
				if c.ExpireSilent() != 0 {
					t.Fatal("the cluster was first")
				}
				time.Sleep(time.Millisecond)
			}
			if cause := context.Cause(it.Context()); !errors.Is(cause, ErrMargin) || !errors.Is(cause, ErrLost) {
				t.Fatal(cause)
			}
			if err := it.Done(t.Context()); !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
		})
	}
}

// TestGivenUpByTheMarginComesOutAgain although the session lives on.
func TestGivenUpByTheMarginComesOutAgain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		q := New(cl, "/q")
		put(t, q, "1")
		it := take(t, q)
		c.Server("n1").Mute()
		<-it.Context().Done()
		c.Server("n1").Unmute()
		next := take(t, New(connect(t, c), "/q"))
		if next.Token <= it.Token || next.Deliveries != 2 || cl.Session().Context().Err() != nil {
			t.Fatalf("%+v", next)
		}
	})
}

// TestItemCarriesItsToken to code that talks to a fenced resource.
func TestItemCarriesItsToken(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		q := New(connect(t, c), "/q")
		put(t, q, "1")
		it := take(t, q)
		g, ok := fence.FromContext(it.Context())
		if !ok || g.Token != it.Token || !strings.HasPrefix(g.Lock, "/q/items/") {
			t.Fatalf("%+v %v", g, ok)
		}
		must(t, it.Done(t.Context()))
		if !errors.Is(context.Cause(it.Context()), ErrDone) {
			t.Fatal(context.Cause(it.Context()))
		}
	})
}

// TestCancelAnywhereLeavesNothing ends the context of Take after each possible
// time, with answers lost and connections cut; no item is lost and none stays
// claimed.
func TestCancelAnywhereLeavesNothing(t *testing.T) {
	for _, full := range []bool{false, true} {
		fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c, client.WithSessionTimeout(time.Minute))
			q := New(cl, "/q")
			if full {
				put(t, q, "1")
			}
			n := 0
			actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
			for wait := time.Duration(0); wait < 400*time.Millisecond; wait += 7 * time.Millisecond {
				n++
				act, countdown := actions[n%3], 1+n%9
				c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
					if countdown--; countdown == 0 {
						return act
					}
					return fakecoord.Pass
				})
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				it, err := q.Take(ctx)
				cancel()
				c.OnReply(nil)
				if it != nil {
					must(t, it.Return(t.Context(), 0))
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("after %s: %v", wait, err)
				}
			}
			time.Sleep(5 * time.Second)
			if full {
				it := take(t, New(connect(t, c), "/q"))
				must(t, it.Done(t.Context()))
			}
			wantEmpty(t, c, "/q")
		})
	}
}
