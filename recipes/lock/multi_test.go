package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/internal/seed"
)

func acquireAll(t *testing.T, m *Multi) *MultiHandle {
	t.Helper()
	h, err := m.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func releaseAll(t *testing.T, h *MultiHandle) {
	t.Helper()
	if err := h.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantEntries(t *testing.T, c *fakecoord.Cluster, n int, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if got := entries(c, p); got != n {
			t.Fatalf("%s has %d entries, want %d: %v", p, got, n, c.Paths(p+"/"))
		}
	}
}

// TestMultiIsOneTransaction: the entries come and go together, so nobody can see
// a part of them.
func TestMultiIsOneTransaction(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		paths := []string{"/locks/b", "/locks/a", "/other/c"}
		releaseAll(t, acquireAll(t, NewMulti(cl, paths))) // the folders are there now
		var writes []int
		c.OnWrite(func(w *coordpb.Write) { writes = append(writes, len(w.Ops)) })
		h := acquireAll(t, NewMulti(cl, paths))
		wantEntries(t, c, 1, paths...)
		first := h.Handles()[0]
		for i, l := range h.Handles() {
			if want := []string{"/locks/a", "/locks/b", "/other/c"}[i]; l.Path() != want || h.Handle(want) != l {
				t.Fatalf("handle %d is of %s", i, l.Path())
			}
			if l.FencingToken() != first.FencingToken() || l.FencingToken() == 0 {
				t.Fatal("not one transaction")
			}
		}
		if h.Handle("/locks/d") != nil || !h.Held() || h.Remaining() <= 0 || h.Deadline() != first.Deadline() {
			t.Fatal("handle")
		}
		if _, err := cl.Txn(t.Context(), append(h.Guards(), client.OpSet("/other", []byte("x"), client.AnyVersion))...); err != nil {
			t.Fatal(err)
		}
		if err := h.Verify(t.Context()); err != nil {
			t.Fatal(err)
		}
		releaseAll(t, h)
		releaseAll(t, h)
		wantEntries(t, c, 0, paths...)
		if !slices.Equal(writes, []int{3, 4, 3}) {
			t.Fatalf("operations of the writes: %v", writes)
		}
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrReleased) || h.Held() {
			t.Fatalf("cause %v", cause)
		}
		for _, l := range h.Handles() {
			if err := l.Release(t.Context()); err != nil || l.Held() {
				t.Fatalf("released with the others: %v", err)
			}
		}
		if _, err := cl.Txn(t.Context(), h.Guards()...); err == nil {
			t.Fatal("the guards pass after the release")
		}
	})
}

// TestOverlappingMultisNeverDeadlock: every pair of orders of every two sets of
// three locks, again and again at the same time.
func TestOverlappingMultisNeverDeadlock(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		sets := orders([]string{"/a", "/b", "/c"})
		var mu sync.Mutex
		inside := map[string]int{}
		tokens := map[string]fence.Token{}
		clients := []*client.Client{connect(t, c), connect(t, c)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var wg sync.WaitGroup
		for i, cl := range clients {
			for n := range sets {
				paths := sets[(n*7+i*3)%len(sets)]
				wg.Go(func() {
					for range 4 {
						err := NewMulti(cl, paths).Do(ctx, func(_ context.Context, h *MultiHandle) error {
							mu.Lock()
							for _, l := range h.Handles() {
								if inside[l.Path()]++; inside[l.Path()] != 1 || l.FencingToken() <= tokens[l.Path()] {
									t.Errorf("%s: %d holders, token %s after %s", l.Path(), inside[l.Path()], l.FencingToken(), tokens[l.Path()])
								}
								tokens[l.Path()] = l.FencingToken()
							}
							mu.Unlock()
							time.Sleep(time.Millisecond)
							mu.Lock()
							defer mu.Unlock()
							for _, l := range h.Handles() {
								inside[l.Path()]--
							}
							return nil
						})
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		wantEntries(t, c, 0, "/a", "/b", "/c")
	})
}

// orders are all non-empty subsets in all orders.
func orders(of []string) [][]string {
	var out [][]string
	var grow func(taken []string)
	grow = func(taken []string) {
		if len(taken) > 0 {
			out = append(out, slices.Clone(taken))
		}
		for _, p := range of {
			if !slices.Contains(taken, p) {
				grow(append(slices.Clip(taken), p))
			}
		}
	}
	grow(nil)
	return out
}

// TestMultiSharesItsLocksWithMutexes: random users of one lock and of several,
// some of which go away; there is never more than one holder and tokens rise.
func TestMultiSharesItsLocksWithMutexes(t *testing.T) {
	s := seed.New(t)
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		all := []string{"/a", "/b", "/c", "/d"}
		var mu sync.Mutex
		holder := map[string]int{}
		tokens := map[string]fence.Token{}
		enter := func(who int, handles ...*Handle) {
			mu.Lock()
			defer mu.Unlock()
			for _, h := range handles {
				if holder[h.Path()] != 0 || h.FencingToken() <= tokens[h.Path()] {
					t.Errorf("%s: %d comes in while %d is there, token %s after %s", h.Path(), who, holder[h.Path()], h.FencingToken(), tokens[h.Path()])
				}
				holder[h.Path()], tokens[h.Path()] = who, h.FencingToken()
			}
		}
		exit := func(handles ...*Handle) {
			mu.Lock()
			defer mu.Unlock()
			for _, h := range handles {
				holder[h.Path()] = 0
			}
		}
		var wg sync.WaitGroup
		for who := 1; who <= 8; who++ {
			cl := connect(t, c)
			r := rand.New(rand.NewPCG(s, uint64(who)))
			wg.Go(func() {
				for range 60 {
					paths := slices.Clone(all)
					r.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
					paths = paths[:1+r.IntN(len(paths))]
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(80))*time.Millisecond)
					var handles []*Handle
					leave := func() error { return nil }
					if len(paths) == 1 {
						if h, err := New(cl, paths[0]).Acquire(ctx); err == nil {
							handles, leave = []*Handle{h}, func() error { return h.Release(t.Context()) }
						}
					} else if h, err := NewMulti(cl, paths).Acquire(ctx); err == nil {
						handles, leave = h.Handles(), func() error { return h.Release(t.Context()) }
					}
					cancel()
					enter(who, handles...)
					time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
					exit(handles...)
					if err := leave(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(5 * time.Second)
		wantEntries(t, c, 0, all...)
	})
}

// TestMultiCancelledAnywhereLeavesNothing ends the context after each possible
// time, with answers lost and connections cut.
func TestMultiCancelledAnywhereLeavesNothing(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		holder := acquire(t, New(connect(t, c), "/b"))
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		n := 0
		actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
		for wait := time.Duration(0); wait < 800*time.Millisecond; wait += 7 * time.Millisecond {
			n++
			act, countdown := actions[n%3], n%8
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if countdown--; countdown == 0 {
					return act
				}
				return fakecoord.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			h, err := NewMulti(cl, []string{"/a", "/b", "/c"}).Acquire(ctx)
			cancel()
			if h != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("after %s: %v", wait, err)
			}
			c.OnReply(nil)
		}
		time.Sleep(5 * time.Second)
		wantEntries(t, c, 0, "/a", "/c")
		wantEntries(t, c, 1, "/b")
		release(t, holder)
		releaseAll(t, acquireAll(t, NewMulti(cl, []string{"/a", "/b", "/c"})))
	})
}

// TestMultiSurvivesEachLostReply: whichever answer is lost, all locks are taken
// once, and given back.
func TestMultiSurvivesEachLostReply(t *testing.T) {
	for _, act := range []fakecoord.Action{fakecoord.Drop, fakecoord.Cut} {
		for at := 1; ; at++ {
			reached := false
			fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
				cl := connect(t, c, client.WithSessionTimeout(time.Minute))
				count := 0
				c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
					if count++; count == at {
						reached = true
						return act
					}
					return fakecoord.Pass
				})
				h := acquireAll(t, NewMulti(cl, []string{"/l/a", "/l/b"}))
				wantEntries(t, c, 1, "/l/a", "/l/b")
				releaseAll(t, h)
				wantEntries(t, c, 0, "/l/a", "/l/b")
			})
			if !reached {
				break
			}
			if at > 100 {
				t.Fatal("it never ends")
			}
		}
	}
}

func TestTryAcquireOfSeveralNamesWhoIsBusy(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		holder := acquire(t, New(connect(t, c), "/b", Owner("bob")))
		cl := connect(t, c)
		m := NewMulti(cl, []string{"/c", "/b", "/a"})
		var busy *BusyError
		if _, err := m.TryAcquire(t.Context()); !errors.As(err, &busy) || busy.Path != "/b" || busy.Holder.Owner != "bob" {
			t.Fatalf("error %v", err)
		}
		wantEntries(t, c, 0, "/a", "/c")
		wantEntries(t, c, 1, "/b")
		release(t, holder)
		h, err := m.TryAcquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		releaseAll(t, h)
	})
}

// TestTwoTriesOfSeveral: of many at the same time at most one wins, and none
// leaves an entry.
func TestTwoTriesOfSeveral(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		clients := make([]*client.Client, 4)
		for i := range clients {
			clients[i] = connect(t, c)
		}
		for range 50 {
			won := make(chan *MultiHandle, len(clients))
			var wg sync.WaitGroup
			for i, cl := range clients {
				paths := []string{"/a", "/b"}
				if i%2 == 1 {
					slices.Reverse(paths)
				}
				wg.Go(func() {
					switch h, err := NewMulti(cl, paths).TryAcquire(t.Context()); {
					case err == nil:
						won <- h
					case !errors.Is(err, ErrBusy):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if len(won) > 1 {
				t.Fatalf("%d have won", len(won))
			}
			for range len(won) {
				releaseAll(t, <-won)
			}
			wantEntries(t, c, 0, "/a", "/b")
		}
	})
}

func TestMultiInTheSameCallChain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		err := NewMulti(cl, []string{"/a", "/b"}).Do(t.Context(), func(ctx context.Context, h *MultiHandle) error {
			for _, p := range []string{"/a", "/b"} {
				for _, in := range []context.Context{ctx, h.Context(), h.Handle(p).Context()} {
					if found, ok := FromContext(in, p); !ok || found != h.Handle(p) {
						t.Errorf("no handle of %s in the context", p)
					}
				}
				if _, err := New(cl, p).Acquire(ctx); !errors.Is(err, ErrDeadlock) {
					t.Errorf("lock %s again: %v", p, err)
				}
			}
			if _, err := NewMulti(cl, []string{"/b", "/c"}).Acquire(ctx); !errors.Is(err, ErrDeadlock) {
				t.Errorf("several again: %v", err)
			}
			if _, err := NewMulti(cl, []string{"/b", "/c"}).TryAcquire(h.Context()); !errors.Is(err, ErrDeadlock) {
				t.Errorf("several again: %v", err)
			}
			return New(cl, "/c").Do(ctx, func(context.Context, *Handle) error { return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		wantEntries(t, c, 0, "/a", "/b", "/c")
	})
}

func TestMultiRefusesPathsThatAreOne(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for _, paths := range [][]string{nil, {"/a", "/a"}, {"/a/b/c", "/x", "/a"}, {"/a", "/a-b", "/a/b"}, {"/a", "b"}, {"/a", "/b/"}} {
			for _, f := range []func(context.Context) (*MultiHandle, error){NewMulti(cl, paths).Acquire, NewMulti(cl, paths).TryAcquire} {
				if _, err := f(t.Context()); !errors.Is(err, client.ErrBadArguments) && !errors.Is(err, client.ErrBadPath) {
					t.Errorf("%q: %v", paths, err)
				}
			}
		}
		releaseAll(t, acquireAll(t, NewMulti(cl, []string{"/a", "/a-b", "/ab"})))
		wantEntries(t, c, 0, "/a", "/a-b", "/ab")
	})
}

// TestMultiBelowAChroot: paths are the client's own, the locks everybody's.
func TestMultiBelowAChroot(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		plain := connect(t, c)
		if _, err := plain.Create(t.Context(), "/app", nil); err != nil {
			t.Fatal(err)
		}
		h := acquireAll(t, NewMulti(connect(t, c, client.WithChroot("/app")), []string{"/x", "/y"}))
		if !strings.HasPrefix(h.Handle("/x").Node(), "/x/_c_") {
			t.Fatalf("node %s", h.Handle("/x").Node())
		}
		if _, err := New(plain, "/app/y").TryAcquire(t.Context()); !errors.Is(err, ErrBusy) {
			t.Fatalf("the same lock from outside: %v", err)
		}
		releaseAll(t, h)
		release(t, acquire(t, New(plain, "/app/y")))
	})
}
