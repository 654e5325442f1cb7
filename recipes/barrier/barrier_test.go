package barrier

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// waiting starts a Wait and returns where its outcome comes.
func waiting(ctx context.Context, b *Barrier) <-chan error {
	done := make(chan error, 1)
	go func() { done <- b.Wait(ctx) }()
	return done
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func stillWaits(t *testing.T, done <-chan error) {
	t.Helper()
	time.Sleep(time.Minute)
	select {
	case err := <-done:
		t.Fatalf("it went on: %v", err)
	default:
	}
}

func TestWaitEndsWhenTheBarrierIsLowered(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		b := New(connect(t, c), "/gates/a")
		must(t, b.Wait(ctx)) // it never was raised
		must(t, b.Raise(ctx))
		must(t, b.Raise(ctx))
		if up, err := b.Raised(ctx); !up || err != nil {
			t.Fatal(up, err)
		}
		var done []<-chan error
		for range 5 {
			done = append(done, waiting(ctx, New(connect(t, c), "/gates/a")))
		}
		for _, d := range done {
			stillWaits(t, d)
		}
		before := c.Counts().Events
		must(t, b.Lower(ctx))
		must(t, b.Lower(ctx))
		for _, d := range done {
			must(t, <-d)
		}
		if n := c.Counts().Events - before; n > len(done) {
			t.Fatalf("%d events woke %d waiters", n, len(done))
		}
		if up, err := b.Raised(ctx); up || err != nil {
			t.Fatal(up, err)
		}
	})
}

// TestLoweredAndRaisedAgainReleases: the waiter is cut off while it happens.
func TestLoweredAndRaisedAgainReleases(t *testing.T) {
	for _, forgotten := range []bool{false, true} {
		fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
			ctx := t.Context()
			other, cl := New(connect(t, c), "/b"), connect(t, c, client.WithSessionTimeout(time.Minute))
			must(t, other.Raise(ctx))
			done := waiting(ctx, New(cl, "/b"))
			synctest.Wait()
			server := c.Server(c.Connected(uint64(cl.Session().ID())))
			server.Mute()
			must(t, other.Lower(ctx))
			must(t, other.Raise(ctx))
			if forgotten {
				c.Forget()
			}
			server.CutAll()
			server.Unmute()
			must(t, <-done)
		})
	}
}

// TestHistoryLostWhileRaisedReleasesNobody: the barrier was up all the time.
func TestHistoryLostWhileRaisedReleasesNobody(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		b := New(cl, "/b")
		must(t, b.Raise(ctx))
		done := waiting(ctx, b)
		synctest.Wait()
		if _, err := connect(t, c).Set(ctx, "/b", []byte("note"), client.AnyVersion); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := connect(t, c).Create(ctx, "/other-", nil, client.WithSequential()); err != nil {
				t.Fatal(err)
			}
			c.Forget()
			c.Server(c.Connected(uint64(cl.Session().ID()))).CutAll()
			stillWaits(t, done)
		}
		must(t, b.Lower(ctx))
		must(t, <-done)
	})
}

func TestWaitEndsWithContextAndSession(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		b := New(cl, "/b")
		must(t, b.Raise(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		done := waiting(t.Context(), b)
		synctest.Wait()
		c.Expire(uint64(cl.Session().ID()))
		if err := <-done; !errors.Is(err, client.ErrSessionExpired) {
			t.Fatal(err)
		}
		if n := c.Paths("/b"); len(n) != 1 {
			t.Fatal("the barrier fell with the session of its raiser")
		}
	})
}

// TestBarrierWithForeignContent: a znode without data, and one below it.
func TestBarrierWithForeignContent(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		_, err := cl.Create(ctx, "/b", nil)
		must(t, err)
		b := New(cl, "/b")
		must(t, b.Raise(ctx))
		done := waiting(ctx, b)
		stillWaits(t, done)
		_, err = cl.Create(ctx, "/b/x", nil)
		must(t, err)
		if err := b.Lower(ctx); !errors.Is(err, client.ErrNotEmpty) {
			t.Fatal(err)
		}
		must(t, cl.Delete(ctx, "/b/x", client.AnyVersion))
		must(t, b.Lower(ctx))
		must(t, <-done)
	})
}

// TestWaitersUnderFaults: connections are cut and answers lost at random; each
// waiter goes on after the lowering, and none before.
func TestWaitersUnderFaults(t *testing.T) {
	r := random(t)
	for range 5 {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			b := New(connect(t, c, client.WithSessionTimeout(time.Minute)), "/x/b")
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if r.IntN(6) == 0 {
					return fakecoord.Cut
				}
				return fakecoord.Pass
			})
			for range 5 {
				must(t, b.Raise(t.Context()))
				var mu sync.Mutex
				lowered := false
				var wg sync.WaitGroup
				for range 4 {
					cl := connect(t, c, client.WithSessionTimeout(time.Minute))
					wg.Go(func() {
						if err := New(cl, "/x/b").Wait(t.Context()); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						if !lowered {
							t.Error("a waiter went on before the barrier was lowered")
						}
					})
				}
				time.Sleep(2 * time.Second)
				mu.Lock()
				lowered = true
				mu.Unlock()
				must(t, b.Lower(t.Context()))
				wg.Wait()
			}
		})
	}
}
