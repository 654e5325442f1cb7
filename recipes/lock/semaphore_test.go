package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
)

// onlySlots fails unless nothing is left of a semaphore but the folder of slots.
func onlySlots(t *testing.T, c *fakecoord.Cluster, path string) {
	t.Helper()
	if left := c.Paths(path + "/"); len(left) != 1 || left[0] != slotsOf(path) {
		t.Fatalf("left: %v", left)
	}
}

func TestSemaphoreLetsInUpToItsLimitInOrder(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		const n, contenders = 3, 12
		var all []*asked
		for i := range contenders {
			all = append(all, ask(t, ctx, fmt.Sprint(i), NewSemaphore(connect(t, c), "/s", n).Acquire))
		}
		var held []*Handle
		var last fence.Token
		marks := map[int]fence.Token{}
		for i, a := range all {
			if i >= n {
				a.wantWaiting(t)
				release(t, held[(i*2)%n]) // any of them: the slot goes to the next in line
				held = append(held[:(i*2)%n], held[(i*2)%n+1:]...)
			}
			h := a.wantGranted(t)
			if h.FencingToken() <= last || h.FencingToken() <= marks[h.Slot()] || h.Slot() < 0 || h.Slot() >= n {
				t.Fatalf("%d has token %s of slot %d after %s", i, h.FencingToken(), h.Slot(), last)
			}
			last = h.FencingToken()
			marks[h.Slot()] = last
			for _, o := range held {
				if o.Slot() == h.Slot() {
					t.Fatalf("two have slot %d", h.Slot())
				}
			}
			held = append(held, h)
		}
		for _, h := range held {
			release(t, h)
		}
		onlySlots(t, c, "/s")
	})
}

// TestAFreeSlotWakesOneWaiter: of those in the queue only the first looks at the
// slots, and only its neighbour hears that it has left the queue.
func TestAFreeSlotWakesOneWaiter(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		waiters := rig.Times(20)
		h := ask(t, ctx, "holder", NewSemaphore(connect(t, c), "/s", 1).Acquire).wantGranted(t)
		var all []*asked
		for i := range waiters {
			all = append(all, ask(t, ctx, fmt.Sprint(i), NewSemaphore(connect(t, c), "/s", 1).Acquire))
		}
		for _, a := range all {
			before := c.Counts()
			time.Sleep(time.Minute)
			if n := c.Counts(); n.Reads != before.Reads || n.Events != before.Events {
				t.Fatalf("waiters ask while nothing happens: %+v", n)
			}
			release(t, h)
			h = a.wantGranted(t)
			synctest.Wait()
			n := c.Counts()
			// The first: that a slot is free, two reads. Its neighbour: that it is
			// the first, its place and two reads of the slots. The former holder
			// may hear of the end of its slot, and the new one of its own doings:
			// the end of its entry, and the slot that it has taken.
			if n.Reads-before.Reads > 5 || n.Events-before.Events > 5 || n.Writes-before.Writes != 2 {
				t.Fatalf("%+v, before %+v", n, before)
			}
		}
		release(t, h)
	})
}

func TestWrongLimitIsRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		a, b := connect(t, c), connect(t, c)
		h := ask(t, ctx, "a", NewSemaphore(a, "/s", 3).Acquire).wantGranted(t)
		wantMismatch := func(err error, have, want int) {
			t.Helper()
			var e *LimitError
			if !errors.Is(err, ErrLimitMismatch) || !errors.As(err, &e) || e.Have != have || e.Want != want || e.Path != "/s" {
				t.Fatalf("%v", err)
			}
		}
		before := c.Counts().Writes
		_, err := NewSemaphore(b, "/s", 5).Acquire(ctx)
		wantMismatch(err, 3, 5)
		_, err = NewSemaphore(b, "/s", 2).TryAcquire(ctx)
		wantMismatch(err, 3, 2)
		if c.Counts().Writes != before {
			t.Fatal("a refused one has written")
		}
		release(t, h)
		// Nobody uses it: the limit is what the next one wants.
		h = ask(t, ctx, "b", NewSemaphore(b, "/s", 5).Acquire).wantGranted(t)
		_, err = NewSemaphore(a, "/s", 3).Acquire(ctx)
		wantMismatch(err, 5, 3)
		release(t, h)
		onlySlots(t, c, "/s")
		for _, n := range []int{0, -1, MaxLimit + 1} {
			if _, err := NewSemaphore(a, "/s", n).Acquire(ctx); !errors.Is(err, client.ErrBadArguments) {
				t.Fatalf("limit %d: %v", n, err)
			}
		}
	})
}

// TestLimitChangedByAnOperator while the semaphore is in use: those in the queue
// that want the old one are refused, holders keep their slots, and nobody comes
// in until fewer slots are taken than the new limit.
func TestLimitChangedByAnOperator(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		op := connect(t, c)
		var held []*Handle
		for range 3 {
			held = append(held, ask(t, ctx, "holder", NewSemaphore(connect(t, c), "/s", 3).Acquire).wantGranted(t))
		}
		old := ask(t, ctx, "old", NewSemaphore(connect(t, c), "/s", 3).Acquire)
		if _, err := op.Set(ctx, "/s/slots", []byte(`{"limit":2}`), client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		old.wantError(t, ErrLimitMismatch)
		next := ask(t, ctx, "new", NewSemaphore(connect(t, c), "/s", 2).Acquire)
		for _, h := range held[:2] { // three are taken, then two of two
			next.wantWaiting(t)
			if !h.Held() || !held[2].Held() {
				t.Fatal("a holder lost its slot")
			}
			release(t, h)
		}
		h := next.wantGranted(t)
		info, err := Inspect(ctx, op, "/s")
		if err != nil || info.Limit != 2 || info.Kind != KindSemaphore || len(info.Holders) != 2 {
			t.Fatalf("%+v %v", info, err)
		}
		release(t, h)
		release(t, held[2])
		if _, err := op.Set(ctx, "/s/slots", []byte("many"), client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		// Nonsense is replaced, as nobody uses it.
		release(t, ask(t, ctx, "after", NewSemaphore(connect(t, c), "/s", 4).Acquire).wantGranted(t))
	})
}

// TestOfTwoLimitsOneWins: of those that come at the same time to a semaphore that
// is not in use, with different limits, those with one limit get it and the
// others are refused; never more than the stored limit hold it.
func TestOfTwoLimitsOneWins(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		var clients []*client.Client
		for range 6 {
			clients = append(clients, connect(t, c))
		}
		eye := connect(t, c)
		for round := range 50 {
			var all []*asked
			for i, cl := range clients {
				a := &asked{name: fmt.Sprint(i), got: make(chan *Handle, 1)}
				all = append(all, a)
				go func() {
					h, err := NewSemaphore(cl, "/s", 1+(i+round)%3).Acquire(ctx)
					a.err = err
					a.got <- h
				}()
			}
			for range clients {
				synctest.Wait()
				var held []*Handle
				for _, a := range all {
					if len(a.got) == 0 {
						continue
					}
					if h := <-a.got; h != nil {
						held = append(held, h)
					} else if !errors.Is(a.err, ErrLimitMismatch) {
						t.Fatalf("%s: %v", a.name, a.err)
					}
				}
				info, err := Inspect(ctx, eye, "/s")
				if err != nil || len(info.Holders) > info.Limit || len(held) > info.Limit {
					t.Fatalf("%+v %v, %d hold", info, err, len(held))
				}
				for _, h := range held {
					release(t, h)
				}
			}
			onlySlots(t, c, "/s")
		}
	})
}

func TestTryOfASemaphore(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		m := NewSemaphore(connect(t, c), "/s", 2, Owner("first"))
		h1, err := m.TryAcquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		h2, err := m.TryAcquire(ctx)
		if err != nil || h2.Slot() == h1.Slot() {
			t.Fatal(err)
		}
		before := c.Counts().Writes
		_, err = NewSemaphore(connect(t, c), "/s", 2).TryAcquire(ctx)
		var busy *BusyError
		if !errors.As(err, &busy) || busy.Limit != 2 || busy.Queue != 0 || busy.Holder.Owner != "first" || busy.Holder.Slot != 0 ||
			busy.Holder.Token != h1.FencingToken() || !strings.Contains(err.Error(), "2 slots") {
			t.Fatalf("%+v", busy)
		}
		if c.Counts().Writes != before {
			t.Fatal("a failed try has written")
		}
		w := ask(t, ctx, "waiter", m.Acquire)
		if _, err := m.TryAcquire(ctx); !errors.As(err, &busy) || busy.Queue != 1 {
			t.Fatalf("%+v", err)
		}
		release(t, h1)
		release(t, h2)
		release(t, w.wantGranted(t))
		onlySlots(t, c, "/s")
	})
}

// TestTriesOfASemaphoreNeverWait: size one, many at once; each returns at once and
// leaves nothing that hangs later ones or Close (kazoo#82).
func TestTriesOfASemaphoreNeverWait(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		holder := ask(t, ctx, "holder", NewSemaphore(connect(t, c), "/s", 1).Acquire).wantGranted(t)
		var busy atomic.Int32
		cl := connect(t, c)
		began := time.Now()
		for range 20 {
			go func() {
				if _, err := NewSemaphore(cl, "/s", 1).TryAcquire(ctx); errors.Is(err, ErrBusy) {
					busy.Add(1)
				}
			}()
		}
		synctest.Wait()
		if busy.Load() != 20 {
			t.Fatalf("%d were told", busy.Load())
		}
		if err := cl.Close(); err != nil || time.Since(began) > time.Second {
			t.Fatalf("close: %v after %s", err, time.Since(began))
		}
		release(t, holder)
		onlySlots(t, c, "/s")
	})
}

// TestSlotIsTakenInOneTransaction: at no moment is a contender neither in the queue
// nor in a slot, or in both.
func TestSlotIsTakenInOneTransaction(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		eye := connect(t, c)
		if _, err := eye.Create(ctx, "/s", nil); err != nil {
			t.Fatal(err)
		}
		seen := make(chan client.Event, 100)
		watching, stop := context.WithCancel(ctx)
		go func() {
			for ev, err := range eye.Watch(watching, "/s", client.Recursive()) {
				if err != nil {
					return
				}
				seen <- ev
			}
		}()
		synctest.Wait()
		release(t, ask(t, ctx, "a", NewSemaphore(connect(t, c), "/s", 2).Acquire).wantGranted(t))
		synctest.Wait()
		stop()
		left, taken := client.Zxid(0), client.Zxid(0)
		for len(seen) > 0 {
			switch ev := <-seen; {
			case strings.Contains(ev.Path, string(roleSlot)) && ev.Type == client.EventDeleted:
				left = ev.Zxid
			case ev.Path == "/s/slots/0" && ev.Type == client.EventCreated:
				taken = ev.Zxid
			}
		}
		if left == 0 || left != taken {
			t.Fatalf("left the queue at %s, took the slot at %s", left, taken)
		}
	})
}

// TestSlotsDeletedAndMadeAnew while contenders wait and hold: holders learn that
// their slots have gone, and waiters go on (the path is the same, the node is
// not).
func TestSlotsDeletedAndMadeAnew(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		h := ask(t, ctx, "holder", NewSemaphore(connect(t, c), "/s", 1).Acquire).wantGranted(t)
		w := ask(t, ctx, "waiter", NewSemaphore(connect(t, c), "/s", 1).Acquire)
		op := connect(t, c)
		guard := h.Guard()
		if _, err := op.Txn(ctx, client.OpDelete("/s/slots/0", client.AnyVersion), client.OpDelete("/s/slots", client.AnyVersion)); err != nil {
			t.Fatal(err)
		}
		next := w.wantGranted(t)
		if cause := lostWithin(t, h, time.Second); !errors.Is(cause, ErrDeleted) {
			t.Fatalf("cause %v", cause)
		}
		if next.Node() != h.Node() || next.FencingToken() <= h.FencingToken() {
			t.Fatalf("%s %s", next.Node(), next.FencingToken())
		}
		if _, err := op.Txn(ctx, guard, client.OpCreate("/late", nil)); err == nil {
			t.Fatal("the guard of a former holder passes for the next one's slot")
		}
		if err := h.Release(ctx); !errors.Is(err, ErrLost) {
			t.Fatalf("late release: %v", err)
		}
		if err := next.Verify(ctx); err != nil {
			t.Fatal(err)
		}
		release(t, next)
	})
}

// TestStrangeChildrenAreNotSlots: they take no room and are pointed out.
func TestStrangeChildrenAreNotSlots(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		op := connect(t, c)
		release(t, ask(t, ctx, "a", NewSemaphore(op, "/s", 1).Acquire).wantGranted(t))
		for _, name := range []string{"00", "+1", "-1", "x", "0x1"} {
			if _, err := op.Create(ctx, "/s/slots/"+name, nil); err != nil {
				t.Fatal(err)
			}
		}
		h := ask(t, ctx, "a", NewSemaphore(op, "/s", 1).Acquire).wantGranted(t)
		info, err := Inspect(ctx, op, "/s")
		if err != nil || len(info.Holders) != 1 || len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "0x1") {
			t.Fatalf("%+v %v", info, err)
		}
		p := info.Holders[0]
		if p.Slot != 0 || !p.Holds || p.Token != h.FencingToken() || p.Acquired.IsZero() || p.Since.IsZero() || p.Node != h.Node() {
			t.Fatalf("%+v", p)
		}
		release(t, h)
	})
}
