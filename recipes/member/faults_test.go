package member

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/internal/seed"
)

// TestCancelAnywhereLeavesNoMember ends the context of Join after each possible
// time, with answers lost and connections cut.
func TestCancelAnywhereLeavesNoMember(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		g := New(cl, "/a/g")
		actions := []fakecoord.Action{fakecoord.Pass, fakecoord.Drop, fakecoord.Cut}
		n, joins := 0, 0
		for wait := time.Duration(0); wait < 600*time.Millisecond; wait += 3 * time.Millisecond {
			n++
			act, countdown := actions[n%3], n%5
			c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
				if countdown--; countdown == 0 {
					return act
				}
				return fakecoord.Pass
			})
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			m, err := g.Join(ctx, "x", nil)
			cancel()
			c.OnReply(nil)
			switch {
			case err == nil:
				joins++
				leave(t, m)
			case !errors.Is(err, context.DeadlineExceeded):
				t.Fatalf("after %s: %v", wait, err)
			}
			c.Server("n1").CutAll() // dropped answers are asked for again
			c.Server("n2").CutAll()
			time.Sleep(2 * time.Second)
			if left := c.Paths("/a/g/"); len(left) != 0 {
				t.Fatalf("after %s: left behind: %v", wait, left)
			}
		}
		if joins == 0 || joins == n {
			t.Fatalf("%d of %d joined", joins, n)
		}
	})
}

// TestLeaveWithADoneContext, in an outage too: the znode goes as soon as the
// cluster is back, and the second call says the same.
func TestLeaveWithADoneContext(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(time.Minute))
		done, cancel := context.WithCancel(t.Context())
		cancel()
		m := join(t, New(cl, "/g"), "a", "")
		for range 3 {
			if err := m.Leave(done); err != nil {
				t.Fatal(err)
			}
		}
		m = join(t, New(cl, "/g"), "a", "")
		c.Server("n1").Stop()
		began := time.Now()
		if err := m.Leave(done); !errors.Is(err, client.ErrUnknownOutcome) || time.Since(began) > leaveGrace+time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		c.Server("n1").Start()
		leave(t, m)
		if left := c.Paths("/g/"); len(left) != 0 {
			t.Fatalf("left behind: %v", left)
		}
	})
}

// TestLostAnswersMakeNoSecondMember: each write of joining, publishing and leaving
// is done and its answer lost.
func TestLostAnswersMakeNoSecondMember(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		w := watch(t, New(connect(t, c), "/g"))
		w.want(t, "")
		lost := map[uint64]bool{}
		c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if r.Seq != 0 && !lost[r.Seq] {
				lost[r.Seq] = true
				return fakecoord.Cut
			}
			return fakecoord.Pass
		})
		m := join(t, New(connect(t, c), "/g"), "a", "1")
		if err := m.SetData(t.Context(), []byte("2")); err != nil {
			t.Fatal(err)
		}
		leave(t, m)
		w.want(t, "a=1", "a=2", "")
	})
}

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

// TestListIsRightAfterAResync: the servers have forgotten what happened while the
// watch was cut off. The list comes as it is, once, if it is another one, and goes
// on from there. When they have not forgotten, every list comes.
func TestListIsRightAfterAResync(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		w := watch(t, New(at(t, c, "n1"), "/g"))
		g := New(at(t, c, "n2"), "/g")
		w.want(t, "")
		a := join(t, g, "a", "1")
		w.want(t, "a=1")
		apart(c, c.Forget)
		w.want(t)
		apart(c, func() {
			join(t, g, "b", "1")
			if err := a.SetData(t.Context(), []byte("2")); err != nil {
				t.Fatal(err)
			}
			c.Forget()
		})
		w.want(t, "a=2 b=1")
		apart(c, func() {
			leave(t, a)
			a = join(t, g, "a", "2") // it looks the same, but is another membership
			c.Forget()
		})
		w.want(t, "a=2 b=1")
		apart(c, func() {
			leave(t, a)
			join(t, g, "c", "3")
		})
		w.want(t, "b=1", "b=1 c=3")
	})
}

// TestForgottenDataIsReadAnew: an event came without the data that was asked for.
func TestForgottenDataIsReadAnew(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		g := New(cl, "/g")
		m := join(t, g, "a", "now")
		n, err := cl.Get(t.Context(), "/g/a")
		if err != nil {
			t.Fatal(err)
		}
		ev := client.Event{Type: client.EventCreated, Path: "/g/a", Zxid: n.Stat.Czxid, Stat: n.Stat, Last: true, DataDropped: true}
		v := &view{g: g, members: map[string]Member{}}
		if changed, err := v.apply(t.Context(), ev); err != nil || !changed || text(v.list()) != "a=now" {
			t.Fatal(changed, err, text(v.list()))
		}
		leave(t, m) // what comes later says that it has gone
		v = &view{g: g, members: map[string]Member{}}
		if changed, err := v.apply(t.Context(), ev); err != nil || !changed || text(v.list()) != "a=" {
			t.Fatal(changed, err, text(v.list()))
		}
		// A member whose session ended with a linger is dead, although its znode
		// stays for a while.
		ev = client.Event{Type: client.EventChanged, Path: "/g/a", Zxid: n.Stat.Czxid + 1, Stat: n.Stat, Last: true}
		ev.Stat.EphemeralOwner, ev.Stat.Kind = 0, client.TTL
		if changed, err := v.apply(t.Context(), ev); err != nil || !changed || text(v.list()) != "" {
			t.Fatal(changed, err, text(v.list()))
		}
	})
}

// TestForeignChildrenAreNoMembers unless they are ephemeral.
func TestForeignChildrenAreNoMembers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := join(t, New(cl, "/g"), "m", "")
		w := watch(t, New(cl, "/g"))
		w.want(t, "m=")
		for _, p := range []string{"/g/config", "/g/config/deep"} {
			if _, err := cl.Create(t.Context(), p, []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := cl.Create(t.Context(), "/g/config/deep/er", nil, client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
		w.want(t)
		if _, err := cl.Create(t.Context(), "/g/zk", []byte("y"), client.WithEphemeral()); err != nil {
			t.Fatal(err)
		}
		w.want(t, "m= zk=y")
		list, err := New(cl, "/g").Members(t.Context())
		if err != nil || text(list) != "m= zk=y" {
			t.Fatal(text(list), err)
		}
		leave(t, m)
		w.want(t, "zk=y")
	})
}

// TestLargeGroupIsReadInParts while it changes: every list that comes is one that
// the events lead to, and the last one is right.
func TestLargeGroupIsReadInParts(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.PageSize = 10
		cl := connect(t, c)
		if _, err := cl.Create(t.Context(), "/g", nil); err != nil {
			t.Fatal(err)
		}
		for i := range 95 {
			if _, err := cl.Create(t.Context(), fmt.Sprintf("/g/%03d", i), nil, client.WithEphemeral()); err != nil {
				t.Fatal(err)
			}
		}
		pages := 0
		c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
			if r.GetRead().GetMore() { // something changes between any two parts
				pages++
				n := pages
				go func() {
					_ = cl.Delete(t.Context(), fmt.Sprintf("/g/%03d", n*7%95), client.AnyVersion)
					_, _ = cl.Create(t.Context(), fmt.Sprintf("/g/%03d", 100+n), []byte("new"), client.WithEphemeral())
				}()
			}
			return fakecoord.Pass
		})
		w := watch(t, New(connect(t, c), "/g"))
		first := w.next(t)
		if first == "" || pages < 9 {
			t.Fatalf("%d parts", pages)
		}
		c.OnReply(nil)
		synctest.Wait()
		last := first
		for len(w.lists) > 0 {
			last = w.next(t)
		}
		list, err := New(cl, "/g").Members(t.Context())
		if err != nil || last != text(list) {
			t.Fatalf("watched %s\nread %s (%v)", last, text(list), err)
		}
	})
}

// TestEventsOlderThanWhatWasReadChangeNothing: the list never goes back, also when
// its parts were read at different times.
func TestEventsOlderThanWhatWasReadChangeNothing(t *testing.T) {
	g := New(nil, "/g")
	v := &view{g: g, members: map[string]Member{}, read: []page{{"c", 100}, {"g", 200}}, end: 300}
	for id, want := range map[string]client.Zxid{"a": 100, "c": 100, "d": 200, "g": 200, "h": 300} {
		if got := v.known(id); got != want {
			t.Errorf("%s is known up to %d, want %d", id, got, want)
		}
		for _, z := range []client.Zxid{want - 1, want, want + 1} {
			changed, err := v.apply(t.Context(), client.Event{
				Type: client.EventCreated, Path: g.node(id), Zxid: z, Stat: client.Stat{Czxid: z, EphemeralOwner: 1},
			})
			if err != nil || changed != (z > want) {
				t.Errorf("%s: an event of %d was taken: %v %v", id, z, changed, err)
			}
		}
	}
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := join(t, New(cl, "/g"), "a", "1")
		if err := m.SetData(t.Context(), []byte("2")); err != nil {
			t.Fatal(err)
		}
		v, err := New(cl, "/g").load(t.Context(), 0)
		if err != nil || v.known("a") != cl.LastZxid() || v.known("z") != cl.LastZxid() {
			t.Fatalf("%+v %v", v, err)
		}
	})
}

// TestRandomGroupsAreSeenAsTheyWere: members come, publish, leave, die and are
// deleted at random, over connections that break. Each list of each watcher is
// one that there was, in that order, and all end with the same.
func TestRandomGroupsAreSeenAsTheyWere(t *testing.T) {
	s := seed.New(t)
	r := rand.New(rand.NewPCG(s, 3))
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	for range rounds {
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
			var history []string
			var mu sync.Mutex
			go func() {
				for list, err := range New(connect(t, c), "/g").Watch(t.Context()) {
					if err != nil {
						return
					}
					mu.Lock()
					history = append(history, text(list))
					mu.Unlock()
				}
			}()
			synctest.Wait() // the one that sees all begins first
			watchers := []*watcher{watch(t, New(connect(t, c), "/g")), watch(t, New(connect(t, c, client.WithoutSession()), "/g"))}
			members := map[string]*Membership{}
			for range 60 {
				id := string(rune('a' + r.IntN(5)))
				m := members[id]
				switch k := r.IntN(8); {
				case m == nil:
					members[id] = join(t, New(connect(t, c), "/g"), id, fmt.Sprint(r.IntN(100)))
				case k == 0:
					leave(t, m)
					delete(members, id)
				case k == 1:
					expire(c, m.Session())
				case k == 2:
					c.Delete(m.Node())
				case k == 3:
					c.Server(fmt.Sprintf("n%d", 1+r.IntN(3))).CutAll()
				case k == 4:
					members[id] = join(t, New(connect(t, c), "/g"), id, "taken over", TakeOver())
					<-m.Context().Done() // it is told
				default:
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(20))*time.Millisecond)
					_ = m.SetData(ctx, []byte(fmt.Sprint(r.IntN(100))))
					cancel()
				}
				time.Sleep(time.Duration(r.IntN(50)) * time.Millisecond)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			want := ""
			for i, id := range slices.Sorted(func(yield func(string) bool) {
				for id := range members {
					if !yield(id) {
						return
					}
				}
			}) {
				if i > 0 {
					want += " "
				}
				want += id + "=" + string(members[id].have.data)
				if members[id].Session() == 0 {
					t.Fatalf("%s is out", id)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			if history[len(history)-1] != want {
				t.Fatalf("the list is %q, want %q", history[len(history)-1], want)
			}
			for i, w := range watchers {
				var got []string
				for len(w.lists) > 0 {
					got = append(got, w.next(t))
				}
				// It may have begun later, not otherwise.
				from := len(history) - len(got)
				if from < 0 || !slices.Equal(history[from:], got) {
					t.Fatalf("watcher %d saw %d lists %q\nthere were %d: %q", i, len(got), got, len(history), history)
				}
			}
		})
	}
}
