package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/znode"
)

// follow runs a watch and hands its events over one by one; the watch's loop
// stands while nobody takes them.
func follow(ctx context.Context, cl *Client, path string, opts ...WatchOption) (<-chan Event, <-chan error) {
	events, over := make(chan Event), make(chan error, 1)
	go func() {
		for ev, err := range cl.Watch(ctx, path, opts...) {
			if err != nil {
				over <- err
				return
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				over <- ctx.Err()
				return
			}
		}
	}()
	return events, over
}

func TestWatchKinds(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		node, _ := follow(ctx, cl, "/a", Initial(Linearizable), WithData())
		if ev := <-node; ev.Type != EventAbsent || ev.Path != "/a" {
			t.Fatalf("%+v", ev)
		}
		a := must[Created](t)(cl.Create(ctx, "/a", []byte("x")))
		if ev := <-node; ev.Type != EventCreated || ev.Zxid != a.Stat.Czxid || string(ev.Data) != "x" || !ev.Last {
			t.Fatalf("%+v", ev)
		}
		children, _ := follow(ctx, cl, "/a", Children(), Initial(Linearizable))
		tree, _ := follow(ctx, cl, "/a", Recursive(), Initial(Linearizable))
		if <-children; (<-tree).Type != EventPresent {
			t.Fatal("no initial event")
		}
		must[Created](t)(cl.Create(ctx, "/a/b", nil))
		if ev := <-children; ev.Type != EventChildren || ev.Path != "/a" {
			t.Fatalf("%+v", ev)
		}
		if ev := <-tree; ev.Type != EventCreated || ev.Path != "/a/b" {
			t.Fatalf("%+v", ev)
		}
		must[Stat](t)(cl.Set(ctx, "/a/b", nil, AnyVersion))
		if ev := <-tree; ev.Type != EventChanged {
			t.Fatalf("%+v", ev)
		}
		if err := cl.Delete(ctx, "/a/b", AnyVersion); err != nil {
			t.Fatal(err)
		}
		if ev := <-children; ev.Type != EventChildren {
			t.Fatalf("child set: %+v", ev)
		}
		if err := cl.Delete(ctx, "/a", AnyVersion); err != nil {
			t.Fatal(err)
		}
		if ev := <-node; ev.Type != EventDeleted || ev.Session != cl.Session().ID() {
			t.Fatalf("%+v", ev)
		}
	})
}

// TestWatchMissesNothing: 500 changes while the watcher's connection is cut
// again and again and its servers change.
func TestWatchMissesNothing(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		writer, cl := connect(t, c), connect(t, c)
		must[Created](t)(writer.Create(ctx, "/a", nil))
		events, _ := follow(ctx, cl, "/a", Recursive(), Initial(Linearizable))
		<-events
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			for i := range 500 {
				if i%20 == 7 {
					c.Server(c.Connected(uint64(cl.Session().ID()))).CutAll()
				}
				// Two changes in one transaction, so that a cut can fall between.
				_, err := writer.Txn(ctx, OpCreate(fmt.Sprintf("/a/x%03d", i), nil), OpCreate(fmt.Sprintf("/a/y%03d", i), nil))
				if err != nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
		var last Zxid
		for i := range 500 {
			for _, kind := range []string{"x", "y"} {
				ev := <-events
				if want := fmt.Sprintf("/a/%s%03d", kind, i); ev.Path != want || ev.Zxid < last {
					t.Errorf("%s %s at %s, want %s", ev.Type, ev.Path, ev.Zxid, want)
				}
				last = ev.Zxid
			}
		}
	})
}

// TestWatchResumesInTheMiddleOfATransaction: one transaction with many events
// is cut after some of them; all are seen, each once.
func TestWatchResumesInTheMiddleOfATransaction(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		holder, cl := connect(t, c), connect(t, c)
		must[Created](t)(holder.Create(ctx, "/e", nil))
		const nodes = 1000
		for i := range nodes {
			must[Created](t)(holder.Create(ctx, fmt.Sprintf("/e/%04d", i), nil, WithEphemeral()))
		}
		events, _ := follow(ctx, cl, "/e", Recursive(), Initial(Linearizable))
		<-events
		s := cl.Session()
		seen := map[string]int{}
		c.Expire(uint64(holder.Session().ID()))
		for i := range nodes {
			if i%100 == 50 {
				s.mu.Lock()
				conn := s.conn
				s.mu.Unlock()
				if conn != nil {
					conn.cancel()
				}
			}
			ev := <-events
			if ev.Type != EventDeleted || ev.Cause != znode.BySessionExpiry {
				t.Fatalf("%+v", ev)
			}
			seen[ev.Path]++
		}
		if len(seen) != nodes {
			t.Fatalf("%d of %d", len(seen), nodes)
		}
		select {
		case ev := <-events:
			t.Fatalf("once more: %+v", ev)
		case <-time.After(time.Minute):
		}
	})
}

func TestWatchWhoseHistoryIsGoneSaysSo(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		writer, cl := connect(t, c), connect(t, c)
		must[Created](t)(writer.Create(ctx, "/a", nil))
		events, _ := follow(ctx, cl, "/a", Initial(Linearizable))
		<-events
		c.Server("n1").Stop()
		c.Delete("/a")
		c.Forget()
		c.Server("n1").Start()
		if ev := <-events; ev.Type != EventResync {
			t.Fatalf("%+v", ev)
		}
		must[Created](t)(writer.Create(ctx, "/a", nil))
		if ev := <-events; ev.Type != EventCreated {
			t.Fatalf("after the resync: %+v", ev)
		}
		old, _ := follow(ctx, cl, "/a", Since(5))
		if ev := <-old; ev.Type != EventResync {
			t.Fatalf("since long ago: %+v", ev)
		}
	})
}

// TestSlowWatchLosesNothingAndBlocksNobody: the loop stands while far more
// changes come than are kept for it.
func TestSlowWatchLosesNothingAndBlocksNobody(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/a", nil))
		events, _ := follow(ctx, cl, "/a", Initial(Linearizable), WithData())
		<-events
		const changes = 5 * watchQueueEvents
		for i := range changes {
			must[Stat](t)(cl.Set(ctx, "/a", fmt.Append(nil, i), AnyVersion))
		}
		s := cl.Session()
		s.mu.Lock()
		for w := range s.all {
			if len(w.queue) > watchQueueEvents {
				t.Errorf("%d events are kept", len(w.queue))
			}
		}
		s.mu.Unlock()
		if n := c.Counts().Events; n > 2*watchQueueEvents {
			t.Errorf("%d events were sent to a loop that stands", n)
		}
		for i := range changes {
			if ev := <-events; string(ev.Data) != fmt.Sprint(i) {
				t.Fatalf("event %d has %s", i, ev.Data)
			}
		}
	})
}

func TestLeavingTheLoopEndsTheWatch(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for range 1000 {
			for _, err := range cl.Watch(t.Context(), "/", Initial(ReadSession)) {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		synctest.Wait()
		s := cl.Session()
		s.mu.Lock()
		left := len(s.all) + len(s.watches) + len(s.calls) + len(s.outbox)
		s.mu.Unlock()
		if left != 0 || c.Watches() != 0 {
			t.Fatalf("%d records in the client, %d in the server", left, c.Watches())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range cl.Watch(ctx, "/") {
			var e *Error
			if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || e.Path != "/" {
				t.Fatalf("got %v", err)
			}
		}
	})
}

func TestRefusedWatchEndsWithTheReason(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if r.Seq == 0 {
				r.Error = &coordpb.Error{Code: coordpb.Code_CODE_LIMIT, Limit: "watches_per_session"}
			}
			return fakecoord.Pass
		})
		n := 0
		for _, err := range cl.Watch(t.Context(), "/a") {
			n++
			var e *Error
			if !errors.Is(err, ErrLimit) || !errors.As(err, &e) || e.Limit != "watches_per_session" {
				t.Fatalf("got %v", err)
			}
		}
		if n != 1 {
			t.Fatalf("yielded %d times", n)
		}
		c.OnReply(nil)
		for _, err := range cl.Watch(t.Context(), "a") {
			if !errors.Is(err, ErrBadPath) {
				t.Fatalf("got %v", err)
			}
		}
	})
}

// TestWatchesSurviveManyAtOnce: thousands of watches come back after a lost
// connection, in messages of a bounded size.
func TestWatchesSurviveManyAtOnce(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithCancel(t.Context())
		cl := connect(t, c)
		const watches = 2000
		got := make(chan string, watches)
		for i := range watches {
			path := fmt.Sprintf("/a-long-name-so-that-registrations-need-many-messages-%05d", i)
			go func() {
				for ev, err := range cl.Watch(ctx, path) {
					if err == nil {
						got <- ev.Path
					}
				}
			}()
		}
		synctest.Wait()
		c.Server(cl.Session().Server()).CutAll()
		time.Sleep(time.Second)
		if n := c.Watches(); n != watches {
			t.Fatalf("%d watches are registered", n)
		}
		for i := range watches {
			must[Created](t)(cl.Create(ctx, fmt.Sprintf("/a-long-name-so-that-registrations-need-many-messages-%05d", i), nil))
		}
		for range watches {
			<-got
		}
		cancel()
	})
}
