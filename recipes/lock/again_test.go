package lock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

// remake deletes a node of a session and lets the same session make another one at
// its path, so that only the czxid tells them apart.
func remake(t *testing.T, c *fakecoord.Cluster, owner *client.Client, path string) {
	t.Helper()
	c.Delete(path)
	if _, err := owner.Create(t.Context(), path, []byte("another's"), client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
}

// TestEntryThatComesAgainIsNotOurs: a waiter whose entry was deleted, and which has
// not heard of it, is not granted the lock by the one that stands there now, and
// leaves that one alone.
func TestEntryThatComesAgainIsNotOurs(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		holder := ask(t, ctx, "holder", acquire(connect(t, c))).wantGranted(t)
		s := NewSemaphore(connect(t, c), "/l", 1)
		s.kind = holder.place.f.kind
		p, err := s.join(ctx, holder.place.role)
		if err != nil {
			t.Fatal(err)
		}
		p.handle.ignore() // it does not hear of it
		remake(t, c, s.c, p.entry.Path)
		release(t, holder)
		if err := p.untilFirst(ctx); !errors.Is(err, ErrDeleted) {
			t.Fatalf("first in the queue: %v", err)
		}
		if _, err := p.record(ctx); !errors.Is(err, ErrDeleted) {
			t.Fatalf("record: %v", err)
		}
		at, err := s.slots(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if done, err := s.take(ctx, p, at); done || !errors.Is(err, ErrDeleted) {
			t.Fatalf("take: %v %v", done, err)
		}
		if err := p.leave(ctx, ErrDeleted); !errors.Is(err, ErrLost) {
			t.Fatalf("leave: %v", err)
		}
		time.Sleep(time.Minute)
		if l := left(c); len(l) != 1 || l[0] != p.entry.Path {
			t.Fatalf("left: %v", l)
		}
	})
}

// TestHeldNodeThatComesAgainIsNotOurs: the same for a holder.
func TestHeldNodeThatComesAgainIsNotOurs(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		cl := connect(t, c)
		for name, use := range map[string]func(h *Handle) error{
			"verify":  func(h *Handle) error { return h.Verify(ctx) },
			"value":   func(h *Handle) error { return h.SetValue(ctx, []byte("late")) },
			"release": func(h *Handle) error { return h.Release(ctx) },
		} {
			h := ask(t, ctx, "holder", acquire(cl)).wantGranted(t)
			h.ignore()
			remake(t, c, cl, h.Node())
			if err := use(h); !errors.Is(err, ErrDeleted) || !errors.Is(err, ErrLost) {
				t.Fatalf("%s: %v", name, err)
			}
			n, err := cl.Get(ctx, h.Node())
			if err != nil || string(n.Data) != "another's" {
				t.Fatalf("%s: %q %v", name, n.Data, err)
			}
			if err := h.Release(ctx); !errors.Is(err, ErrLost) {
				t.Fatalf("%s: %v", name, err)
			}
			c.Delete(h.Node())
		}
	})
}

// TestSlotsThatChangeWhileTheyAreLookedAt: what was seen is not acted on.
func TestSlotsThatChangeWhileTheyAreLookedAt(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		s, op := NewSemaphore(connect(t, c), "/l", 2), connect(t, c)
		p, err := s.join(ctx, roleSlot)
		if err != nil {
			t.Fatal(err)
		}
		slotTaken := func() { remakeSlot(t, op, "/l/slots/0") }
		for name, change := range map[string]func(){
			"another limit": func() {
				if _, err := op.Set(ctx, "/l/slots", []byte(`{"limit":2} `), client.AnyVersion); err != nil {
					t.Fatal(err)
				}
			},
			"deleted":  func() { c.Delete("/l/slots") },
			"remade":   func() { c.Delete("/l/slots"); _, _ = op.Txn(ctx, s.newSlots()) },
			"the slot": slotTaken,
		} {
			at, err := s.slots(ctx)
			if err != nil || at.free != 0 {
				t.Fatalf("%+v %v", at, err)
			}
			change()
			if done, err := s.take(ctx, p, at); done || err != nil {
				t.Fatalf("%s: %v %v", name, done, err)
			}
			c.Delete("/l/slots/0")
			if err := p.handle.Verify(ctx); err != nil {
				t.Fatalf("%s: the place is lost: %v", name, err)
			}
		}
		if err := s.enter(ctx, p, true); err != nil {
			t.Fatal(err)
		}
		release(t, p.handle)
	})
}

func remakeSlot(t *testing.T, op *client.Client, path string) {
	t.Helper()
	if _, err := op.Create(t.Context(), path, nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
}

// TestSlotFreedBeforeTheWatchIsNotMissed: between the look and the watch.
func TestSlotFreedBeforeTheWatchIsNotMissed(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := NewSemaphore(connect(t, c), "/l", 1)
		h := ask(t, ctx, "holder", s.Acquire).wantGranted(t)
		at, err := s.slots(ctx)
		if err != nil || at.free >= 0 {
			t.Fatalf("%+v %v", at, err)
		}
		release(t, h)
		if err := s.untilChanged(ctx, at.node); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLimitOfAQueueIsNotChanged: somebody is about to take the first slot.
func TestLimitOfAQueueIsNotChanged(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		s := NewSemaphore(connect(t, c), "/l", 2)
		p, err := s.join(ctx, roleSlot)
		if err != nil {
			t.Fatal(err)
		}
		at, err := s.slots(ctx)
		if err != nil {
			t.Fatal(err)
		}
		other := NewSemaphore(connect(t, c), "/l", 3)
		if _, err := other.Acquire(ctx); !errors.Is(err, ErrLimitMismatch) {
			t.Fatalf("%v", err)
		}
		if done, err := s.take(ctx, p, at); !done || err != nil {
			t.Fatalf("%v %v", done, err)
		}
		release(t, p.handle)
		release(t, ask(t, ctx, "other", other.Acquire).wantGranted(t))
	})
}

// TestNodeThatBeginsToLingerIsLost: the change is seen before the session itself
// tells of its end.
func TestNodeThatBeginsToLingerIsLost(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		a, b := connect(t, c), connect(t, c)
		h := acquire(t, New(a, "/a"))
		ended := acquire(t, New(b, "/b", LockDelay(time.Minute)))
		go h.watchNode(ctx, ended.node())
		time.Sleep(time.Second)
		if err := ended.SetValue(ctx, []byte("a change that is no end")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if !h.Held() {
			t.Fatal("a change of the value is no loss")
		}
		c.Expire(uint64(b.Session().ID()))
		if cause := lostWithin(t, h, time.Second); !errors.Is(cause, client.ErrSessionExpired) {
			t.Fatalf("cause %v", cause)
		}
	})
}

// TestMissedChangesAreMadeUpFor: the servers have forgotten what happened while
// holder and waiter were cut off. Who still has its node goes on, who has not
// learns it.
func TestMissedChangesAreMadeUpFor(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		forget := func(meanwhile func()) {
			for _, n := range []string{"n1", "n2"} {
				c.Server(n).Stop()
			}
			meanwhile()
			c.Forget()
			for _, n := range []string{"n1", "n2"} {
				c.Server(n).Start()
			}
			time.Sleep(3 * time.Second)
		}
		long := client.WithSessionTimeout(time.Minute)
		h := ask(t, ctx, "holder", acquire(connect(t, c, long))).wantGranted(t)
		w := ask(t, ctx, "waiter", acquire(connect(t, c, long)))
		forget(func() {})
		w.wantWaiting(t)
		if !h.Held() {
			t.Fatal("the holder lost it")
		}
		forget(func() { c.Delete(h.Node()) })
		if cause := lostWithin(t, h, time.Second); !errors.Is(cause, ErrDeleted) {
			t.Fatalf("cause %v", cause)
		}
		next := w.wantGranted(t)
		w = ask(t, ctx, "second waiter", acquire(connect(t, c, long)))
		forget(func() { c.Delete(next.place.entry.Path); c.Delete(next.Node()) })
		release(t, w.wantGranted(t))
	})
}
