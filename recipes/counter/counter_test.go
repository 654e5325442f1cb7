package counter

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// TestEachAddCountsOnce: adders in several processes; each value is given out
// exactly once.
func TestEachAddCountsOnce(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		const processes, adders, each = 4, 16, 5
		var mu sync.Mutex
		seen := map[int64]bool{}
		var wg sync.WaitGroup
		for range processes {
			n := New(connect(t, c), "/counters/a")
			for range adders {
				wg.Go(func() {
					for range each {
						now, err := n.Add(t.Context(), 1)
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if seen[now] {
							t.Errorf("%d was given out twice", now)
						}
						seen[now] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		const sum = processes * adders * each
		wantValue(t, New(connect(t, c), "/counters/a"), sum)
		for i := int64(1); i <= sum; i++ {
			if !seen[i] {
				t.Fatalf("%d was never given out", i)
			}
		}
	})
}

// TestAddsOfOneProcessShareWrites: 64 adders need about two writes a round.
func TestAddsOfOneProcessShareWrites(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		n := New(connect(t, c), "/c")
		if _, err := n.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		c.Server("n1").Mute() // answers wait, so that the adds meet
		var wg sync.WaitGroup
		before := c.Counts()
		for range 64 {
			wg.Go(func() {
				if _, err := n.Add(t.Context(), 2); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		c.Server("n1").Unmute()
		wg.Wait()
		wantValue(t, n, 129)
		if writes := c.Counts().Writes - before.Writes; writes > 4 {
			t.Fatalf("64 adds at the same time took %d writes", writes)
		}
	})
}

// TestLostRepliesCountOnce drops answers and cuts connections at random.
func TestLostRepliesCountOnce(t *testing.T) {
	r := random(t)
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		faults := 0
		c.OnReply(func(_ string, reply *coordpb.Reply) fakecoord.Action {
			if reply.Seq == 0 || r.IntN(4) != 0 {
				return fakecoord.Pass
			}
			faults++
			return fakecoord.Cut
		})
		var sum int64
		n := New(connect(t, c, client.WithSessionTimeout(time.Minute)), "/c")
		for range 60 {
			delta := int64(r.IntN(100) - 50)
			sum += delta
			if now, err := n.Add(t.Context(), delta); err != nil || now != sum {
				t.Fatalf("%d %v, want %d", now, err, sum)
			}
		}
		c.OnReply(nil)
		if faults == 0 {
			t.Fatal("no answer was lost")
		}
		wantValue(t, n, sum)
	})
}

func TestOverflowIsRefusedAndChangesNothing(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for _, edge := range []struct{ at, step int64 }{{math.MaxInt64, 1}, {math.MinInt64, -1}} {
			n := New(cl, "/c"+strings.TrimLeft(time.Duration(edge.step).String(), "-"))
			if ok, err := n.CompareAndSet(t.Context(), 0, edge.at); !ok || err != nil {
				t.Fatal(ok, err)
			}
			_, err := n.Add(t.Context(), edge.step)
			var o *OverflowError
			if !errors.Is(err, ErrOverflow) || !errors.As(err, &o) || o.Now != edge.at || o.Delta != edge.step {
				t.Fatalf("have %v", err)
			}
			wantValue(t, n, edge.at)
			if now, err := n.Add(t.Context(), -edge.step); err != nil || now != edge.at-edge.step {
				t.Fatal(now, err)
			}
			if ok, err := n.CompareAndSet(t.Context(), edge.at-edge.step, 0); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	})
}

// TestOverflowOfOneLeavesTheOthers: adds that share a write are refused one by
// one.
func TestOverflowOfOneLeavesTheOthers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		n := New(connect(t, c), "/c")
		if _, err := n.Add(t.Context(), math.MaxInt64-10); err != nil {
			t.Fatal(err)
		}
		c.Server("n1").Mute()
		var wg sync.WaitGroup
		var mu sync.Mutex
		refused, done := 0, 0
		for range 25 {
			wg.Go(func() {
				_, err := n.Add(t.Context(), 1)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
				case errors.Is(err, ErrOverflow):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		c.Server("n1").Unmute()
		wg.Wait()
		if done != 10 || refused != 15 {
			t.Fatalf("%d done, %d refused", done, refused)
		}
		wantValue(t, n, math.MaxInt64)
	})
}

func TestForeignContentIsATypedErrorAndStays(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		ctx := t.Context()
		if _, err := cl.Create(ctx, "/c", nil); err != nil {
			t.Fatal(err)
		}
		n := New(cl, "/c")
		for _, data := range [][]byte{nil, {}, []byte("12x"), []byte("1_000"), []byte("0x10"), []byte("9223372036854775808"), {0xff, 0}} {
			if _, err := cl.Set(ctx, "/c", data, client.AnyVersion); err != nil {
				t.Fatal(err)
			}
			_, err := n.Add(ctx, 1)
			var e *ContentError
			if !errors.Is(err, ErrContent) || !errors.As(err, &e) || e.Size != len(data) {
				t.Fatalf("%q: %v", data, err)
			}
			if _, err := n.Get(ctx); !errors.Is(err, ErrContent) {
				t.Fatalf("%q: %v", data, err)
			}
			if _, err := n.CompareAndSet(ctx, 0, 1); !errors.Is(err, ErrContent) {
				t.Fatalf("%q: %v", data, err)
			}
			if node, err := cl.Get(ctx, "/c"); err != nil || string(node.Data) != string(data) {
				t.Fatalf("%q became %q (%v)", data, node.Data, err)
			}
		}
		if _, err := cl.Set(ctx, "/c", []byte(" -41\n"), client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if now, err := n.Add(ctx, -1); now != -42 || err != nil {
			t.Fatal(now, err)
		}
	})
}

// TestChangesOfOthersAreSeen: another sets the znode, deletes it, makes a new one.
func TestChangesOfOthersAreSeen(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl, other := connect(t, c), connect(t, c)
		ctx := t.Context()
		n := New(cl, "/c")
		interfere := []func() error{
			func() error { _, err := other.Set(ctx, "/c", []byte("1000"), client.AnyVersion); return err },
			func() error { return other.Delete(ctx, "/c", client.AnyVersion) },
			func() error {
				if err := other.Delete(ctx, "/c", client.AnyVersion); err != nil {
					return err
				}
				_, err := other.Create(ctx, "/c", []byte("70"))
				return err
			},
		}
		want := []int64{1005, 5, 75}
		for i, f := range interfere {
			if _, err := n.Add(ctx, 1); err != nil { // at version 0 or later
				t.Fatal(err)
			}
			if err := f(); err != nil {
				t.Fatal(err)
			}
			if now, err := n.Add(ctx, 5); err != nil || now != want[i] {
				t.Fatalf("%d: %d %v, want %d", i, now, err, want[i])
			}
		}
	})
}

// TestRememberedStateOfAnEarlierZnodeIsNotWritten: what is remembered of the last
// write is not taken for true when a new znode has come to the same version.
func TestRememberedStateOfAnEarlierZnodeIsNotWritten(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		ctx := t.Context()
		n := New(cl, "/c")
		created, err := cl.Create(ctx, "/c", []byte("10"))
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Delete(ctx, "/c", client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Create(ctx, "/c", []byte("500")); err != nil {
			t.Fatal(err)
		}
		r := &request{delta: 1, done: make(chan answer, 1)}
		n.queue = []*request{r}
		b := n.next()
		n.apply(b, state{10, created.Stat.Czxid, created.Stat.Version}, true)
		b.cancel()
		if a := <-r.done; a.err != nil || a.now != 501 {
			t.Fatalf("%+v", a)
		}
	})
}

func TestCancelBeforeTheWriteDoesNothing(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		n := New(connect(t, c, client.WithSessionTimeout(time.Minute)), "/c")
		if _, err := n.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := n.Add(done, 5); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		c.Freeze()
		var wg sync.WaitGroup
		wg.Go(func() { // keeps the worker busy
			if _, err := n.Add(t.Context(), 10); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Add(short, 5); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		c.Thaw()
		wg.Wait()
		wantValue(t, n, 11)
	})
}

// TestCancelAfterTheWriteIsUnknownAndWithdrawn: the caller is back at once; what
// was not done by then is not done later.
func TestCancelAfterTheWriteIsUnknownAndWithdrawn(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		n := New(cl, "/c")
		if _, err := n.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		c.Server("n1").Mute()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := n.Add(ctx, 5)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Fatal(err, time.Since(began))
		}
		c.Server("n1").Unmute()
		synctest.Wait()
		have, err := n.Get(t.Context())
		if err != nil || have != 1 && have != 6 {
			t.Fatal(have, err)
		}
		time.Sleep(time.Minute)
		wantValue(t, n, have)
	})
}

func TestEndOfTheSessionEndsAdds(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		n := New(cl, "/c")
		if _, err := n.Add(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		c.Expire(uint64(cl.Session().ID()))
		synctest.Wait()
		if _, err := n.Add(t.Context(), 1); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
		wantValue(t, New(connect(t, c), "/c"), 1)
	})
}

// TestWithoutASessionAddsCountOnceToo: the write is recognised by its id.
func TestWithoutASessionAddsCountOnceToo(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		n := New(connect(t, c, client.WithoutSession()), "/a/c")
		i := 0
		c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
			if i++; i%3 == 0 {
				return fakecoord.Cut
			}
			return fakecoord.Pass
		})
		for want := int64(1); want <= 20; want++ {
			now, err := n.Add(t.Context(), 1)
			if err != nil || now != want {
				t.Fatal(now, err)
			}
		}
	})
}

func TestCompareAndSet(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		n := New(connect(t, c), "/a/b/c")
		for i, step := range []struct {
			have, want int64
			ok         bool
		}{{1, 2, false}, {0, 7, true}, {0, 9, false}, {7, 9, true}, {9, 9, true}} {
			if ok, err := n.CompareAndSet(t.Context(), step.have, step.want); ok != step.ok || err != nil {
				t.Fatal(i, ok, err)
			}
		}
		wantValue(t, n, 9)
		if now, err := n.Add(t.Context(), 0); now != 9 || err != nil {
			t.Fatal(now, err)
		}
		if n.Path() != "/a/b/c" {
			t.Fatal(n.Path())
		}
	})
}

// TestRandomSchedule adds from several processes under every kind of fault, and
// compares the number with what the callers were told.
func TestRandomSchedule(t *testing.T) {
	r := random(t)
	for range 10 {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			var mu sync.Mutex
			var sure, unknown int64 // deltas are positive
			var wg sync.WaitGroup
			faults := rand.New(rand.NewPCG(r.Uint64(), 2)) // of its own: it is used under the cluster's lock
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if faults.IntN(20) == 0 {
					return fakecoord.Cut
				}
				return fakecoord.Pass
			})
			for range 4 {
				cl := connect(t, c)
				n := New(cl, "/counters/x")
				for range 4 {
					wg.Go(func() {
						for range 10 {
							mu.Lock()
							delta, wait, expire := 1+r.Int64N(9), time.Duration(r.IntN(300))*time.Millisecond, r.IntN(200) == 0
							mu.Unlock()
							ctx, cancel := context.WithTimeout(t.Context(), wait)
							_, err := n.Add(ctx, delta)
							cancel()
							mu.Lock()
							switch {
							case err == nil:
								sure += delta
							case errors.Is(err, client.ErrUnknownOutcome):
								unknown += delta
							}
							mu.Unlock()
							if expire {
								c.Expire(uint64(cl.Session().ID()))
							}
						}
					})
				}
			}
			wg.Wait()
			c.OnReply(nil)
			time.Sleep(30 * time.Second)
			have, err := New(connect(t, c), "/counters/x").Get(t.Context())
			if err != nil || have < sure || have > sure+unknown {
				t.Fatalf("%d (%v), but %d were acknowledged and %d have an unknown outcome", have, err, sure, unknown)
			}
		})
	}
}
