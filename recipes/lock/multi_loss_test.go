package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// TestLossOfOneOfSeveralEndsTheContext: the others are given back by Release.
func TestLossOfOneOfSeveralEndsTheContext(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		paths := []string{"/a", "/b", "/c"}
		cl := connect(t, c)
		h := acquireAll(t, NewMulti(cl, paths))
		c.Delete(h.Handle("/b").Node())
		select {
		case <-h.Lost():
		case <-time.After(time.Second):
			t.Fatal("not told")
		}
		var e *LostError
		if cause := context.Cause(h.Context()); !errors.As(cause, &e) || e.Path != "/b" || !errors.Is(cause, ErrDeleted) || h.Held() || h.Context().Err() == nil {
			t.Fatalf("cause %v", cause)
		}
		if !h.Handle("/a").Held() || h.Handle("/b").Held() {
			t.Fatal("only one of them is lost")
		}
		if err := h.Verify(t.Context()); !errors.Is(err, ErrLost) {
			t.Fatalf("verify: %v", err)
		}
		wantEntries(t, c, 1, "/a", "/c")
		if err := h.Release(t.Context()); !errors.As(err, &e) || e.Path != "/b" {
			t.Fatalf("release: %v", err)
		}
		wantEntries(t, c, 0, paths...)

		// By the end of the session, all are lost.
		h = acquireAll(t, NewMulti(cl, paths))
		c.Expire(uint64(cl.Session().ID()))
		<-h.Context().Done()
		if cause := context.Cause(h.Context()); !errors.Is(cause, ErrLost) || !errors.Is(cause, client.ErrSessionExpired) {
			t.Fatalf("cause %v", cause)
		}
		if err := h.Release(t.Context()); !errors.Is(err, ErrLost) {
			t.Fatalf("release: %v", err)
		}
	})
}

// TestDeletedUnnoticedIsToldByRelease: an entry has gone when the release comes,
// and nobody has told the holder yet; the others go all the same.
func TestDeletedUnnoticedIsToldByRelease(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		h := acquireAll(t, NewMulti(connect(t, c), []string{"/a", "/b", "/c"}))
		synctest.Wait()
		c.Server("n1").Mute()
		c.Delete(h.Handle("/b").Node())
		time.AfterFunc(time.Second, c.Server("n1").Unmute)
		var e *LostError
		if err := h.Release(t.Context()); !errors.As(err, &e) || e.Path != "/b" || !errors.Is(err, ErrDeleted) {
			t.Fatalf("release: %v", err)
		}
		wantEntries(t, c, 0, "/a", "/b", "/c")
	})
}

// TestPlaceLostInOneQueueLeavesAll: an administrator deletes a waiter's entry,
// or the session ends, while it waits in another queue.
func TestPlaceLostInOneQueueLeavesAll(t *testing.T) {
	for _, how := range []string{"deleted", "expired", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
				holder := acquire(t, New(connect(t, c), "/b"))
				cl := connect(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan error, 1)
				go func() {
					_, err := NewMulti(cl, []string{"/a", "/b"}).Acquire(ctx)
					got <- err
				}()
				time.Sleep(time.Minute)
				wantEntries(t, c, 1, "/a")
				wantEntries(t, c, 2, "/b")
				want := ErrDeleted
				switch how {
				case "deleted":
					c.Delete(c.Paths("/a/")[0])
				case "expired":
					c.Expire(uint64(cl.Session().ID()))
					want = client.ErrSessionExpired
				case "cancelled":
					cancel()
					want = context.Canceled
				}
				select {
				case err := <-got:
					if !errors.Is(err, want) {
						t.Fatalf("error %v", err)
					}
				case <-time.After(time.Minute):
					t.Fatal("it waits on")
				}
				wantEntries(t, c, 0, "/a")
				wantEntries(t, c, 1, "/b")
				release(t, holder)
			})
		})
	}
}

// TestReleaseOfOneOfSeveral gives up that lock alone, and says that not all are
// held any more.
func TestReleaseOfOneOfSeveral(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		h := acquireAll(t, NewMulti(connect(t, c), []string{"/a", "/b"}))
		release(t, h.Handle("/a"))
		if cause := context.Cause(h.Context()); h.Held() || h.Context().Err() == nil || !errors.Is(cause, ErrReleased) {
			t.Fatalf("cause %v", cause)
		}
		if !h.Handle("/b").Held() {
			t.Fatal("the other is gone too")
		}
		wantEntries(t, c, 0, "/a")
		wantEntries(t, c, 1, "/b")
		release(t, acquire(t, New(connect(t, c), "/a")))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := h.Release(ctx); err != nil {
			t.Fatal(err)
		}
		wantEntries(t, c, 0, "/a", "/b")
	})
}

// TestMultiGivesUpByTheMargin: nothing is heard any more; the context ends before
// the cluster can let others in, and the entries do not stay for ever.
func TestMultiGivesUpByTheMargin(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		h := acquireAll(t, NewMulti(cl, []string{"/a", "/b"}, SafetyMargin(4*time.Second)))
		c.Server("n1").Mute()
		deadline := h.Deadline()
		<-h.Context().Done()
		if early := time.Until(deadline); early < 3900*time.Millisecond || !errors.Is(context.Cause(h.Context()), ErrMargin) {
			t.Fatalf("%s before the deadline: %v", early, context.Cause(h.Context()))
		}
		c.Server("n1").Unmute()
		next := acquireAll(t, NewMulti(cl, []string{"/a", "/b"}))
		if next.Handle("/a").FencingToken() <= h.Handle("/a").FencingToken() {
			t.Fatal("token")
		}
		releaseAll(t, next)
	})
}

func TestPanicReleasesAll(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		func() {
			defer func() { _ = recover() }()
			_ = NewMulti(connect(t, c), []string{"/a", "/b"}).Do(t.Context(), func(context.Context, *MultiHandle) error { panic("x") })
		}()
		wantEntries(t, c, 0, "/a", "/b")
	})
}
