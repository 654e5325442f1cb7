package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/internal/rig"
)

// begin starts an Acquire in the background and returns when it waits.
func begin(ctx context.Context, acquire func(context.Context) (*Handle, error)) <-chan error {
	got := make(chan error, 1)
	go func() {
		h, err := acquire(ctx)
		if err == nil {
			err = h.Release(context.Background())
		}
		got <- err
	}()
	synctest.Wait()
	return got
}

func deadlocks(t *testing.T, c *client.Client, root string) []Cycle {
	t.Helper()
	cycles, err := Deadlocks(t.Context(), c, root)
	if err != nil {
		t.Fatal(err)
	}
	for _, cycle := range cycles {
		for i, w := range cycle {
			next := cycle[(i+1)%len(cycle)]
			if w.Holder.Session != next.Waiter.Session || w.Holder.Session == w.Waiter.Session {
				t.Fatalf("no cycle: %+v", cycle)
			}
		}
		if last := cycle[len(cycle)-1]; slices.ContainsFunc(cycle, func(w Wait) bool { return w.began > last.began }) {
			t.Fatalf("the youngest is not the last: %+v", cycle)
		}
	}
	return cycles
}

// circle makes a deadlock of n sessions, each with one lock of the given kind,
// and returns their waits.
func circle(t *testing.T, c *fakecoord.Cluster, n int, kind func(cl *client.Client, path, owner string) func(context.Context) (*Handle, error)) []<-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	clients := make([]*client.Client, n)
	for i := range clients {
		clients[i] = connect(t, c)
		if _, err := kind(clients[i], fmt.Sprintf("/l/%d", i), fmt.Sprintf("o%d", i))(ctx); err != nil {
			t.Fatal(err)
		}
	}
	var waits []<-chan error
	for i, cl := range clients {
		waits = append(waits, begin(ctx, kind(cl, fmt.Sprintf("/l/%d", (i+1)%n), fmt.Sprintf("o%d", i))))
	}
	t.Cleanup(func() {
		cancel()
		for _, w := range waits {
			<-w
		}
	})
	return waits
}

func mutexes(cl *client.Client, path, owner string) func(context.Context) (*Handle, error) {
	return New(cl, path, Owner(owner)).Acquire
}

// TestDeadlockIsFoundAndNamed: cycles of two and more, over all kinds of locks.
func TestDeadlockIsFoundAndNamed(t *testing.T) {
	kinds := map[string]func(cl *client.Client, path, owner string) func(context.Context) (*Handle, error){
		"mutex": mutexes,
		"write": func(cl *client.Client, path, owner string) func(context.Context) (*Handle, error) {
			return NewRW(cl, path, Owner(owner)).AcquireWrite
		},
		"semaphore": func(cl *client.Client, path, owner string) func(context.Context) (*Handle, error) {
			return NewSemaphore(cl, path, 1, Owner(owner)).Acquire
		},
		"multi": func(cl *client.Client, path, owner string) func(context.Context) (*Handle, error) {
			return func(ctx context.Context) (*Handle, error) {
				h, err := NewMulti(cl, []string{path, "/more" + path}, Owner(owner)).Acquire(ctx)
				if err != nil {
					return nil, err
				}
				return h.Handle(path), nil
			}
		},
	}
	for name, kind := range kinds {
		for _, n := range []int{2, 3, 7} {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
					if _, err := connect(t, c).Create(t.Context(), "/l", nil); err != nil {
						t.Fatal(err)
					}
					waits := circle(t, c, n, kind)
					look := connect(t, c)
					for _, root := range []string{"/", "/l", "/l/0"} { // led outside of the root as well
						cycles := deadlocks(t, look, root)
						if len(cycles) != 1 || len(cycles[0]) != n {
							t.Fatalf("%s: cycles %v", root, cycles)
						}
						text := cycles[0].String()
						for i := range n {
							a, b := i, (i+1)%n
							if name == "multi" {
								continue // in which of its two locks is open
							}
							if want := fmt.Sprintf("o%d waits for /l/%d, which o%d holds", a, b, b); !strings.Contains(text, want) {
								t.Fatalf("%q does not say %q", text, want)
							}
						}
					}
					for _, w := range waits {
						if len(w) != 0 {
							t.Fatalf("somebody went on: %v", <-w)
						}
					}
				})
			})
		}
	}
}

// TestRefusedSemaphoreHidesNoDeadlock: it leaves its folder of slots beside a
// mutex, which does not make that a semaphore.
func TestRefusedSemaphoreHidesNoDeadlock(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		circle(t, c, 2, mutexes)
		cl := connect(t, c)
		for i := range 2 {
			if _, err := NewSemaphore(cl, fmt.Sprintf("/l/%d", i), 2).TryAcquire(t.Context()); err == nil {
				t.Fatal("a slot beside a mutex")
			}
		}
		if cycles := deadlocks(t, cl, "/l"); len(cycles) != 1 || len(cycles[0]) != 2 {
			t.Fatalf("cycles %v", cycles)
		}
	})
}

// TestReadersAreFollowedToAllOfThem: a writer waits for each of the readers, and
// a reader behind the writer for the same.
func TestReadersAreFollowedToAllOfThem(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		r1, r2, w, late := connect(t, c), connect(t, c), connect(t, c), connect(t, c)
		for _, cl := range []*client.Client{r1, r2} {
			if _, err := NewRW(cl, "/rw").AcquireRead(ctx); err != nil {
				t.Fatal(err)
			}
		}
		mine := acquire(t, New(w, "/m"))
		acquire(t, New(late, "/n"))
		writing := begin(ctx, NewRW(w, "/rw").AcquireWrite)
		if got := deadlocks(t, w, "/"); got != nil {
			t.Fatalf("nobody waits for the writer: %v", got)
		}
		waiting := begin(ctx, New(r2, "/m").Acquire)
		if got := deadlocks(t, w, "/rw"); len(got) != 1 || len(got[0]) != 2 {
			t.Fatalf("cycles %v", got)
		}
		reading := begin(ctx, NewRW(late, "/rw").AcquireRead)
		also := begin(ctx, New(r1, "/n").Acquire)
		if got := deadlocks(t, w, "/n"); len(got) != 1 || len(got[0]) != 2 {
			t.Fatalf("a reader that waits behind a writer: %v", got)
		}
		if got := deadlocks(t, w, "/"); len(got) != 2 {
			t.Fatalf("both: %v", got)
		}
		release(t, mine)
		cancel()
		for _, ch := range []<-chan error{writing, waiting, reading, also} {
			<-ch
		}
	})
}

// TestOneFreeHolderIsEnoughForASemaphore: who waits for a slot waits for any.
func TestOneFreeHolderIsEnoughForASemaphore(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		a, b, w := connect(t, c), connect(t, c), connect(t, c)
		for _, cl := range []*client.Client{a, b} {
			if _, err := NewSemaphore(cl, "/s", 2).Acquire(ctx); err != nil {
				t.Fatal(err)
			}
		}
		acquire(t, New(w, "/m"))
		slot := begin(ctx, NewSemaphore(w, "/s", 2).Acquire)
		first := begin(ctx, New(a, "/m").Acquire)
		if got := deadlocks(t, w, "/"); got != nil {
			t.Fatalf("b may give its slot back: %v", got)
		}
		second := begin(ctx, New(b, "/m").Acquire)
		if got := deadlocks(t, w, "/"); len(got) != 2 { // a and b are in one each
			t.Fatalf("cycles %v", got)
		}
		cancel()
		for _, ch := range []<-chan error{slot, first, second} {
			<-ch
		}
	})
}

// TestNoDeadlockWhereThereIsNone: plain queues, tasks of one session that wait for
// each other, a lingering holder, numbered children that are no queue.
func TestNoDeadlockWhereThereIsNone(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		one := connect(t, c)
		acquire(t, New(one, "/q"))
		var waits []<-chan error
		for range 20 {
			waits = append(waits, begin(ctx, New(connect(t, c), "/q").Acquire))
		}
		waits = append(waits, begin(ctx, New(one, "/q").Acquire)) // another task
		other := connect(t, c)
		for i, cl := range []*client.Client{one, other, other, one} { // members of groups, in any order
			dir := fmt.Sprintf("/group%d", i/2)
			if _, err := cl.Create(ctx, dir, nil); err != nil && !errors.Is(err, client.ErrNodeExists) {
				t.Fatal(err)
			}
			if _, err := cl.Create(ctx, dir+"/m-", nil, client.WithEphemeral(), client.WithSequential()); err != nil {
				t.Fatal(err)
			}
		}
		if got := deadlocks(t, one, "/"); got != nil {
			t.Fatalf("cycles %v", got)
		}
		if _, err := Deadlocks(ctx, one, "/nowhere"); !errors.Is(err, client.ErrNoNode) {
			t.Fatalf("no root: %v", err)
		}
		cancel()
		for _, w := range waits {
			<-w
		}
	})
}

// TestForeignContendersAreFollowed: locks of kazoo, by their names.
func TestForeignContendersAreFollowed(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		a, b := connect(t, c), connect(t, c)
		const id = "0123456789abcdef0123456789abcdef__lock__"
		for _, lock := range []string{"/x", "/y"} {
			if _, err := a.Create(t.Context(), lock, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range []struct {
			cl   *client.Client
			lock string
		}{{a, "/x"}, {b, "/y"}, {a, "/y"}, {b, "/x"}} {
			if _, err := e.cl.Create(t.Context(), e.lock+"/"+id, []byte("host"), client.WithEphemeral(), client.WithSequential()); err != nil {
				t.Fatal(err)
			}
		}
		if got := deadlocks(t, a, "/"); len(got) != 1 || got[0][0].Waiter.Owner != "host" || got[0][0].Waiter.Pattern != PatternKazoo {
			t.Fatalf("cycles %v", got)
		}
	})
}

// TestOrderedLockingIsNeverCalledADeadlock: many take several locks, always in
// one order, while somebody looks all the time.
func TestOrderedLockingIsNeverCalledADeadlock(t *testing.T) {
	s := seed.New(t)
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var wg sync.WaitGroup
		done := make(chan struct{})
		for i := range 6 {
			cl := connect(t, c)
			r := rand.New(rand.NewPCG(s, uint64(i)))
			wg.Go(func() {
				for range rig.Times(16) {
					var held []*Handle
					for l := range 4 {
						if r.IntN(2) == 0 {
							continue
						}
						h, err := New(cl, fmt.Sprintf("/l%d", l), RefuseDeadlock()).Acquire(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						held = append(held, h)
						time.Sleep(time.Duration(r.IntN(700)) * time.Millisecond)
					}
					for _, h := range held {
						if err := h.Release(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		go func() { wg.Wait(); close(done) }()
		look := connect(t, c)
		for {
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
				if got := deadlocks(t, look, "/"); got != nil {
					t.Fatalf("cycles %v", got)
				}
			}
		}
	})
}

func TestStuckAndCyclesAgreeWithAPlainSearch(t *testing.T) {
	s := seed.New(t)
	r := rand.New(rand.NewPCG(s, 3))
	for range 3000 {
		n := 1 + r.IntN(7)
		wants := map[client.SessionID][]want{}
		next := map[client.SessionID][]client.SessionID{}
		for s := client.SessionID(1); s <= client.SessionID(n); s++ {
			wants[s] = nil
			for range r.IntN(3) {
				w := want{waiter: Party{Session: s, Node: fmt.Sprint(s, "/", len(wants[s]))}, began: client.Zxid(r.IntN(100))}
				for h := client.SessionID(1); h <= client.SessionID(n); h++ {
					if h != s && r.IntN(3) == 0 {
						w.holders = append(w.holders, Party{Session: h})
						next[s] = append(next[s], h)
					}
				}
				if len(w.holders) > 0 {
					wants[s] = append(wants[s], w)
				}
			}
		}
		covered := map[pair]bool{}
		for _, c := range cyclesIn(wants, func(w *want) bool { return w.began < 80 }) {
			for i, w := range c {
				covered[pair{w.Waiter.Session, w.Holder.Session}] = true
				if w.Holder.Session != c[(i+1)%len(c)].Waiter.Session || !slices.Contains(next[w.Waiter.Session], w.Holder.Session) {
					t.Fatalf("no cycle: %v in %v", c, next)
				}
			}
		}
		for s, all := range wants {
			for _, w := range all {
				back := slices.ContainsFunc(w.holders, func(h Party) bool { return reaches(next, h.Session, s) })
				found := slices.ContainsFunc(w.holders, func(h Party) bool { return covered[pair{s, h.Session}] })
				if back && w.began < 80 && !found || !back && found {
					t.Fatalf("wait %s is in a cycle: %v, found: %v; %v", w.waiter.Node, back, found, next)
				}
			}
		}
	}
}

// reaches says whether there is a way of at least one step.
func reaches(next map[client.SessionID][]client.SessionID, from, to client.SessionID) bool {
	seen := map[client.SessionID]bool{}
	var visit func(client.SessionID) bool
	visit = func(s client.SessionID) bool {
		for _, n := range next[s] {
			if n == to {
				return true
			}
			if !seen[n] {
				seen[n] = true
				if visit(n) {
					return true
				}
			}
		}
		return false
	}
	return visit(from)
}
