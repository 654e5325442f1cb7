package lock

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/settle"
)

func TestQueueIsOrderedByNumber(t *testing.T) {
	names := []string{
		"_c_9a-lock-10000000000", "zz__lock__0000000003", "lock-0000000001", "readme", "x-12",
		"_c_00-lock-9999999999", "__READ__0000000002", "lock-99999999999999999999999", "lock-2147483648",
	}
	want := []entry{
		{"lock-0000000001", 1, PatternPlain},
		{"__READ__0000000002", 2, PatternOther},
		{"zz__lock__0000000003", 3, PatternKazoo},
		{"lock-2147483648", 2147483648, PatternPlain},
		{"_c_00-lock-9999999999", 9999999999, PatternCurator},
		{"_c_9a-lock-10000000000", 10000000000, PatternCurator},
	}
	q := queueOf(names)
	if len(q) != len(want) {
		t.Fatalf("%v", q)
	}
	for i := range want {
		if q[i] != want[i] {
			t.Fatalf("place %d: %+v, want %+v", i, q[i], want[i])
		}
	}
}

func TestOwnNamesAreRead(t *testing.T) {
	for _, r := range []role{roleLock, roleRead, roleWrite, roleSlot} {
		name := settle.Name(string(r)) + "0000000007"
		if e, ok := parseEntry(name); !ok || e.pattern != PatternCurator || e.number != 7 || roleOf(name) != r {
			t.Fatalf("%s: %+v", name, e)
		}
	}
}

// TestForeignContendersAreRespectedAndShown: entries of other clients, without
// data or with data that is no JSON, stand in the queue like ours.
func TestForeignContendersAreRespectedAndShown(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		kazoo, cl := connect(t, c), connect(t, c)
		if _, err := cl.Create(ctx, "/l", nil); err != nil {
			t.Fatal(err)
		}
		for prefix, data := range map[string][]byte{"/l/9f3c__lock__": []byte("host-a"), "/l/readme": nil} {
			opts := []client.CreateOption{client.WithEphemeral()}
			if data != nil {
				opts = append(opts, client.WithSequential())
			}
			if _, err := kazoo.Create(ctx, prefix, data, opts...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := kazoo.Create(ctx, "/l/lock-", nil, client.WithSequential()); err != nil {
			t.Fatal(err)
		}
		got := make(chan *Handle, 1)
		go func() {
			if h, err := New(cl, "/l", Owner("me")).Acquire(ctx); err == nil {
				got <- h
			}
		}()
		waitFor(t, func() bool { return entries(c, "/l") == 4 })
		info, err := New(cl, "/l").Inspect(ctx)
		if err != nil || len(info.Holders) != 1 || len(info.Waiters) != 2 {
			t.Fatalf("%+v %v", info, err)
		}
		if h := info.Holders[0]; h.Owner != "host-a" || h.Pattern != PatternKazoo || h.Session != kazoo.Session().ID() {
			t.Fatalf("holder %+v", h)
		}
		if w := info.Waiters[1]; w.Owner != "me" || w.Pattern != PatternCurator || w.Since.IsZero() {
			t.Fatalf("waiter %+v", w)
		}
		if len(info.Warnings) != 2 {
			t.Fatalf("warnings %q", info.Warnings)
		}
		if err := kazoo.Close(); err != nil {
			t.Fatal(err)
		}
		for _, p := range c.Paths("/l/lock-") {
			c.Delete(p)
		}
		release(t, <-got)
		empty, err := New(cl, "/none").Inspect(ctx)
		if err != nil || len(empty.Holders) != 0 {
			t.Fatalf("%+v %v", empty, err)
		}
	})
}

func TestForeignDataIsShownOnlyAsText(t *testing.T) {
	for in, want := range map[string]string{"host-a": "host-a", "\x00\x01": "", "\xff": "", "": "", "a\x1b[2Jb": ""} {
		if got := foreignOwner([]byte(in)); got != want {
			t.Errorf("%q is shown as %q", in, got)
		}
	}
	if long := foreignOwner(bytes.Repeat([]byte("é"), 500)); len(long) > maxOwnerBytes+3 || !utf8.ValidString(long) {
		t.Errorf("%d bytes are shown", len(long))
	}
}
