package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
)

// asked is an Acquire that runs.
type asked struct {
	name string
	got  chan *Handle
	err  error // once got is closed
}

// ask begins to acquire and returns when the entry stands in the queue.
func ask(t *testing.T, ctx context.Context, name string, acquire func(context.Context) (*Handle, error)) *asked {
	t.Helper()
	a := &asked{name: name, got: make(chan *Handle, 1)}
	go func() {
		h, err := acquire(ctx)
		if err != nil {
			a.err = err
			close(a.got)
			return
		}
		a.got <- h
	}()
	time.Sleep(10 * time.Millisecond)
	return a
}

func (a *asked) wantGranted(t *testing.T) *Handle {
	t.Helper()
	select {
	case h := <-a.got:
		if h == nil {
			t.Fatalf("%s: %v", a.name, a.err)
		}
		return h
	case <-time.After(time.Second):
		t.Fatalf("%s does not get it", a.name)
		return nil
	}
}

func (a *asked) wantWaiting(t *testing.T) {
	t.Helper()
	select {
	case h := <-a.got:
		t.Fatalf("%s does not wait: %v %v", a.name, h, a.err)
	case <-time.After(time.Second):
	}
}

func (a *asked) wantError(t *testing.T, target error) {
	t.Helper()
	select {
	case h := <-a.got:
		if h != nil || !errors.Is(a.err, target) {
			t.Fatalf("%s: %v, want %v", a.name, a.err, target)
		}
	case <-time.After(time.Second):
		t.Fatalf("%s waits", a.name)
	}
}

func TestReadersShareAndWritersDoNot(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		m := func() *RWMutex { return NewRW(connect(t, c), "/rw") }
		r1 := ask(t, ctx, "r1", m().AcquireRead).wantGranted(t)
		r2 := ask(t, ctx, "r2", m().AcquireRead).wantGranted(t)
		w1 := ask(t, ctx, "w1", m().AcquireWrite)
		w1.wantWaiting(t)
		release(t, r1)
		w1.wantWaiting(t)
		release(t, r2)
		h := w1.wantGranted(t)
		w2 := ask(t, ctx, "w2", m().AcquireWrite)
		r3 := ask(t, ctx, "r3", m().AcquireRead)
		w2.wantWaiting(t)
		r3.wantWaiting(t)
		release(t, h)
		h = w2.wantGranted(t)
		r3.wantWaiting(t)
		release(t, h)
		release(t, r3.wantGranted(t))
		if n := entries(c, "/rw"); n != 0 {
			t.Fatalf("%d entries left", n)
		}
	})
}

// TestReaderDoesNotOvertakeAWaitingWriter, not even when the writer's turn is far
// off, and comes in when the writer gives up.
func TestReaderDoesNotOvertakeAWaitingWriter(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		first := ask(t, ctx, "r1", NewRW(connect(t, c), "/rw").AcquireRead).wantGranted(t)
		gaveUp, giveUp := context.WithCancel(ctx)
		w := ask(t, gaveUp, "w", NewRW(connect(t, c), "/rw").AcquireWrite)
		r := ask(t, ctx, "r2", NewRW(connect(t, c), "/rw").AcquireRead)
		r.wantWaiting(t)
		if _, err := NewRW(connect(t, c), "/rw").TryAcquireRead(ctx); !errors.Is(err, ErrBusy) {
			t.Fatalf("try: %v", err)
		}
		giveUp()
		w.wantError(t, context.Canceled)
		second := r.wantGranted(t)
		if !first.Held() {
			t.Fatal("the first reader lost it")
		}
		release(t, first)
		release(t, second)
	})
}

// TestReadersAndWritersInAllInterleavings: whoever waits for a read-write lock
// waits only for those before it, so that no two wait for each other, in any
// order of coming and going. kazoo's reader watched a later writer (kazoo#649).
func TestReadersAndWritersInAllInterleavings(t *testing.T) {
	const n = 4
	for word := range 1 << n { // bit: writer
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			clients := make([]*client.Client, n)
			for i := range clients {
				clients[i] = connect(t, c)
			}
			for i := range rig.Times(n * n) {
				leave := i * n * n / rig.Times(n*n) // in which order they release when several hold
				interleave(t, clients, word, leave)
			}
			if left := entries(c, "/rw"); left != 0 {
				t.Fatalf("%d entries left", left)
			}
		})
	}
}

// interleave lets contenders join in order and releases what is held, one at a
// time, until all have had it.
func interleave(t *testing.T, clients []*client.Client, word, leave int) {
	t.Helper()
	type holder struct {
		i int
		h *Handle
	}
	name := fmt.Sprintf("writers %04b, leaving %d", word, leave)
	writes := func(i int) bool { return word>>i&1 == 1 }
	waiting := make([]*asked, len(clients))
	for i, cl := range clients {
		acquire := NewRW(cl, "/rw").AcquireRead
		if writes(i) {
			acquire = NewRW(cl, "/rw").AcquireWrite
		}
		waiting[i] = ask(t, t.Context(), fmt.Sprintf("%s: %d", name, i), acquire)
	}
	var inside []holder
	var last fence.Token
	for next := 0; next < len(clients) || len(inside) > 0; leave /= 2 {
		for next < len(clients) && (len(inside) == 0 || !writes(next) && !writes(inside[0].i)) {
			h := waiting[next].wantGranted(t)
			if writes(next) && h.FencingToken() <= last {
				t.Fatalf("%s: token %s after %s", name, h.FencingToken(), last)
			}
			last = max(last, h.FencingToken())
			inside = append(inside, holder{next, h})
			next++
		}
		if next < len(clients) {
			synctest.Wait()
			if len(waiting[next].got) > 0 {
				t.Fatalf("%s: %d came in early", name, next)
			}
		}
		i := leave % len(inside)
		release(t, inside[i].h)
		inside = slices.Delete(inside, i, i+1)
	}
}

// TestReadWriteTokensRiseInTheOrderOfAcquisition: no writer has a token that a
// reader or writer before it had.
func TestReadWriteTokensRiseInTheOrderOfAcquisition(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		var mu sync.Mutex
		var last fence.Token
		var wg sync.WaitGroup
		for i := range 12 {
			m := NewRW(connect(t, c), "/rw")
			wg.Go(func() {
				for range 5 {
					acquire := m.AcquireWrite
					if i%3 != 0 {
						acquire = m.AcquireRead
					}
					h, err := acquire(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if i%3 == 0 && h.FencingToken() <= last {
						t.Errorf("a writer has token %s after %s", h.FencingToken(), last)
					}
					last = max(last, h.FencingToken())
					mu.Unlock()
					time.Sleep(time.Millisecond)
					if err := h.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestTryOfAReadWriteLock(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		m := NewRW(connect(t, c), "/rw", Owner("first"))
		other := NewRW(connect(t, c), "/rw")
		r, err := m.TryAcquireRead(ctx)
		if err != nil {
			t.Fatal(err)
		}
		r2, err := other.TryAcquireRead(ctx)
		if err != nil {
			t.Fatal(err)
		}
		before := c.Counts().Writes
		_, err = NewRW(connect(t, c), "/rw").TryAcquireWrite(ctx)
		var busy *BusyError
		if !errors.As(err, &busy) || busy.Holder.Owner != "first" || busy.Holder.Role != RoleRead ||
			busy.Holder.Token != r.FencingToken() || busy.Queue != 0 || !busy.Holder.Holds {
			t.Fatalf("try: %+v", busy)
		}
		if c.Counts().Writes != before {
			t.Fatal("a failed try has written")
		}
		release(t, r)
		release(t, r2)
		w, err := m.TryAcquireWrite(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, try := range []func(context.Context) (*Handle, error){other.TryAcquireRead, other.TryAcquireWrite} {
			if _, err := try(ctx); !errors.As(err, &busy) || busy.Holder.Role != RoleWrite || busy.Holder.Token != w.FencingToken() {
				t.Fatalf("try: %v", err)
			}
		}
		release(t, w)
	})
}

// TestNoUpgrade: in one call chain there is no second acquisition, of any role.
func TestNoUpgrade(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		m := NewRW(connect(t, c), "/rw")
		err := m.DoRead(t.Context(), func(ctx context.Context, h *Handle) error {
			for _, acquire := range []func(context.Context) (*Handle, error){m.AcquireRead, m.AcquireWrite, m.TryAcquireWrite} {
				if _, err := acquire(ctx); !errors.Is(err, ErrDeadlock) {
					t.Errorf("%v", err)
				}
			}
			if got, ok := FromContext(ctx, "/rw"); !ok || got != h {
				t.Error("the handle is not in the context")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.DoWrite(t.Context(), func(context.Context, *Handle) error { return nil }); err != nil {
			t.Fatal(err)
		}
	})
}

// TestReleasesWakeOnlyWhoIsNext counts what is heard and asked.
func TestReleasesWakeOnlyWhoIsNext(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		w := ask(t, ctx, "w", NewRW(connect(t, c), "/rw").AcquireWrite).wantGranted(t)
		var readers []*asked
		for range 5 {
			readers = append(readers, ask(t, ctx, "r", NewRW(connect(t, c), "/rw").AcquireRead))
		}
		last := ask(t, ctx, "last", NewRW(connect(t, c), "/rw").AcquireWrite)
		before := c.Counts()
		time.Sleep(time.Minute)
		if n := c.Counts(); n.Reads != before.Reads || n.Events != before.Events {
			t.Fatalf("waiters ask while nothing happens: %+v", n)
		}
		release(t, w)
		var held []*Handle
		for _, r := range readers {
			held = append(held, r.wantGranted(t))
		}
		last.wantWaiting(t)
		// For each reader the end of the writer, two looks for who is before it,
		// and the change of its own entry; of the last one's the writer behind it
		// hears too, and the first writer may hear of its own end.
		if n := c.Counts(); n.Reads-before.Reads > 2*5 || n.Events-before.Events > 2+2*5 || n.Lists != 0 {
			t.Fatalf("%+v, before %+v", n, before)
		}
		for i, h := range held {
			before = c.Counts()
			release(t, h)
			synctest.Wait()
			n := c.Counts()
			if i == len(held)-1 {
				if n.Reads-before.Reads > 2 {
					t.Fatalf("%d reads", n.Reads-before.Reads)
				}
			} else if n.Reads != before.Reads {
				t.Fatalf("%d reads when a reader before the last one leaves", n.Reads-before.Reads)
			}
		}
		release(t, last.wantGranted(t))
	})
}

func TestAnotherKindOfLockAtThePathIsRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		kinds := map[string]func(*client.Client) (*Handle, error){
			"mutex":     func(cl *client.Client) (*Handle, error) { return New(cl, "/l").Acquire(ctx) },
			"read":      func(cl *client.Client) (*Handle, error) { return NewRW(cl, "/l").AcquireRead(ctx) },
			"write":     func(cl *client.Client) (*Handle, error) { return NewRW(cl, "/l").AcquireWrite(ctx) },
			"semaphore": func(cl *client.Client) (*Handle, error) { return NewSemaphore(cl, "/l", 3).Acquire(ctx) },
		}
		a, b := connect(t, c), connect(t, c)
		for _, pair := range []string{"mutex read", "mutex write", "mutex semaphore", "read mutex", "write mutex", "write semaphore"} {
			one, two, _ := strings.Cut(pair, " ")
			h, err := kinds[one](a)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := kinds[two](b); !errors.Is(err, ErrOtherKind) {
				t.Fatalf("%s: %v", pair, err)
			}
			info, err := Inspect(ctx, b, "/l") // the semaphore may have left its folder of slots there
			if err != nil || info.Kind != h.place.f.kind || len(info.Holders) != 1 || info.Holders[0].Node != h.Node() {
				t.Fatalf("%s: %+v %v", pair, info, err)
			}
			release(t, h)
		}
	})
}

func TestInspectShowsReadersAndWriters(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		m := func(owner string) *RWMutex {
			return NewRW(connect(t, c), "/rw", Owner(owner), Value([]byte("at "+owner)))
		}
		r1 := ask(t, ctx, "r1", m("r1").AcquireRead).wantGranted(t)
		r2 := ask(t, ctx, "r2", m("r2").AcquireRead).wantGranted(t)
		w := ask(t, ctx, "w", m("w").AcquireWrite)
		r3 := ask(t, ctx, "r3", m("r3").AcquireRead)
		if err := r2.SetValue(ctx, []byte("elsewhere")); err != nil {
			t.Fatal(err)
		}
		info, err := Inspect(ctx, connect(t, c), "/rw")
		if err != nil || info.Kind != KindRW || len(info.Holders) != 2 || len(info.Waiters) != 2 || len(info.Warnings) != 0 {
			t.Fatalf("%+v %v", info, err)
		}
		for i, want := range []struct {
			owner, value, role string
			token              fence.Token
		}{{"r1", "at r1", RoleRead, r1.FencingToken()}, {"r2", "elsewhere", RoleRead, r2.FencingToken()}, {"w", "at w", RoleWrite, 0}, {"r3", "at r3", RoleRead, 0}} {
			p := append(slices.Clone(info.Holders), info.Waiters...)[i]
			if p.Owner != want.owner || string(p.Value) != want.value || p.Role != want.role || p.Token != want.token ||
				p.Holds != (i < 2) || p.Acquired.IsZero() != (i >= 2) || p.Slot != -1 || p.Session == 0 || p.Pattern != PatternCurator {
				t.Errorf("%+v, want %+v", p, want)
			}
		}
		release(t, r1)
		release(t, r2)
		release(t, w.wantGranted(t))
		release(t, r3.wantGranted(t))
	})
}
