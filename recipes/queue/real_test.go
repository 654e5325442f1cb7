package queue

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
	"github.com/coordd/coord/recipes/internal/rig"
)

// TestTimesThatTheClusterKeeps on a real server: a delay, and the retention of a
// key.
func TestTimesThatTheClusterKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.Start(t)
		q := New(c.Dial(), "/q", Retention(time.Minute))
		id := put(t, q, "1", Key("k"))
		must(t, take(t, q).Return(t.Context(), 30*time.Second))
		began := time.Now()
		it := take(t, q)
		if took := time.Since(began); took < 29*time.Second || took > 32*time.Second {
			t.Fatalf("it was held back for %s", took)
		}
		if it.Deliveries != 2 || it.ID != id {
			t.Fatalf("%+v", it)
		}
		must(t, it.Done(t.Context()))
		time.Sleep(58 * time.Second)
		put(t, q, "2", Key("k"))
		if n, err := q.Len(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(5 * time.Second)
		put(t, q, "3", Key("k"))
		wantData(t, take(t, q), "3")
	})
}

// TestTooLargeAnItemIsRefused with the client's own error.
func TestTooLargeAnItemIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(coordtest.Start(t).Dial(), "/q")
		for _, opts := range [][]PutOption{nil, {Key("k")}} {
			_, err := q.Put(t.Context(), make([]byte, 2<<20), opts...)
			var e *client.Error
			if !errors.Is(err, client.ErrTooLarge) || !errors.As(err, &e) || e.Limit == "" {
				t.Fatal(err)
			}
		}
		put(t, q, "small", Key("k"))
		wantData(t, take(t, q), "small")
	})
}

// TestFoldersGoWhenTheQueueIsEmpty and come again.
func TestFoldersGoWhenTheQueueIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.Start(t)
		q := New(c.Dial(), "/queues/q", Retention(time.Minute))
		for round := range 2 {
			put(t, q, fmt.Sprint(round), Key("k"))
			it := take(t, q)
			must(t, it.Return(t.Context(), time.Second))
			it = take(t, q)
			wantData(t, it, fmt.Sprint(round))
			must(t, it.Done(t.Context()))
			for tries := 0; len(c.Paths("/queues")) > 0; tries++ {
				if tries == 1000 {
					t.Fatalf("still there: %q", c.Paths("/queues"))
				}
				time.Sleep(10 * time.Second)
			}
		}
	})
}

// TestLeaderKills: items pass through a cluster of three whose leader is killed
// again and again; each is done once, in order, and none is lost.
func TestLeaderKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.StartCluster(t, 3)
		const items = 40
		var wg sync.WaitGroup
		wg.Go(func() {
			q := New(c.Dial(client.WithSessionTimeout(time.Minute)), "/q")
			for i := range items {
				if _, err := q.Put(t.Context(), []byte(fmt.Sprint(i)), Key(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				time.Sleep(300 * time.Millisecond)
			}
		})
		wg.Go(func() {
			q := New(c.Dial(client.WithSessionTimeout(time.Minute)), "/q")
			for i := range items {
				it, err := q.Take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if string(it.Data) != fmt.Sprint(i) || it.Deliveries != 1 {
					t.Errorf("item %d is %q, delivery %d", i, it.Data, it.Deliveries)
				}
				if err := it.Done(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
		for range 3 {
			time.Sleep(2 * time.Second)
			leader := c.AwaitLeader()
			c.Kill(leader)
			c.AwaitLeader(leader)
			time.Sleep(time.Second)
			c.Restart(leader)
		}
		wg.Wait()
		if n, err := New(c.Dial(), "/q").Len(t.Context()); n != 0 || err != nil {
			t.Fatal(n, err)
		}
	})
}

// TestNextTakeSeesWhatWentBefore: an item that another process has returned, or
// lost with its session, comes out before the later ones, also for a taker who
// has known it to be claimed; so does one that was put before all.
func TestNextTakeSeesWhatWentBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := coordtest.StartCluster(t, 3, coordtest.Latency(time.Millisecond))
		b := New(c.Dial(), "/q")
		put(t, b, "1")
		put(t, b, "2")
		for i := range rig.Times(40) {
			cl := c.Dial()
			first := take(t, New(cl, "/q"))
			second := take(t, b)
			wantData(t, first, "1")
			wantData(t, second, "2")
			if i%2 == 0 {
				must(t, first.Return(t.Context(), 0))
			} else {
				c.Expire(cl.Session())
			}
			again := take(t, b)
			wantData(t, again, "1")
			put(t, New(c.Dial(client.WithoutSession()), "/q"), "0", Priority(-1))
			urgent := take(t, b)
			wantData(t, urgent, "0")
			must(t, urgent.Done(t.Context()))
			must(t, again.Return(t.Context(), 0))
			must(t, second.Return(t.Context(), 0))
			_ = cl.Close() // its session may have expired
		}
	})
}

// TestKeyThatIsDeletedMeanwhile does not keep an item from being done, or being
// set aside; and is remembered all the same.
func TestKeyThatIsDeletedMeanwhile(t *testing.T) {
	real(t, func(t *testing.T, c *coordtest.Cluster) {
		q := New(c.Dial(), "/q", MaxDeliveries(1))
		for _, folderToo := range []bool{false, true} {
			for _, dead := range []bool{false, true} {
				put(t, q, "1", Key("k"))
				it := take(t, q)
				remove(t, c, "/q/keys/key=k")
				if folderToo {
					remove(t, c, "/q/keys")
				}
				if dead {
					must(t, it.Return(t.Context(), 0))
					put(t, q, "next")
					it = take(t, q)
					wantData(t, it, "next")
				}
				must(t, it.Done(t.Context()))
				put(t, q, "1", Key("k"))
				if n, err := q.Len(t.Context()); n != 0 || err != nil {
					t.Fatal(n, err)
				}
				remove(t, c, "/q/keys/key=k")
			}
		}
		if n := len(c.Paths("/q/dead/")); n != 2 {
			t.Fatalf("%d are dead, want 2", n)
		}
	})
}
