package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
	"github.com/coordd/coord/recipes/lock"
)

func TestObserversSeeEveryLeaderAndEveryGap(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		seen := observe(t, New(connect(t, c), "/election/x"))
		wantLeaders(t, seen, "-")
		var last fence.Token
		for i := range 20 {
			cl := connect(t, c)
			l := campaign(t, New(cl, "/election/x", lock.Owner(fmt.Sprint("candidate ", i))), fmt.Sprint(i))
			got := next(t, seen)
			if string(got.Value) != fmt.Sprint(i) || got.Token != l.FencingToken() || got.Token <= last || got.Session != cl.Session().ID() ||
				got.Node != l.Node() || got.Owner != fmt.Sprint("candidate ", i) || got.Missed {
				t.Fatalf("observed %+v", got)
			}
			last = got.Token
			if err := l.Proclaim(t.Context(), []byte("new")); err != nil {
				t.Fatal(err)
			}
			wantLeaders(t, seen, "new")
			switch i % 3 {
			case 0:
				resign(t, l)
			case 1:
				c.Expire(uint64(cl.Session().ID()))
			case 2:
				_ = cl.Close()
			}
			wantLeaders(t, seen, "-")
		}
	})
}

// TestLeadersFollowInTheOrderTheyCame: a queue of candidates leads one after the
// other, and no observer sees two or none too many.
func TestLeadersFollowInTheOrderTheyCame(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		const candidates = 10
		terms := make(chan *Leadership, candidates)
		seen := observe(t, New(connect(t, c), "/e"))
		wantLeaders(t, seen, "-")
		for i := range candidates {
			cl := connect(t, c)
			go func() {
				if l, err := New(cl, "/e").Campaign(t.Context(), []byte(fmt.Sprint(i))); err == nil {
					terms <- l
				}
			}()
			synctest.Wait()
		}
		for i := range candidates {
			l := <-terms
			wantLeaders(t, seen, fmt.Sprint(i))
			info, err := New(connect(t, c), "/e").Candidates(t.Context())
			if err != nil || len(info.Holders) != 1 || info.Holders[0].Node != l.Node() || len(info.Waiters) != candidates-1-i {
				t.Fatalf("%+v %v", info, err)
			}
			if l, err := New(connect(t, c), "/e").Leader(t.Context()); err != nil || string(l.Value) != fmt.Sprint(i) {
				t.Fatalf("%+v %v", l, err)
			}
			time.Sleep(time.Second)
			if len(terms) > 0 {
				t.Fatal("two lead")
			}
			resign(t, l)
			if i+1 == candidates {
				wantLeaders(t, seen, "-")
			} else if l := next(t, seen); !l.None() {
				t.Fatalf("no gap before %+v", l)
			}
		}
		if left := c.Paths("/e/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// TestAChangeOfLeaderCostsObserversTheSameInAnyQueue: nobody lists the folder,
// and each observer hears of the end of one leader and the beginning of the next.
func TestAChangeOfLeaderCostsObserversTheSameInAnyQueue(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		observers, candidates := rig.Times(20), rig.Times(10_000)
		first := campaign(t, New(connect(t, c), "/e"), "first")
		second := make(chan *Leadership, 1)
		cl := connect(t, c)
		go func() {
			if l, err := New(cl, "/e").Campaign(t.Context(), []byte("second")); err == nil {
				second <- l
			}
		}()
		synctest.Wait()
		crowd := connect(t, c)
		for range candidates / 100 {
			var ops []client.Op
			for range 100 {
				ops = append(ops, client.OpCreate("/e/_c_other-lock-", nil, client.WithEphemeral(), client.WithSequential()))
			}
			if _, err := crowd.Txn(t.Context(), ops...); err != nil {
				t.Fatal(err)
			}
		}
		var seen []<-chan Leader
		for range observers {
			seen = append(seen, observe(t, New(connect(t, c), "/e")))
			wantLeaders(t, seen[len(seen)-1], "first")
		}
		synctest.Wait()
		before := c.Counts()
		resign(t, first)
		defer resign(t, <-second)
		for _, s := range seen {
			wantLeaders(t, s, "-", "second")
		}
		after := c.Counts()
		if n := after.Lists - before.Lists; n != 0 {
			t.Fatalf("the folder was listed %d times", n)
		}
		// Beside the observers' there are the events of the candidate that waited
		// and of the leaders' own watches.
		if n := after.Events - before.Events; n > 2*observers+5 {
			t.Fatalf("%d events for %d observers", n, observers)
		}
		if n := after.Reads - before.Reads; n > 5 {
			t.Fatalf("%d reads", n)
		}
	})
}

func TestFormerLeaderCannotProclaim(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ends := map[string]func(l *Leadership) error{
			"deleted": func(l *Leadership) error { c.Delete(l.Node()); return lock.ErrLost },
			"expired": func(l *Leadership) error { c.Expire(uint64(l.Session().ID())); return lock.ErrLost },
			"resigned": func(l *Leadership) error {
				resign(t, l)
				return lock.ErrReleased
			},
			"released": func(l *Leadership) error {
				if err := l.Handle.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
				return lock.ErrReleased
			},
		}
		for name, end := range ends {
			old := campaign(t, New(connect(t, c), "/e"), "old")
			want := end(old)
			err := old.Proclaim(t.Context(), []byte("late"))
			if !errors.Is(err, want) {
				t.Fatalf("%s: %v", name, err)
			}
			fresh := campaign(t, New(connect(t, c), "/e"), "fresh")
			if err := old.Proclaim(t.Context(), []byte("late")); !errors.Is(err, want) {
				t.Fatalf("%s: %v", name, err)
			}
			if l, err := New(connect(t, c), "/e").Leader(t.Context()); err != nil || string(l.Value) != "fresh" {
				t.Fatalf("%s: the leader is %+v, %v", name, l, err)
			}
			resign(t, fresh)
			if _, err := New(connect(t, c), "/e").Leader(t.Context()); !errors.Is(err, ErrNoLeader) {
				t.Fatalf("%s: %v", name, err)
			}
			synctest.Wait()
			if left := c.Paths("/e/"); len(left) != 0 {
				t.Fatalf("%s: left behind: %v", name, left)
			}
		}
	})
}

// TestProclaimOnItsWayWhenLeadershipEnds: the transaction arrives behind the
// deletion and is refused by the cluster, not only by the client's knowledge.
func TestProclaimOnItsWayWhenLeadershipEnds(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		old := campaign(t, New(connect(t, c), "/e"), "old")
		c.Server("n1").Mute() // what the leader would hear of stays behind
		c.Delete(old.Node())
		errs := make(chan error, 1)
		go func() { errs <- old.Proclaim(t.Context(), []byte("late")) }()
		time.Sleep(time.Second)
		c.Server("n1").Unmute()
		if err := <-errs; !errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrDeleted) {
			t.Fatal(err)
		}
		synctest.Wait()
		if left := c.Paths("/e/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// TestLeaderThatIsCutOffStopsBeforeTheNextOneStarts.
func TestLeaderThatIsCutOffStopsBeforeTheNextOneStarts(t *testing.T) {
	for _, rate := range []float64{0.99, 1, 1.01} {
		fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
			began := time.Now()
			clock := func() time.Duration { return time.Duration(float64(time.Since(began)) * rate) }
			cl := connect(t, c, client.WithSessionTimeout(10*time.Second), client.WithClock(clock))
			l := campaign(t, New(cl, "/e"), "old")
			stopped := make(chan time.Time, 1)
			context.AfterFunc(l.Context(), func() { stopped <- time.Now() })
			// The next one is where the cluster can hear it, the leader is not.
			for c.Connected(uint64(cl.Session().ID())) != "n1" {
				c.Server("n2").CutAll()
				time.Sleep(100 * time.Millisecond)
			}
			c.Server("n2").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
			c.Server("n1").Mute()
			for len(stopped) == 0 {
				if c.ExpireSilent() != 0 {
					t.Fatal("the cluster was first")
				}
				time.Sleep(time.Millisecond)
			}
			for c.ExpireSilent() == 0 {
				time.Sleep(time.Millisecond)
			}
			c.Server("n2").Refuse(nil)
			c.Server("n1").Unmute()
			fresh := campaign(t, New(connect(t, c), "/e"), "new")
			if at := <-stopped; !at.Before(time.Now()) || fresh.FencingToken() <= l.FencingToken() {
				t.Fatalf("rate %v: the old one stopped at %s, the next started at %s", rate, at, time.Now())
			}
			resign(t, fresh)
		})
	}
}

// TestOldQueueEntryMakesNoLeader: after an outage longer than the session, the
// entry of the old session is still there when the candidate comes back. It does
// not lead by it, and there are never two.
func TestOldQueueEntryMakesNoLeader(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		old := cl.Session().ID()
		led := make(chan *Leadership, 10)
		r := run(t, New(cl, "/e"), "a", func(ctx context.Context, l *Leadership) error {
			led <- l
			<-ctx.Done()
			return ctx.Err()
		})
		first := <-led
		c.Server("n1").Stop()
		<-first.Lost()
		time.Sleep(20 * time.Second)
		c.Server("n1").Start() // the cluster has not expired the session yet
		time.Sleep(5 * time.Second)
		if len(led) != 0 {
			t.Fatal("it leads beside its own old queue entry")
		}
		other := make(chan *Leadership, 1)
		second := connect(t, c)
		go func() {
			if l, err := New(second, "/e").Campaign(t.Context(), nil); err == nil {
				other <- l
			}
		}()
		time.Sleep(5 * time.Second)
		if len(led)+len(other) != 0 {
			t.Fatal("somebody leads beside the old queue entry")
		}
		c.Expire(uint64(old))
		l := <-led
		if l.Session().ID() == old || len(other) != 0 {
			t.Fatal("the wrong one leads")
		}
		if err := r.stop(t); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		resign(t, <-other)
	})
}

// TestQueueEntryDeletedWhileWaiting: the campaign fails, it does not succeed
// without an entry (etcd's fault), and nothing is left.
func TestQueueEntryDeletedWhileWaiting(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		first := campaign(t, New(connect(t, c), "/e"), "first")
		errs := make(chan error, 1)
		cl := connect(t, c)
		go func() {
			_, err := New(cl, "/e").Campaign(t.Context(), nil)
			errs <- err
		}()
		time.Sleep(time.Second)
		for _, p := range c.Paths("/e/_") {
			if p != first.Node() {
				c.Delete(p)
			}
		}
		if err := <-errs; !errors.Is(err, lock.ErrDeleted) {
			t.Fatal(err)
		}
		resign(t, first)
	})
}

// TestQueueEntryDeletedAfterTheGrant: the leader cannot make itself known.
func TestQueueEntryDeletedAfterTheGrant(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		e := New(cl, "/e")
		for _, known := range []bool{true, false} { // to the client, when it makes itself known
			h, err := lock.New(cl, "/e").Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !known {
				c.Server("n1").Mute()
				time.AfterFunc(time.Second, c.Server("n1").Unmute)
			}
			c.Delete(h.Node())
			synctest.Wait()
			if h.Held() == known {
				t.Fatalf("the client knows: %v", !h.Held())
			}
			if _, err := e.lead(t.Context(), h, nil); !errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrDeleted) {
				t.Fatalf("known %v: %v", known, err)
			}
			synctest.Wait()
			if left := c.Paths("/e/"); len(left) != 0 {
				t.Fatalf("left behind: %v", left)
			}
		}
	})
}

// TestDeletedWhileItAsksWhatStandsInItsWay: the candidate is told of the loss, and
// not of the request that the loss has cut short.
func TestDeletedWhileItAsksWhatStandsInItsWay(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for _, path := range []string{"/e", "/e/leader"} {
			if _, err := cl.Create(t.Context(), path, nil); err != nil {
				t.Fatal(err)
			}
		}
		asks := false
		c.OnWrite(func(w *coordpb.Write) {
			asks = slices.ContainsFunc(w.Ops, func(op *coordpb.Op) bool { return op.Path == "/e/leader" })
		})
		c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if !asks || r.Read == nil {
				return fakecoord.Pass
			}
			go func() {
				for _, p := range c.Paths("/e/_c_") {
					c.Delete(p)
				}
			}()
			return fakecoord.Drop
		})
		if _, err := New(cl, "/e").Campaign(t.Context(), nil); !errors.Is(err, lock.ErrDeleted) {
			t.Fatal(err)
		}
	})
}
