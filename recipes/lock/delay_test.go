package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// kinds are all ways to get a lock alone.
var kinds = map[Kind]role{KindMutex: roleLock, KindRW: roleWrite, KindSemaphore: roleSlot}

// eachKind runs f with a way to get a lock, of each kind.
func eachKind(t *testing.T, f func(t *testing.T, c *fakecoord.Cluster, acquire func(cl *client.Client, opts ...Option) func(context.Context) (*Handle, error))) {
	t.Helper()
	for kind, r := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
				f(t, c, func(cl *client.Client, opts ...Option) func(context.Context) (*Handle, error) {
					return func(ctx context.Context) (*Handle, error) {
						if kind == KindSemaphore {
							return NewSemaphore(cl, "/l", 1, opts...).Acquire(ctx)
						}
						return acquireAs(ctx, cl, kind, "/l", r, opts...)
					}
				})
			})
		})
	}
}

// left are the paths below /l that are no folder of a semaphore.
func left(c *fakecoord.Cluster) (out []string) {
	for _, p := range c.Paths("/l/") {
		if p != "/l/slots" {
			out = append(out, p)
		}
	}
	return out
}

// TestLockDelayKeepsTheLockAfterALostSession, for its time and no longer, and for
// everybody to see; never is it granted twice.
func TestLockDelayKeepsTheLockAfterALostSession(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		cl := connect(t, c)
		h := ask(t, ctx, "holder", acquire(cl, LockDelay(3*time.Second), Owner("first"))).wantGranted(t)
		w := ask(t, ctx, "waiter", acquire(connect(t, c)))
		ended := time.Now()
		c.Expire(uint64(cl.Session().ID()))
		if cause := lostWithin(t, h, time.Second); !errors.Is(cause, client.ErrSessionExpired) {
			t.Fatalf("cause %v", cause)
		}
		w.wantWaiting(t)
		eye := connect(t, c)
		info, err := Inspect(ctx, eye, "/l")
		if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 1 || len(info.Warnings) != 0 {
			t.Fatalf("%+v %v", info, err)
		}
		p := info.Holders[0]
		if d := p.LingersUntil.Sub(ended); d < 2990*time.Millisecond || d > 3010*time.Millisecond || p.Owner != "first" || p.Session != 0 || !p.Holds || p.Acquired.IsZero() {
			t.Fatalf("%+v", p)
		}
		if info.Kind != KindRW && p.Token != h.FencingToken() {
			t.Fatalf("token %s, not %s", p.Token, h.FencingToken())
		}
		wantLingering(t, eye, info.Kind)
		// The late release of the former holder does not end the delay.
		for range 2 {
			if err := h.Release(ctx); !errors.Is(err, ErrLost) {
				t.Fatalf("late release: %v", err)
			}
		}
		if _, err := eye.Txn(ctx, h.Guard(), client.OpCreate("/late", nil)); !errors.Is(err, client.ErrBadVersion) {
			t.Fatalf("guard of a lock that lingers: %v", err)
		}
		next := <-w.got
		if took := time.Since(ended); took < 3*time.Second || took > 3300*time.Millisecond {
			t.Fatalf("granted after %s", took)
		}
		if next.FencingToken() <= h.FencingToken() {
			t.Fatal("the token did not rise")
		}
		release(t, next)
		if l := left(c); len(l) != 0 {
			t.Fatalf("left: %v", l)
		}
	})
}

// wantLingering looks at what TryAcquire says meanwhile.
func wantLingering(t *testing.T, eye *client.Client, kind Kind) {
	t.Helper()
	var err error
	switch kind {
	case KindMutex:
		_, err = New(eye, "/l").TryAcquire(t.Context())
	case KindRW:
		_, err = NewRW(eye, "/l").TryAcquireRead(t.Context())
	case KindSemaphore:
		_, err = NewSemaphore(eye, "/l", 1).TryAcquire(t.Context())
	}
	var busy *BusyError
	if !errors.As(err, &busy) || busy.Holder.LingersUntil.IsZero() || !strings.Contains(err.Error(), "lingers until") || busy.Queue != 1 {
		t.Fatalf("%v", err)
	}
}

// TestNoDelayAfterACleanEnd: a release, or a session that its own client closes.
func TestNoDelayAfterACleanEnd(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		cl := connect(t, c)
		h := ask(t, ctx, "first", acquire(cl, LockDelay(time.Minute))).wantGranted(t)
		w := ask(t, ctx, "second", acquire(cl, LockDelay(time.Minute)))
		release(t, h)
		w.wantGranted(t)
		w = ask(t, ctx, "third", acquire(connect(t, c)))
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		release(t, w.wantGranted(t))
	})
}

// TestWaiterLeavesNoDelay: only a holder's entry lingers, so a waiter that vanishes
// blocks nobody.
func TestWaiterLeavesNoDelay(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		h := ask(t, ctx, "holder", acquire(connect(t, c))).wantGranted(t)
		cl := connect(t, c)
		gone := ask(t, ctx, "gone", acquire(cl, LockDelay(time.Minute)))
		next := ask(t, ctx, "next", acquire(connect(t, c)))
		c.Expire(uint64(cl.Session().ID()))
		gone.wantError(t, ErrLost)
		release(t, h)
		release(t, next.wantGranted(t))
	})
}

// TestOperatorEndsTheDelay by deleting what lingers.
func TestOperatorEndsTheDelay(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		cl := connect(t, c)
		h := ask(t, ctx, "holder", acquire(cl, LockDelay(time.Hour))).wantGranted(t)
		c.Expire(uint64(cl.Session().ID()))
		w := ask(t, ctx, "waiter", acquire(connect(t, c)))
		w.wantWaiting(t)
		c.Delete(h.Node())
		release(t, w.wantGranted(t))
	})
}

// TestLostByTheMarginKeepsTheDelay: the session lives on, nobody releases, and the
// entry goes when the delay after the deadline is over.
func TestLostByTheMarginKeepsTheDelay(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		h := acquire(t, New(cl, "/l", SafetyMargin(4*time.Second), LockDelay(20*time.Second)))
		w := ask(t, t.Context(), "waiter", New(connect(t, c, client.WithSessionTimeout(time.Hour)), "/l").Acquire)
		c.Server("n1").Mute()
		lostWithin(t, h, 7*time.Second)
		lost := time.Now()
		c.Server("n1").Unmute()
		next := <-w.got
		if next == nil {
			t.Fatal(w.err)
		}
		if took := time.Since(lost); took < 24*time.Second || took > 25*time.Second {
			t.Fatalf("granted %s after the loss", took)
		}
		release(t, next)
	})
}

func TestLongestDelaysAndLimits(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for _, o := range []Option{
			LockDelay(-1), LockDelay(-time.Second), LockDelay(MaxLockDelay + time.Millisecond),
			WaitLimit(-time.Second), WaitLimit(MaxWaitLimit + time.Millisecond), Value(make([]byte, MaxValueBytes+1)),
		} {
			if _, err := New(cl, "/l", o).Acquire(t.Context()); !errors.Is(err, client.ErrBadArguments) {
				t.Errorf("%v", err)
			}
		}
		release(t, acquire(t, New(cl, "/l", LockDelay(MaxLockDelay), WaitLimit(MaxWaitLimit), Value(make([]byte, MaxValueBytes)))))
		release(t, acquire(t, New(cl, "/l", LockDelay(time.Nanosecond), WaitLimit(time.Hour+time.Microsecond))))
	})
}

// TestWaitLimitEndsTheWait of a contender that is there.
func TestWaitLimitEndsTheWait(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		holder := ask(t, ctx, "holder", acquire(connect(t, c), WaitLimit(2*time.Second))).wantGranted(t)
		began := time.Now()
		_, err := acquire(connect(t, c), WaitLimit(2*time.Second))(ctx)
		if !errors.Is(err, ErrWaitLimit) || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "2s") {
			t.Fatalf("%v", err)
		}
		if took := time.Since(began); took < 2*time.Second || took > 2100*time.Millisecond {
			t.Fatalf("took %s", took)
		}
		// A caller's own deadline is its own.
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := acquire(connect(t, c), WaitLimit(2*time.Second))(short); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrWaitLimit) {
			t.Fatalf("%v", err)
		}
		// The time of a holder is not limited.
		time.Sleep(time.Minute)
		if !holder.Held() || len(left(c)) != 1 {
			t.Fatalf("held %v, left %v", holder.Held(), left(c))
		}
		release(t, holder)
	})
}

// TestWaitLimitIsKeptByTheCluster for a contender whose process hangs while its
// session is kept alive.
func TestWaitLimitIsKeptByTheCluster(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		holder := ask(t, ctx, "holder", acquire(connect(t, c))).wantGranted(t)
		hung := connect(t, c)
		// The entry of a contender that is not there to look at its clock.
		r := kinds[kindOfPath(holder)]
		o := options{owner: "hung", waitLimit: 2 * time.Second}
		f := newFolder(hung, "/l", kindOfPath(holder), nil)
		if _, err := hung.Txn(ctx, f.newEntry(r, o, o.card())); err != nil {
			t.Fatal(err)
		}
		next := ask(t, ctx, "next", acquire(connect(t, c)))
		release(t, holder)
		next.wantWaiting(t)
		time.Sleep(time.Second)
		release(t, next.wantGranted(t))
		if hung.Session().Context().Err() != nil {
			t.Fatal("its session has ended")
		}
	})
}

func kindOfPath(h *Handle) Kind { return h.place.f.kind }

// TestReaperEndsTheWait: the cluster's time is over before the client's own, as
// when the answer to the create came late.
func TestReaperEndsTheWait(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		holder := ask(t, ctx, "holder", acquire(connect(t, c))).wantGranted(t)
		p, enter := waiterWithShortEntry(t, c, holder)
		err := p.leave(ctx, p.wait(ctx, enter))
		if !errors.Is(err, ErrWaitLimit) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		release(t, holder)
		if l := left(c); len(l) != 0 {
			t.Fatalf("left: %v", l)
		}
	})
}

// waiterWithShortEntry is a contender without a timer of its own, in the queue of
// a holder.
func waiterWithShortEntry(t *testing.T, c *fakecoord.Cluster, holder *Handle) (*spot, admit) {
	t.Helper()
	s := NewSemaphore(connect(t, c), "/l", 1, WaitLimit(time.Second))
	enter := s.enter
	if s.kind = holder.place.f.kind; s.kind != KindSemaphore {
		enter = enterMutex
	}
	p, err := s.join(t.Context(), holder.place.role)
	if err != nil {
		t.Fatal(err)
	}
	return p, enter
}

// TestGrantAndReaperRace: the entry's time ends while its grant is written down.
// Either the lock is held for as long as one likes, or it is not.
func TestGrantAndReaperRace(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		a, b := connect(t, c), connect(t, c)
		won := 0
		for i := range 40 {
			holder := ask(t, ctx, "holder", acquire(a)).wantGranted(t)
			w := ask(t, ctx, "waiter", acquire(b, WaitLimit(time.Second)))
			time.Sleep(990*time.Millisecond + time.Duration(i%3-1)*time.Nanosecond) // ask took 10 ms
			release(t, holder)
			h := <-w.got
			if h == nil {
				if !errors.Is(w.err, ErrWaitLimit) {
					t.Fatalf("%v", w.err)
				}
				continue
			}
			won++
			time.Sleep(5 * time.Second)
			if err := h.Verify(ctx); err != nil || !h.Held() {
				t.Fatalf("granted, and gone: %v", err)
			}
			release(t, h)
		}
		synctest.Wait()
		if l := left(c); len(l) != 0 || won == 0 || won == 40 {
			t.Fatalf("left: %v; %d granted of 40", l, won)
		}
	})
}

// TestLostReplyOfTheGrant: it was done; the caller is told so, once.
func TestLostReplyOfTheGrant(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		cl := connect(t, c)
		get := acquire(cl, LockDelay(time.Second))
		release(t, ask(t, t.Context(), "first", get).wantGranted(t)) // the folders are there now
		for _, how := range []fakecoord.Action{fakecoord.Drop, fakecoord.Cut} {
			for lost := 1; lost <= 2; lost++ { // the answer to the create, that to the grant
				n := 0
				c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
					if r.Seq != 0 && r.Read == nil {
						if n++; n == lost {
							return how
						}
					}
					return fakecoord.Pass
				})
				h := ask(t, t.Context(), "again", get)
				time.Sleep(time.Minute)
				c.OnReply(nil)
				got := h.wantGranted(t)
				if l := left(c); len(l) != 1 || l[0] != got.Node() || n < lost {
					t.Fatalf("left: %v, %d answers", l, n)
				}
				release(t, got)
			}
		}
	})
}
