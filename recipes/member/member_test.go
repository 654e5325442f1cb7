package member

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
)

func TestEveryChangeIsAListInTheOrderOfIDs(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		g := New(cl, "/services/search")
		w := watch(t, New(connect(t, c), "/services/search"))
		w.want(t, "") // the folder is not even there
		b := join(t, g, "b", "1")
		w.want(t, "b=1")
		a := join(t, g, "a", "2")
		w.want(t, "a=2 b=1")
		if err := b.SetData(t.Context(), []byte("3")); err != nil {
			t.Fatal(err)
		}
		w.want(t, "a=2 b=3")
		leave(t, a)
		w.want(t, "b=3")
		leave(t, b)
		w.want(t, "")
		for _, p := range []string{"/services", "/services/search"} {
			if n, err := cl.Get(t.Context(), p); err != nil || n.Stat.Kind != client.Container {
				t.Fatalf("%s: %v %v", p, n.Stat.Kind, err)
			}
		}
	})
}

// TestMemberThatDiesLeavesOnce: the end of a session with several members is one
// list.
func TestMemberThatDiesLeavesOnce(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		dies, lives := connect(t, c), connect(t, c)
		g := New(dies, "/g")
		for _, id := range []string{"a", "c", "e"} {
			join(t, g, id, "")
		}
		join(t, New(lives, "/g"), "d", "")
		w := watch(t, New(lives, "/g"))
		w.want(t, "a= c= d= e=")
		if err := dies.Close(); err != nil {
			t.Fatal(err)
		}
		w.want(t, "d=")
	})
}

// TestFlappingMakesNobodyLeave: connections break and come back within the
// timeout.
func TestFlappingMakesNobodyLeave(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		m := join(t, New(cl, "/g"), "a", "")
		session := m.Session()
		w := watch(t, New(connect(t, c), "/g"))
		w.want(t, "a=")
		for range 10 {
			for _, s := range []string{"n1", "n2", "n3"} {
				c.Server(s).Stop()
			}
			time.Sleep(6 * time.Second)
			for _, s := range []string{"n1", "n2", "n3"} {
				c.Server(s).Start()
			}
			time.Sleep(5 * time.Second)
			if c.ExpireSilent() != 0 {
				t.Fatal("a session was silent for its timeout")
			}
		}
		w.want(t)
		if m.Session() != session || m.Session() != cl.Session().ID() {
			t.Fatal("the member has another session")
		}
	})
}

// TestMemberRejoinsUnderANewSession, again and again, with its newest data.
func TestMemberRejoinsUnderANewSession(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(7*time.Second), client.WithSessionName("search"))
		m := join(t, New(cl, "/g"), "a", "1")
		w := watch(t, New(connect(t, c), "/g"))
		w.want(t, "a=1")
		for i := range 5 {
			old := m.Session()
			expire(c, old)
			w.want(t, "", "a=1")
			if s := m.Session(); s == old || s == 0 {
				t.Fatalf("round %d: session %s", i, s)
			}
		}
		if m.session.Timeout() != 7*time.Second || m.session.Name() != "search" {
			t.Fatalf("the new session is %q with %s", m.session.Name(), m.session.Timeout())
		}
		sessions := c.Sessions()
		leave(t, m)
		w.want(t, "")
		if c.Sessions() != sessions-1 {
			t.Fatal("the session that was opened for the member is still there")
		}
		if !errors.Is(context.Cause(m.Context()), ErrLeft) || m.Session() != 0 {
			t.Fatal("not over")
		}
	})
}

// TestRejoinReplacesTheOldZnode: the client gives its session up by its own clock
// while the cluster still has it. Nobody sees the member go.
func TestRejoinReplacesTheOldZnode(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, client.WithSessionTimeout(10*time.Second))
		m := join(t, New(cl, "/g"), "a", "1")
		old := m.Session()
		w := watch(t, New(connect(t, c, client.WithSessionTimeout(time.Hour)), "/g"))
		w.want(t, "a=1")
		c.Server("n1").IgnoreBeats(true)
		c.Server("n1").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
		waitFor(t, func() bool { return cl.Session().Context().Err() != nil })
		c.Server("n1").Refuse(nil)
		c.Server("n1").IgnoreBeats(false)
		if err := m.SetData(t.Context(), []byte("2")); err != nil {
			t.Fatal(err)
		}
		got := w.next(t) // the next list has it under a new session
		if got == "a=1" {
			got = w.next(t)
		}
		if got != "a=2" || m.Session() == old || m.Session() == 0 {
			t.Fatalf("list %q, session %s", got, m.Session())
		}
		expire(c, old) // what is left of the old session takes nothing along
		w.want(t)
		if n := c.Paths("/g/"); len(n) != 1 {
			t.Fatalf("paths %v", n)
		}
	})
}

// TestRestartedProcessIsNotRegisteredByItsPredecessor: kafka's fault. A process
// is killed and started anew at once with the same id; after two timeouts it is
// still registered, under its own session.
func TestRestartedProcessIsNotRegisteredByItsPredecessor(t *testing.T) {
	for _, takeOver := range []bool{false, true} {
		fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
			watching := connect(t, c, client.WithSessionTimeout(time.Hour))
			killed := connect(t, c, client.WithSessionTimeout(10*time.Second))
			if _, err := killed.Create(t.Context(), "/g", nil); err != nil {
				t.Fatal(err)
			}
			// What the killed process has left: a znode and a session that
			// nobody keeps alive.
			if _, err := killed.Create(t.Context(), "/g/a", []byte("old"), client.WithEphemeral()); err != nil {
				t.Fatal(err)
			}
			w := watch(t, New(watching, "/g"))
			w.want(t, "a=old")
			began := time.Now()
			time.AfterFunc(10*time.Second, func() { expire(c, killed.Session().ID()) })
			fresh := connect(t, c, client.WithSessionTimeout(10*time.Second))
			var opts []Option
			if takeOver {
				opts = append(opts, TakeOver())
			}
			m := join(t, New(fresh, "/g"), "a", "new", opts...)
			if took := time.Since(began); takeOver != (took < time.Second) {
				t.Fatalf("joining took %s", took)
			}
			time.Sleep(20 * time.Second)
			n, err := watching.Get(t.Context(), "/g/a")
			if err != nil || n.Stat.EphemeralOwner != fresh.Session().ID() || m.Session() != fresh.Session().ID() {
				t.Fatalf("registered by session %s, %v", n.Stat.EphemeralOwner, err)
			}
			if takeOver {
				w.want(t, "a=new") // nobody saw it gone
			} else {
				w.want(t, "", "a=new")
			}
		})
	}
}

// TestTwoLiveProcessesWithOneID: the second is told who has it, and the first
// stays.
func TestTwoLiveProcessesWithOneID(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		first, second := connect(t, c), connect(t, c)
		m := join(t, New(first, "/g"), "a", "first")
		var taken *TakenError
		began := time.Now()
		_, err := New(second, "/g").Join(t.Context(), "a", []byte("second"))
		if !errors.Is(err, ErrTaken) || !errors.As(err, &taken) || taken.Holder.Session != first.Session().ID() || string(taken.Holder.Data) != "first" {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took < 20*time.Second || took > 21*time.Second {
			t.Fatalf("it waited %s", took)
		}
		began = time.Now()
		if _, err := New(second, "/g").Join(t.Context(), "a", nil, Patience(0)); !errors.Is(err, ErrTaken) || time.Since(began) > time.Second {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		if _, err := New(first, "/g").Join(t.Context(), "a", nil); !errors.Is(err, ErrTaken) {
			t.Fatalf("the same session again: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := New(second, "/g").Join(ctx, "a", nil, Patience(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if m.Session() == 0 || m.Context().Err() != nil {
			t.Fatal("the first one lost its place")
		}
	})
}

// TestTheOneReplacedIsToldAndStaysAway.
func TestTheOneReplacedIsToldAndStaysAway(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		a, b := connect(t, c), connect(t, c)
		first := join(t, New(a, "/g"), "x", "1")
		second := join(t, New(b, "/g"), "x", "2", TakeOver())
		<-first.Context().Done()
		var taken *TakenError
		if !errors.As(context.Cause(first.Context()), &taken) || taken.Holder.Session != b.Session().ID() {
			t.Fatalf("cause %v", context.Cause(first.Context()))
		}
		if err := first.SetData(t.Context(), []byte("late")); !errors.Is(err, ErrTaken) {
			t.Fatalf("set by the one replaced: %v", err)
		}
		leave(t, first)
		list, err := New(a, "/g").Members(t.Context())
		if err != nil || text(list) != "x=2" || second.Session() != b.Session().ID() {
			t.Fatalf("%v %v", text(list), err)
		}
	})
}

// TestDeletedByAnAdministratorComesBack, and no foreign znode is touched.
func TestDeletedByAnAdministratorComesBack(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := join(t, New(cl, "/g"), "a", "1")
		w := watch(t, New(cl, "/g"))
		w.want(t, "a=1")
		c.Delete("/g/a")
		w.want(t, "", "a=1")
		// The whole folder goes while the member is out.
		c.Freeze()
		c.Delete("/g/a")
		c.Delete("/g")
		c.Thaw()
		w.want(t, "", "a=1")
		// A znode that is not ephemeral is no member and blocks the id.
		if _, err := cl.Create(t.Context(), "/g/b", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := New(cl, "/g").Join(t.Context(), "b", nil, TakeOver()); !errors.Is(err, ErrTaken) {
			t.Fatal(err)
		}
		w.want(t)
		if m.Session() == 0 {
			t.Fatal("out")
		}
	})
}

func TestBadIDsAreRefused(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		g := New(connect(t, c), "/g")
		for _, id := range []string{"", ".", "..", "a/b", "/", "a\x00"} {
			if _, err := g.Join(t.Context(), id, nil); !errors.Is(err, client.ErrBadPath) {
				t.Errorf("%q: %v", id, err)
			}
		}
		plain := connect(t, c, client.WithoutSession())
		if _, err := New(plain, "/g").Join(t.Context(), "a", nil); !errors.Is(err, client.ErrBadArguments) {
			t.Error(err)
		}
		closed := connect(t, c)
		_ = closed.Close()
		if _, err := New(closed, "/g").Join(t.Context(), "a", nil); !errors.Is(err, client.ErrClosed) {
			t.Error(err)
		}
		if len(c.Paths("/g")) != 0 {
			t.Error("something was left behind")
		}
	})
}

// TestClosedClientEndsTheMembership: nobody rejoins for a process that wants to
// go.
func TestClosedClientEndsTheMembership(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := join(t, New(cl, "/g"), "a", "")
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		<-m.Context().Done()
		if cause := context.Cause(m.Context()); !errors.Is(cause, client.ErrClosed) {
			t.Fatalf("cause %v", cause)
		}
		leave(t, m)
		if len(c.Paths("/g/")) != 0 || c.Sessions() != 0 {
			t.Fatal("still there")
		}
	})
}

// TestDataThatIsRefusedLeavesTheFormer and the member in its place.
func TestDataThatIsRefusedLeavesTheFormer(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		m := join(t, New(cl, "/g"), "a", "1")
		c.SetLimits(&coordpb.Limits{FrameBytes: 4096})
		c.Server("n1").CutAll()
		time.Sleep(time.Second)
		if err := m.SetData(t.Context(), make([]byte, 5000)); !errors.Is(err, client.ErrTooLarge) {
			t.Fatal(err)
		}
		if err := m.SetData(t.Context(), []byte("2")); err != nil {
			t.Fatal(err)
		}
		expire(c, m.Session())
		time.Sleep(time.Second)
		list, err := New(connect(t, c), "/g").Members(t.Context())
		if err != nil || text(list) != "a=2" {
			t.Fatal(text(list), err)
		}
	})
}

func TestSessionsTellEachComeback(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		m := join(t, New(connect(t, c), "/g"), "a", "")
		seen := make(chan client.SessionID, 100)
		go func() {
			for id := range m.Sessions(t.Context()) {
				seen <- id
			}
			close(seen)
		}()
		first := <-seen
		if first != m.Session() {
			t.Fatal("not the present one first")
		}
		expire(c, first)
		for id := range seen {
			if id != 0 {
				if id == first {
					t.Fatal("the old one again")
				}
				break
			}
		}
		leave(t, m)
		synctest.Wait()
		if _, open := <-seen; open {
			if _, open = <-seen; open {
				t.Fatal("the loop goes on")
			}
		}
	})
}
