package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/recipes/lock"
)

// at connects a client to a certain server.
func at(t *testing.T, c *fakecoord.Cluster, server string) *client.Client {
	t.Helper()
	for {
		if cl := connect(t, c, client.WithSessionTimeout(time.Hour)); c.Connected(uint64(cl.Session().ID())) == server {
			return cl
		}
	}
}

// apart makes the clients of n1 lose their connections, and get no other one until
// f has run. They come back to n1.
func apart(c *fakecoord.Cluster, f func()) {
	for _, s := range []string{"n1", "n2"} {
		c.Server(s).Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
	}
	c.Server("n1").CutAll()
	synctest.Wait()
	f()
	c.Server("n1").Refuse(nil)
	time.Sleep(10 * time.Second)
	c.Server("n2").Refuse(nil)
}

// TestNothingIsMissedOverABrokenConnection: what happens meanwhile is told when
// the connection is back, in order.
func TestNothingIsMissedOverABrokenConnection(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		seen := observe(t, New(at(t, c, "n1"), "/e"))
		e := New(at(t, c, "n2"), "/e")
		wantLeaders(t, seen, "-")
		resign(t, campaign(t, e, "first"))
		wantLeaders(t, seen, "first", "-")
		apart(c, func() {
			for i := range 3 {
				l := campaign(t, e, fmt.Sprint(i))
				if err := l.Proclaim(t.Context(), []byte("x")); err != nil {
					t.Fatal(err)
				}
				resign(t, l)
			}
		})
		wantLeaders(t, seen, "0", "x", "-", "1", "x", "-", "2", "x", "-")
	})
}

// TestResyncIsMarkedAndRight: the servers have forgotten the changes. The state
// comes as it is, with Missed set unless the same one leads, and then it goes on.
func TestResyncIsMarkedAndRight(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		seen := observe(t, New(at(t, c, "n1"), "/e"))
		e := New(at(t, c, "n2"), "/e")
		wantLeaders(t, seen, "-")
		l := campaign(t, e, "first")
		wantLeaders(t, seen, "first")
		apart(c, c.Forget) // nothing has changed
		wantLeaders(t, seen)
		apart(c, func() {
			resign(t, l)
			l = campaign(t, e, "second")
			c.Forget()
		})
		if got := next(t, seen); !got.Missed || string(got.Value) != "second" || got.Token != l.FencingToken() {
			t.Fatalf("observed %+v", got)
		}
		if err := l.Proclaim(t.Context(), []byte("third")); err != nil {
			t.Fatal(err)
		}
		if got := next(t, seen); got.Missed || string(got.Value) != "third" {
			t.Fatalf("observed %+v", got)
		}
		apart(c, func() { resign(t, l); c.Forget() })
		if got := next(t, seen); !got.Missed || !got.None() {
			t.Fatalf("observed %+v", got)
		}
		apart(c, func() { resign(t, campaign(t, e, "unseen")); c.Forget() }) // none led before, none does now
		if got := next(t, seen); !got.Missed || !got.None() {
			t.Fatalf("observed %+v", got)
		}
		resign(t, campaign(t, e, "last"))
		wantLeaders(t, seen, "last", "-")
	})
}

// TestForgottenValueIsReadAnew: an event came without the data that was asked for.
func TestForgottenValueIsReadAnew(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		e := New(cl, "/e")
		l := campaign(t, e, "now")
		n, err := cl.Get(t.Context(), "/e/leader")
		if err != nil {
			t.Fatal(err)
		}
		ev := client.Event{Type: client.EventChanged, Path: "/e/leader", Zxid: n.Stat.Mzxid, Last: true, Stat: n.Stat, DataDropped: true}
		o := observer{e: e, first: true}
		if changed, err := o.event(t.Context(), ev); err != nil || !changed || string(o.last.Value) != "now" || o.last.Token != l.FencingToken() {
			t.Fatalf("%+v %v", o.last, err)
		}
		resign(t, l)
		synctest.Wait()
		// The leader has gone: that there was one is all that is known.
		o = observer{e: e, first: true}
		if changed, err := o.event(t.Context(), ev); err != nil || !changed || o.last.None() || o.last.Value != nil || o.last.Token != 0 {
			t.Fatalf("%+v %v", o.last, err)
		}
		ev.Type, ev.Zxid = client.EventPresent, ev.Zxid+1
		if changed, err := o.event(t.Context(), ev); err != nil || !changed || !o.last.None() {
			t.Fatalf("%+v %v", o.last, err)
		}
	})
}

// TestLeadersZnodeIsPutBack when somebody deletes it, with the newest value, and
// what stands there by other hands is replaced.
func TestLeadersZnodeIsPutBack(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for _, p := range []string{"/e", "/e/leader"} {
			if _, err := cl.Create(t.Context(), p, []byte("not one of ours")); err != nil {
				t.Fatal(err)
			}
		}
		e := New(cl, "/e")
		if _, err := e.Leader(t.Context()); err == nil {
			t.Fatal("a znode that is not ephemeral leads")
		}
		seen := observe(t, New(connect(t, c), "/e"))
		wantLeaders(t, seen, "-")
		l := campaign(t, e, "a")
		wantLeaders(t, seen, "a")
		c.Delete("/e/leader")
		wantLeaders(t, seen, "-", "a")
		if err := l.Proclaim(t.Context(), []byte("b")); err != nil {
			t.Fatal(err)
		}
		wantLeaders(t, seen, "b")
		c.Delete("/e/leader")
		if err := l.Proclaim(t.Context(), []byte("c")); err != nil { // before or after it is back
			t.Fatal(err)
		}
		synctest.Wait()
		var last Leader
		for len(seen) > 0 {
			last = <-seen
		}
		if string(last.Value) != "c" || !l.Held() {
			t.Fatalf("observed %+v", last)
		}
		resign(t, l)
		wantLeaders(t, seen, "-")
	})
}

// TestFormerLeaderIsReplacedWithoutAGap: it does not know yet that it leads no
// more, so its name still stands there when the next one comes.
func TestFormerLeaderIsReplacedWithoutAGap(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		seen := observe(t, New(at(t, c, "n2"), "/e"))
		wantLeaders(t, seen, "-")
		old := campaign(t, New(at(t, c, "n1"), "/e"), "old")
		wantLeaders(t, seen, "old")
		e := New(at(t, c, "n2"), "/e")
		c.Server("n1").Mute()
		c.Delete(old.Node())
		if _, err := e.Leader(t.Context()); !errors.Is(err, ErrNoLeader) {
			t.Fatalf("one whose queue entry was deleted leads: %v", err)
		}
		fresh := campaign(t, e, "fresh")
		wantLeaders(t, seen, "fresh")
		// What it says about itself now comes too late.
		late := make(chan error, 1)
		go func() { late <- old.publish(t.Context(), []byte("late")) }()
		time.Sleep(time.Second)
		c.Server("n1").Unmute()
		if err := <-late; !errors.Is(err, lock.ErrLost) {
			t.Fatal(err)
		}
		wantLeaders(t, seen)
		resign(t, fresh)
		wantLeaders(t, seen, "-")
	})
}

// TestRandomElectionsAreSeenAsTheyWere: candidates lead, proclaim, resign, die and
// are removed at random, over connections that break. At most one leads at a time
// in the order of tokens, tokens rise, each observer sees the same history, and
// somebody always leads in the end.
func TestRandomElectionsAreSeenAsTheyWere(t *testing.T) {
	s := seed.New(t)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			randomElection(t, c, rand.New(rand.NewPCG(s, uint64(round))))
		})
	}
}

func randomElection(t *testing.T, c *fakecoord.Cluster, r *rand.Rand) {
	var histories [3][]Leader
	var mu sync.Mutex
	for i := range histories {
		cl := connect(t, c, client.WithSessionTimeout(time.Hour))
		go func() {
			for l, err := range New(cl, "/e").Observe(t.Context()) {
				if err != nil {
					return
				}
				mu.Lock()
				histories[i] = append(histories[i], l)
				mu.Unlock()
			}
		}()
	}
	synctest.Wait()
	leading := map[*Leadership]int{}
	var runs []*running
	for i := range 4 {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		runs = append(runs, run(t, New(cl, "/e"), fmt.Sprint(i), func(ctx context.Context, l *Leadership) error {
			mu.Lock()
			leading[l] = i
			mu.Unlock()
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			delete(leading, l)
			return ctx.Err()
		}))
	}
	for range 40 {
		time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
		mu.Lock()
		var l *Leadership
		for l = range leading {
			break
		}
		mu.Unlock()
		switch k := r.IntN(6); {
		case l == nil:
		case k == 0:
			c.Expire(uint64(l.Session().ID()))
		case k == 1:
			c.Delete(l.Node())
		case k == 2:
			_ = l.Proclaim(t.Context(), []byte(fmt.Sprint("value ", r.IntN(100))))
		case k == 3:
			_ = l.Resign(t.Context())
		case k == 4:
			c.Delete(l.e.leaderNode())
		case k == 5:
			c.Server(fmt.Sprintf("n%d", 1+r.IntN(3))).CutAll()
		}
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if l, err := New(connect(t, c), "/e").Leader(t.Context()); err != nil || len(leading) != 1 {
		t.Errorf("in the end %d lead; %+v %v", len(leading), l, err)
	}
	for _, r := range runs {
		_ = r.stop(t)
	}
	time.Sleep(time.Minute)
	mu.Lock()
	defer mu.Unlock()
	check(t, histories)
	if left := c.Paths("/e/"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func check(t *testing.T, histories [3][]Leader) {
	text := func(h []Leader) (out []string) {
		for _, l := range h {
			out = append(out, fmt.Sprintf("%s %s", l.Token, l.Value))
		}
		return out
	}
	for _, h := range histories {
		if a, b := text(histories[0]), text(h); !slices.Equal(a, b) {
			t.Fatalf("two observers saw\n%s\nand\n%s", strings.Join(a, ", "), strings.Join(b, ", "))
		}
		var last Leader
		for _, l := range h {
			if l.Missed || !l.None() && l.Token < last.Token {
				t.Fatalf("%+v after %+v", l, last)
			}
			if !l.None() {
				last = l
			}
		}
	}
	if h := histories[0]; len(h) < 10 || !h[len(h)-1].None() {
		t.Errorf("seen: %v", text(h))
	}
}
