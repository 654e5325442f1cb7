package lock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// TestMultiWithWaitLimitLeavesByItself: in time, from all queues; who gets the
// locks in time keeps them.
func TestMultiWithWaitLimitLeavesByItself(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		holder := acquire(t, New(connect(t, c), "/b"))
		m := NewMulti(connect(t, c), []string{"/a", "/b"}, WaitLimit(3*time.Second))
		began := time.Now()
		_, err := m.Acquire(t.Context())
		if !errors.Is(err, ErrWaitLimit) || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 4*time.Second {
			t.Fatalf("error %v after %s", err, time.Since(began))
		}
		wantEntries(t, c, 0, "/a")
		wantEntries(t, c, 1, "/b")
		release(t, holder)
		h := acquireAll(t, m)
		time.Sleep(time.Minute)
		if !h.Held() {
			t.Fatalf("lost: %v", context.Cause(h.Context()))
		}
		releaseAll(t, h)
	})
}

// TestMultiWritesTheGrantsDownTogether, so that nobody sees a part of them; a
// lost holder's lock-delay keeps all of the locks.
func TestMultiWritesTheGrantsDownTogether(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := NewMulti(cl, []string{"/a", "/b"}, LockDelay(5*time.Second), Owner("me"))
		releaseAll(t, acquireAll(t, m))
		var writes []int
		c.OnWrite(func(w *coordpb.Write) { writes = append(writes, len(w.Ops)) })
		acquireAll(t, m)
		c.OnWrite(nil)
		if !slices.Equal(writes, []int{2, 4}) {
			t.Fatalf("operations of the writes: %v", writes)
		}
		c.Expire(uint64(cl.Session().ID()))
		look := connect(t, c)
		for _, p := range []string{"/a", "/b"} {
			info, err := Inspect(t.Context(), look, p)
			if err != nil || len(info.Holders) != 1 || info.Holders[0].LingersUntil.IsZero() || info.Holders[0].Acquired.IsZero() {
				t.Fatalf("%s: %+v, %v", p, info, err)
			}
		}
		began := time.Now()
		releaseAll(t, acquireAll(t, NewMulti(look, []string{"/b", "/a"})))
		if took := time.Since(began); took < 4*time.Second || took > 7*time.Second {
			t.Fatalf("free after %s", took)
		}
	})
}

// TestEntryDeletedWhileTheLocksAreTaken: whichever request meets it first, the
// Acquire fails with the reason, and nothing stays.
func TestEntryDeletedWhileTheLocksAreTaken(t *testing.T) {
	for after := range 12 {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c)
			m := NewMulti(cl, []string{"/a", "/b"}, LockDelay(time.Second))
			releaseAll(t, acquireAll(t, m)) // the folders are there now
			replies := make(chan struct{}, 1000)
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				replies <- struct{}{}
				return fakecoord.Pass
			})
			go func() {
				for range after {
					<-replies
				}
				for _, p := range c.Paths("/b/") {
					c.Delete(p)
				}
			}()
			h, err := m.Acquire(t.Context())
			if err == nil {
				time.Sleep(time.Second)
				err = h.Release(t.Context())
			}
			if err != nil && !errors.Is(err, ErrDeleted) {
				t.Fatalf("after %d replies: %v", after, err)
			}
			c.OnReply(nil)
			for range cap(replies) { // so that the other goroutine ends
				select {
				case replies <- struct{}{}:
				default:
				}
			}
			time.Sleep(time.Second)
			wantEntries(t, c, 0, "/a", "/b")
		})
	}
}

// TestLingeringHolderIsNoPartOfADeadlock: it goes by itself.
func TestLingeringHolderIsNoPartOfADeadlock(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		gone, other := connect(t, c), connect(t, c)
		acquire(t, New(gone, "/a", LockDelay(time.Minute)))
		acquire(t, New(other, "/b"))
		circle := begin(ctx, New(gone, "/b").Acquire)
		waiting := begin(ctx, New(other, "/a", RefuseDeadlock()).Acquire)
		if err := outcome(t, waiting, time.Second); !errors.Is(err, ErrDeadlock) {
			t.Fatalf("error %v", err)
		}
		c.Expire(uint64(gone.Session().ID()))
		if err := outcome(t, circle, time.Second); !errors.Is(err, client.ErrSessionExpired) {
			t.Fatalf("error %v", err)
		}
		again := begin(ctx, New(other, "/a", RefuseDeadlock()).Acquire)
		time.Sleep(2 * time.Second)
		if got := deadlocks(t, other, "/"); len(again) != 0 || got != nil {
			t.Fatalf("cycles %v", got)
		}
		cancel()
		<-again
	})
}
