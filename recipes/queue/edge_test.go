package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/fence"
)

// TestItemsOfOneNameDie: the folder of items goes when it is empty, and a new one
// counts from 0. An item with a key may then get the name of one among the dead; it
// must not keep the takers from all that is behind it.
func TestItemsOfOneNameDie(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		q := New(connect(t, c), "/q", MaxDeliveries(1), Retention(time.Second))
		for n := range 3 {
			put(t, q, "x", Key("k"))
			must(t, take(t, q).Return(t.Context(), 0))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the key is forgotten by then
			if it, err := q.Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%+v, %v", it, err)
			}
			cancel()
			if dead := c.Paths("/q/dead/"); len(dead) != n+1 {
				t.Fatalf("dead: %q", dead)
			}
			c.Delete("/q/items/claims") // as the cluster does with empty containers
			c.Delete("/q/items")
		}
	})
}

// TestItemDeletedUnderItsTakerIsLost: deleting an item by hand takes it out, and
// its claim does not stay.
func TestItemDeletedUnderItsTakerIsLost(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		q := New(connect(t, c), "/q", MaxDeliveries(1))
		for _, key := range [][]PutOption{nil, {Key("k")}} {
			put(t, q, "x", key...)
			it := take(t, q)
			c.Delete(it.claim.itemNode())
			if err := it.Done(t.Context()); !errors.Is(err, ErrLost) || !errors.Is(err, ErrRemoved) {
				t.Errorf("done: %v", err)
			}
			wantEmpty(t, c, "/q")
		}
	})
}

// TestSessionEndsBehindTheClaim: the session may be over by the time the answer
// about the claim is looked at.
func TestSessionEndsBehindTheClaim(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		put(t, New(cl, "/q"), "x")
		it := take(t, New(cl, "/q"))
		c.Expire(uint64(cl.Session().ID()))
		<-it.Context().Done()
		for range 1000 {
			again := it.claim.newItem(client.Node{})
			<-again.Context().Done()
		}
	})
}

// TestItemIsNamedToResourcesAsInTheCluster, whatever the taker's chroot.
func TestItemIsNamedToResourcesAsInTheCluster(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		put(t, New(connect(t, c), "/app/q"), "x")
		it := take(t, New(connect(t, c, client.WithChroot("/app")), "/q"))
		if g, ok := fence.FromContext(it.Context()); !ok || !strings.HasPrefix(g.Lock, "/app/q/items/") || g.Token != it.Token {
			t.Errorf("the grant is %+v", g)
		}
		must(t, it.Return(t.Context(), 0))
	})
}

// TestPutOfAClientWithoutSessionAddsOnce although answers are lost: the write is
// recognised by its id.
func TestPutOfAClientWithoutSessionAddsOnce(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		cl := c.Dial(client.WithoutSession())
		q := New(cl, "/q")
		for range 10 {
			c.DropReply(cl)
			if _, err := q.Put(t.Context(), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := q.Len(t.Context()); n != 10 || err != nil {
			t.Errorf("%d items, %v", n, err)
		}
	})
}
