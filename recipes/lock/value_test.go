package lock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
)

// valueOf is the holder's value as others see it.
func valueOf(t *testing.T, cl *client.Client) Party {
	t.Helper()
	info, err := Inspect(t.Context(), cl, "/l")
	if err != nil || len(info.Holders) != 1 {
		t.Fatalf("%+v %v", info, err)
	}
	return info.Holders[0]
}

func TestValueIsSeenAndChangedByItsHolderOnly(t *testing.T) {
	eachKind(t, func(t *testing.T, c *fakecoord.Cluster, acquire func(*client.Client, ...Option) func(context.Context) (*Handle, error)) {
		ctx := t.Context()
		eye := connect(t, c)
		labels := map[string]string{"run": "9"}
		h := ask(t, ctx, "a", acquire(connect(t, c), Value([]byte("one")), Owner("me"), Labels(labels), LockDelay(time.Second))).wantGranted(t)
		before, token := valueOf(t, eye), h.FencingToken()
		if string(before.Value) != "one" || before.Token != token {
			t.Fatalf("%+v", before)
		}
		for _, v := range [][]byte{[]byte("two"), {}, {0, 0xff}, bytes.Repeat([]byte{7}, MaxValueBytes)} {
			if err := h.SetValue(ctx, v); err != nil {
				t.Fatal(err)
			}
			p := valueOf(t, eye)
			if !bytes.Equal(p.Value, v) || p.Owner != "me" || p.Labels["run"] != "9" || p.Token != token || h.FencingToken() != token ||
				!p.Acquired.Equal(before.Acquired) || !p.Since.Equal(before.Since) {
				t.Fatalf("%+v, before %+v", p, before)
			}
		}
		if err := h.SetValue(ctx, make([]byte, MaxValueBytes+1)); !errors.Is(err, client.ErrBadArguments) {
			t.Fatalf("too long: %v", err)
		}
		// The settings of the holder stand: the time limit of a lingering lock too.
		if st, _, err := eye.Exists(ctx, h.Node()); err != nil || st.Linger != time.Second || st.TTL != 0 {
			t.Fatalf("%+v %v", st, err)
		}
		release(t, h)
		if err := h.SetValue(ctx, nil); !errors.Is(err, ErrReleased) {
			t.Fatalf("after the release: %v", err)
		}
	})
}

// TestValueOfAFormerHolderIsRefused: its node is gone, and the next holder stands
// at the same path.
func TestValueOfAFormerHolderIsRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		a, b := connect(t, c), connect(t, c)
		former := ask(t, ctx, "a", NewSemaphore(a, "/l", 1).Acquire).wantGranted(t)
		former.ignore() // it has yet to hear of it
		c.Delete(former.Node())
		next := ask(t, ctx, "b", NewSemaphore(b, "/l", 1, Value([]byte("next"))).Acquire).wantGranted(t)
		if next.Node() != former.Node() {
			t.Fatal("it stands elsewhere")
		}
		if err := former.SetValue(ctx, []byte("late")); !errors.Is(err, ErrLost) {
			t.Fatalf("%v", err)
		}
		if p := valueOf(t, b); string(p.Value) != "next" {
			t.Fatalf("%+v", p)
		}
		release(t, next)
	})
}

// TestSetValueFindsTheLossFirst: before the watch has told.
func TestSetValueFindsTheLossFirst(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		h := acquire(t, New(cl, "/l"))
		h.ignore()
		c.Delete(h.Node())
		if err := h.SetValue(t.Context(), nil); !errors.Is(err, ErrDeleted) {
			t.Fatalf("%v", err)
		}
		lostWithin(t, h, time.Millisecond)
	})
}

func TestValuesSetAtOnceAreAllDone(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		h := acquire(t, New(cl, "/l"))
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := h.SetValue(t.Context(), fmt.Append(nil, i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if p := valueOf(t, cl); len(p.Value) == 0 || p.Token != h.FencingToken() {
			t.Fatalf("%+v", p)
		}
		release(t, h)
	})
}

// TestContextCarriesTheGrant by the lock's path in the cluster, also to one that
// sees a part of the tree only.
func TestContextCarriesTheGrant(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		whole := connect(t, c)
		if _, err := whole.Create(ctx, "/tenant", nil); err != nil {
			t.Fatal(err)
		}
		part := connect(t, c, client.WithChroot("/tenant"))
		want := func(ctx context.Context, lock string, h *Handle) {
			t.Helper()
			if g, ok := fence.FromContext(ctx); !ok || g.Lock != lock || g.Token != h.FencingToken() || g.Token == 0 {
				t.Fatalf("%+v, want %s %s", g, lock, h.FencingToken())
			}
		}
		err := New(part, "/l").Do(ctx, func(ctx context.Context, outer *Handle) error {
			want(ctx, "/tenant/l", outer)
			want(outer.Context(), "/tenant/l", outer)
			err := NewSemaphore(whole, "/s", 2).Do(ctx, func(ctx context.Context, h *Handle) error {
				want(ctx, "/s", h)
				if g, ok := fence.FromContextFor(ctx, "/tenant/l"); !ok || g.Token != outer.FencingToken() {
					t.Errorf("outer: %+v", g)
				}
				return nil
			})
			return errors.Join(err, NewRW(whole, "/rw").DoWrite(ctx, func(ctx context.Context, h *Handle) error {
				want(ctx, "/rw", h)
				return nil
			}))
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestSafetyIsPickedByName(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		mine := errors.New("mine")
		err := Correct(cl, "/l").Do(t.Context(), func(ctx context.Context, token fence.Token) error {
			if g, ok := fence.FromContext(ctx); !ok || g.Token != token || token == 0 {
				t.Errorf("token %s, grant %+v", token, g)
			}
			// It is the same lock by whatever name.
			if err := Efficiency(cl, "/l").Do(ctx, func(context.Context) error { return nil }); !errors.Is(err, ErrDeadlock) {
				t.Errorf("%v", err)
			}
			return mine
		})
		if !errors.Is(err, mine) {
			t.Fatal(err)
		}
		err = Efficiency(cl, "/l").Do(t.Context(), func(ctx context.Context) error {
			h, ok := FromContext(ctx, "/l")
			if !ok {
				t.Fatal("no handle")
			}
			c.Delete(h.Node())
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
	})
}

// TestOwnerIsTheOptionOrTheSessionsName for the holder as for others.
func TestOwnerIsTheOptionOrTheSessionsName(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionName("host-1"))
		for want, opts := range map[string][]Option{"host-1": nil, "job-7": {Owner("job-7")}} {
			m := New(cl, "/l", opts...)
			h := acquire(t, m)
			info, err := m.Inspect(t.Context())
			if err != nil || h.Owner() != want || len(info.Holders) != 1 || info.Holders[0].Owner != want {
				t.Fatalf("%s: %q, %+v, %v", want, h.Owner(), info, err)
			}
			release(t, h)
		}
	})
}
