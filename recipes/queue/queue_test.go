package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/fence"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, q *Queue, data string, opts ...PutOption) string {
	t.Helper()
	id, err := q.Put(t.Context(), []byte(data), opts...)
	must(t, err)
	return id
}

func take(t *testing.T, q *Queue) *Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	it, err := q.Take(ctx)
	must(t, err)
	return it
}

func wantData(t *testing.T, it *Item, want string) {
	t.Helper()
	if string(it.Data) != want {
		t.Fatalf("got %q, want %q", it.Data, want)
	}
}

// taken is the outcome of a Take.
type taken struct {
	it  *Item
	err error
}

func taking(ctx context.Context, q *Queue) <-chan taken {
	out := make(chan taken, 1)
	go func() {
		it, err := q.Take(ctx)
		out <- taken{it, err}
	}()
	return out
}

// lister is a cluster whose znodes can be listed.
type lister interface{ Paths(prefix string) []string }

// real runs f in fake time with a real server.
func real(t *testing.T, f func(t *testing.T, c *coordtest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, coordtest.Start(t)) })
}

// remove deletes a znode as an administrator would.
func remove(t *testing.T, c *coordtest.Cluster, path string) {
	t.Helper()
	must(t, c.Dial(client.WithoutSession()).Delete(t.Context(), path, client.AnyVersion))
}

// left are the nodes of a queue that should not stay: everything but folders and
// remembered keys.
func left(c lister, q string) (out []string) {
	for _, p := range c.Paths(q + "/") {
		switch rest := strings.TrimPrefix(p, q+"/"); {
		case !strings.Contains(rest, "/"), rest == "items/claims", strings.HasPrefix(rest, "keys/"):
		default:
			out = append(out, rest)
		}
	}
	return out
}

func wantEmpty(t *testing.T, c lister, q string) {
	t.Helper()
	synctest.Wait()
	if rest := left(c, q); len(rest) != 0 {
		t.Fatalf("left behind: %q", rest)
	}
}

func TestItemsComeOutByPriorityThenAge(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/queues/q")
		put(t, q, "c", Priority(5))
		put(t, q, "a", Priority(-3))
		for i := range 12 { // more than a digit
			put(t, q, fmt.Sprint("b", i))
		}
		put(t, q, "a2", Priority(-3))
		put(t, q, "last", Priority(1<<31-1))
		put(t, q, "first", Priority(-1<<31))
		if n, err := q.Len(t.Context()); n != 17 || err != nil {
			t.Fatal(n, err)
		}
		var got []string
		last := fence.Token(0)
		for range 17 {
			it := take(t, q)
			got = append(got, string(it.Data))
			if it.Deliveries != 1 || it.Token <= last || it.Key != "" || len(it.ID) != 32 {
				t.Fatalf("%+v", it)
			}
			last = it.Token
			must(t, it.Done(t.Context()))
			must(t, it.Done(t.Context()))
		}
		want := "first a a2 b0 b1 b2 b3 b4 b5 b6 b7 b8 b9 b10 b11 c last"
		if have := strings.Join(got, " "); have != want {
			t.Fatalf("%s, want %s", have, want)
		}
		if n, err := q.Len(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		wantEmpty(t, c, "/queues/q")
	})
}

func TestOrderAcrossTenDigits(t *testing.T) {
	names := []string{"80000000-a-9999999999", "80000000-b-10000000000", "80000000-z-2147483648", "7fffffff-c-10000000001"}
	var items []itemName
	for _, n := range names {
		it, ok := parseItem(n)
		if !ok {
			t.Fatal(n)
		}
		items = append(items, it)
	}
	slices.SortFunc(items, itemName.compare)
	var ids string
	for _, it := range items {
		ids += it.id
	}
	if ids != "czab" || items[0].priority != -1 || items[1].priority != 0 {
		t.Fatalf("%+v", items)
	}
}

func TestOtherNamesAreNoItems(t *testing.T) {
	for _, n := range []string{
		"", "readme", "waits", "80000000-0000000001", "80000000--0000000001", "8000000-a-0000000001",
		"g0000000-a-0000000001", "80000000-a-12", "80000000a-0000000001", "8000000A-a-0000000001", "80000000-a0000000001",
	} {
		if it, ok := parseItem(n); ok {
			t.Errorf("%q is taken for item %+v", n, it)
		}
	}
	for _, p := range []int{-1 << 31, -1, 0, 1, 1<<31 - 1} {
		it, ok := parseItem(itemPrefix(p, "key=a-1") + "0000000012")
		if !ok || it.priority != p || it.id != "key=a-1" || it.number != 12 || it.key() != "a-1" {
			t.Errorf("%+v", it)
		}
	}
}

func TestPriorityAndKeyAreChecked(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q")
		for _, p := range []int{1 << 31, -1<<31 - 1} {
			if _, err := q.Put(t.Context(), nil, Priority(p)); !errors.Is(err, client.ErrBadArguments) {
				t.Fatal(err)
			}
		}
		for _, k := range []string{"", "\xff", strings.Repeat("k", 201)} {
			if _, err := q.Put(t.Context(), nil, Key(k)); !errors.Is(err, ErrKey) {
				t.Fatal(err)
			}
		}
		for _, k := range []string{".", "..", "a/b", "a b", "\x00", "größe", "%41", "order-0000000041", strings.Repeat("/", 200)} {
			id := put(t, q, "x", Key(k))
			it := take(t, q)
			if it.Key != k || it.ID != id {
				t.Fatalf("put with key %q, took %q", k, it.Key)
			}
			must(t, it.Done(t.Context()))
		}
	})
}

// TestSameKeyIsPutOnce while the item waits, while it is worked on, and for the
// retention after it is done.
func TestSameKeyIsPutOnce(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		a, b := New(c.Dial(), "/q", Retention(time.Minute)), New(c.Dial(), "/q", Retention(time.Minute))
		id := put(t, a, "first", Key("order-41"))
		again := func(q *Queue, want int) {
			t.Helper()
			if second := put(t, q, "second", Key("order-41")); second != id {
				t.Fatalf("id %s, want %s", second, id)
			}
			if n, err := q.Len(t.Context()); n != want || err != nil {
				t.Fatal(n, err)
			}
		}
		again(a, 1)
		again(b, 1)
		it := take(t, b)
		wantData(t, it, "first")
		again(a, 1)
		must(t, it.Done(t.Context()))
		again(a, 0)
		time.Sleep(50 * time.Second)
		again(b, 0)
		n, err := c.Dial().Get(t.Context(), "/q/keys/key=order-41")
		if err != nil || n.Stat.Kind != client.TTL || n.Stat.TTL != time.Minute {
			t.Fatalf("%+v %v", n.Stat, err)
		}
		time.Sleep(15 * time.Second)
		put(t, a, "third", Key("order-41"))
		wantData(t, take(t, a), "third")
	})
}

// TestItemOfADeadTakerComesBack at its old place, and counts the delivery.
func TestItemOfADeadTakerComesBack(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q")
		put(t, q, "1")
		put(t, q, "2")
		last := fence.Token(0)
		for n := 1; n <= 4; n++ {
			cl := c.Dial()
			it := take(t, New(cl, "/q"))
			wantData(t, it, "1")
			if it.Deliveries != n || it.Token <= last {
				t.Fatalf("delivery %d, token %s after %s, want delivery %d", it.Deliveries, it.Token, last, n)
			}
			last = it.Token
			other := take(t, q)
			wantData(t, other, "2")
			must(t, other.Return(t.Context(), 0))
			c.Expire(cl.Session())
			<-it.Context().Done()
			if cause := context.Cause(it.Context()); !errors.Is(cause, ErrLost) || !errors.Is(cause, client.ErrSessionExpired) {
				t.Fatal(cause)
			}
		}
	})
}

// TestDoneAfterLossChangesNothing: another works on the item, or has done it.
func TestDoneAfterLossChangesNothing(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q")
		put(t, q, "1", Key("k"))
		old := take(t, New(c.Dial(), "/q"))
		remove(t, c, old.claim.node())
		next := take(t, q)
		for range 2 {
			err := old.Done(t.Context())
			var e *LostError
			if !errors.Is(err, ErrLost) || !errors.As(err, &e) || e.Token != old.Token || e.ID != old.ID || !errors.Is(err, ErrRemoved) {
				t.Fatal(err)
			}
			if err := old.Return(t.Context(), time.Second); !errors.Is(err, ErrLost) {
				t.Fatal(err)
			}
		}
		if next.Context().Err() != nil || next.Deliveries != 2 || next.Token <= old.Token {
			t.Fatalf("%+v", next)
		}
		must(t, next.Done(t.Context()))
		wantEmpty(t, c, "/q")
	})
}

// TestDoneThatFindsTheClaimGone: it was lost, and this process has not heard yet.
func TestDoneThatFindsTheClaimGone(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		q := New(cl, "/q")
		put(t, q, "1")
		it := take(t, q)
		node := it.claim.node()
		done := make(chan error, 1)
		c.Server("n1").Mute() // it does not hear
		c.Delete(node)
		go func() { done <- it.Done(t.Context()) }()
		synctest.Wait()
		c.Server("n1").Unmute()
		if err := <-done; !errors.Is(err, ErrLost) || !errors.Is(err, ErrRemoved) {
			t.Fatal(err)
		}
		wantData(t, take(t, q), "1")
	})
}

func TestReturnAndDelay(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q")
		ctx := t.Context()
		put(t, q, "1")
		put(t, q, "2")
		it := take(t, q)
		if err := it.Return(ctx, -1); !errors.Is(err, client.ErrBadArguments) {
			t.Fatal(err)
		}
		must(t, it.Return(ctx, 0))
		must(t, it.Return(ctx, 0))
		if err := it.Done(ctx); !errors.Is(err, ErrReturned) || !errors.Is(context.Cause(it.Context()), ErrReturned) {
			t.Fatal(err)
		}
		it = take(t, q)
		wantData(t, it, "1")
		must(t, it.Return(ctx, 90*time.Second))
		second := take(t, q)
		wantData(t, second, "2")
		if n, err := q.Len(ctx); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		must(t, second.Done(ctx))
		if err := second.Return(ctx, 0); !errors.Is(err, ErrDone) {
			t.Fatal(err)
		}
		out := taking(ctx, q)
		time.Sleep(85 * time.Second)
		if len(out) != 0 {
			t.Fatal("it came out before its time")
		}
		held := c.Paths("/q/items/claims/")
		if len(held) != 1 {
			t.Fatal(held)
		}
		n, err := q.c.Get(ctx, held[0])
		if err != nil || n.Stat.Kind != client.TTL || n.Stat.TTL != 90*time.Second {
			t.Fatalf("%+v %v", n.Stat, err)
		}
		third := <-out
		must(t, third.err)
		wantData(t, third.it, "1")
		if third.it.Deliveries != 3 {
			t.Fatal(third.it.Deliveries)
		}
	})
}

// TestReturnWorksWithADoneContext and so does giving up a Take.
func TestReturnWorksWithADoneContext(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q")
		put(t, q, "1")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, take(t, q).Return(done, 0))
		must(t, take(t, q).Done(done))
		wantEmpty(t, c, "/q")
	})
}

func TestPoisonItemsAreSetAside(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q", MaxDeliveries(3))
		put(t, q, "poison", Key("p"))
		put(t, q, "good")
		for n := 1; n <= 3; n++ {
			it := take(t, q)
			wantData(t, it, "poison")
			must(t, it.Return(t.Context(), 0))
		}
		it := take(t, q)
		wantData(t, it, "good")
		must(t, it.Done(t.Context()))
		dead := c.Paths("/q/dead/")
		if len(dead) != 1 {
			t.Fatal(dead)
		}
		n, err := q.c.Get(t.Context(), dead[0])
		if err != nil || string(n.Data) != "poison" {
			t.Fatal(string(n.Data), err)
		}
		put(t, q, "poison", Key("p")) // it is remembered, too
		if n, err := q.Len(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// TestLostRepliesPutAndTakeOnce drops answers and cuts connections.
func TestLostRepliesPutAndTakeOnce(t *testing.T) {
	r := random(t)
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		q := New(connect(t, c, client.WithSessionTimeout(time.Minute)), "/q")
		faults := 0
		c.OnReply(func(_ string, reply *coordpb.Reply) fakecoord.Action {
			if r.IntN(5) != 0 {
				return fakecoord.Pass
			}
			faults++
			return fakecoord.Cut
		})
		const items = 25
		for i := range items {
			put(t, q, fmt.Sprint(i))
		}
		for i := range items {
			it := take(t, q)
			wantData(t, it, fmt.Sprint(i))
			if it.Deliveries != 1 {
				t.Fatalf("item %d was delivered %d times", i, it.Deliveries)
			}
			must(t, it.Done(t.Context()))
		}
		c.OnReply(nil)
		if faults == 0 {
			t.Fatal("no answer was lost")
		}
		wantEmpty(t, c, "/q")
	})
}

// TestForeignNodesAreLeftAlone: children that are no items, without data too, and
// a claim of somebody else.
func TestForeignNodesAreLeftAlone(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		cl := c.Dial()
		q := New(cl, "/q")
		ctx := t.Context()
		for _, p := range []string{
			"/q", "/q/items", "/q/items/readme", "/q/items/lock-0000000001", "/q/items/80000000-x-0000000000",
			"/q/items/claims", "/q/items/claims/80000000-x-0000000000", "/q/items/claims/readme", "/q/items/80000000-y-0000000001", "/q/takers", "/q/takers/readme",
		} {
			_, err := cl.Create(ctx, p, nil)
			must(t, err)
		}
		put(t, q, "mine")
		it := take(t, q)
		if it.ID != "y" || it.Data != nil || it.Deliveries != 1 {
			t.Fatalf("%+v", it)
		}
		must(t, it.Done(ctx))
		it = take(t, q)
		wantData(t, it, "mine")
		_, err := cl.Create(ctx, it.claim.itemNode()+"/note", nil)
		must(t, err)
		if err := it.Done(ctx); !errors.Is(err, client.ErrNotEmpty) {
			t.Fatal(err)
		}
		must(t, cl.Delete(ctx, it.claim.itemNode()+"/note", client.AnyVersion))
		again := take(t, q)
		wantData(t, again, "mine")
		must(t, again.Done(ctx))
	})
}

// FuzzItemName: what is no item's name is refused, and what is taken for one is
// written the same way again.
func FuzzItemName(f *testing.F) {
	for _, seed := range []string{"80000000-a-0000000001", "7fffffff-key=%2F-10000000000", "readme", "80000000--0000000001"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		it, ok := parseItem(name)
		if !ok {
			return
		}
		head := itemPrefix(it.priority, it.id)
		digits, found := strings.CutPrefix(name, head)
		if !found || strings.Trim(digits, "0123456789") != "" || it.compare(it) != 0 {
			t.Fatalf("%q is read as %+v", name, it)
		}
		_ = it.key()
	})
}
