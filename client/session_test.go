package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

// lose loses the answers to the next n numbered writes after they were done.
// TestServerDeathIsADelayAndNoError: many writers go on while one server after
// the other is killed; every write is done once.
func TestServerDeathIsADelayAndNoError(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		var states []State
		var stop atomic.Bool
		var wg sync.WaitGroup
		written := make([]int, 8)
		for w := range written {
			path := fmt.Sprintf("/w%d", w)
			must[Created](t)(cl.Create(ctx, path, nil))
			wg.Go(func() {
				for v := int64(0); !stop.Load(); v++ {
					st, err := cl.Set(ctx, path, []byte("x"), v)
					if err != nil || st.Version != v+1 {
						t.Errorf("set %s: version %d, %v", path, st.Version, err)
						return
					}
					written[w]++
					time.Sleep(time.Millisecond)
				}
			})
		}
		for range 10 {
			time.Sleep(500 * time.Millisecond)
			s := c.Server(c.Connected(uint64(cl.Session().ID())))
			s.Stop()
			time.Sleep(200 * time.Millisecond)
			s.Start()
			states = append(states, cl.Session().State())
		}
		stop.Store(true)
		wg.Wait()
		for w, n := range written {
			if n < 1000 {
				t.Errorf("writer %d made only %d writes", w, n)
			}
		}
		for _, st := range states {
			if st != Connected {
				t.Fatalf("200 ms after a server died: %s", st)
			}
		}
	})
}

func TestSilentServerIsLeftSoon(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		for range 5 {
			old := cl.Session().Server()
			c.Server(old).Mute()
			began := time.Now()
			must[Created](t)(cl.Create(t.Context(), "/a-", nil, WithSequential()))
			if took := time.Since(began); took > 450*time.Millisecond {
				t.Fatalf("a write past a silent server took %s", took)
			}
			if now := cl.Session().Server(); now == old {
				t.Fatal("the session stayed")
			}
			c.Server(old).Unmute()
			time.Sleep(time.Second)
		}
		if n := len(c.Paths("/a-")); n != 5 {
			t.Fatalf("%d nodes", n)
		}
	})
}

// TestSlowClusterIsNotAskedToMoveSessions: without a majority every server is
// silent; the client must not attach over and over.
func TestSlowClusterIsNotAskedToMoveSessions(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(time.Minute))
		c.Freeze()
		done := make(chan error)
		go func() {
			_, err := cl.Create(t.Context(), "/a", nil)
			done <- err
		}()
		time.Sleep(20 * time.Second)
		c.Thaw()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if n := c.Counts().Attaches; n > 12 {
			t.Fatalf("%d attaches in 20 s", n)
		}
	})
}

// TestFullDisksAreTheAnswerToAWrite: they are not over in a moment. What was sent
// behind the write goes on, deletes too.
func TestFullDisksAreTheAnswerToAWrite(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/a", nil))
		must[Created](t)(cl.Create(ctx, "/b", nil))
		c.FullDisks(true)
		deleted := make(chan error, 1)
		refused := make(chan error, 1)
		if err := cl.WriteAsync(func(_ []OpResult, err error) { refused <- err }, OpSet("/a", nil, AnyVersion)); err != nil {
			t.Fatal(err)
		}
		if err := cl.WriteAsync(func(_ []OpResult, err error) { deleted <- err }, OpDelete("/b", AnyVersion)); err != nil {
			t.Fatal(err)
		}
		err := <-refused
		var e *Error
		if !errors.Is(err, ErrDiskFull) || errors.Is(err, ErrUnknownOutcome) || !errors.As(err, &e) || e.Outcome != NotDone {
			t.Errorf("the write: %v", err)
		}
		if err := <-deleted; err != nil {
			t.Errorf("the delete behind it: %v", err)
		}
		if _, err := cl.Set(WithRequestID(ctx, "id"), "/a", nil, AnyVersion); !errors.Is(err, ErrDiskFull) {
			t.Errorf("a write outside of the session: %v", err)
		}
		if _, err := cl.Get(ctx, "/a"); err != nil {
			t.Errorf("a read: %v", err)
		}
		c.FullDisks(false)
		must[Stat](t)(cl.Set(ctx, "/a", nil, AnyVersion))
	})
}

// TestRefusedForNowIsAskedAgain: an overloaded cluster refuses what was sent; the
// caller sees a delay, and the writes keep their order.
func TestRefusedForNowIsAskedAgain(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		ctx := t.Context()
		cl := connect(t, c)
		must[Created](t)(cl.Create(ctx, "/a", nil))
		for _, code := range []coordpb.Code{coordpb.Code_CODE_OVERLOADED, coordpb.Code_CODE_NOT_LEADER} {
			base := must[Node](t)(cl.Get(ctx, "/a")).Stat.Version
			c.Server("n1").NotNow(code)
			done := make(chan string, 20)
			for i := range 10 {
				err := cl.WriteAsync(func(r []OpResult, err error) { done <- fmt.Sprintf("%d %d %v", i, r[0].Stat.Version, err) }, OpSet("/a", nil, AnyVersion))
				if err != nil {
					t.Fatal(err)
				}
			}
			go func() {
				_, err := cl.Get(ctx, "/a")
				done <- fmt.Sprint("read", err)
			}()
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := cl.Set(short, "/a", nil, 0)
			cancel()
			var e *Error
			if !errors.As(err, &e) || len(e.Tried) != 1 || !errors.Is(e.Tried[0].Err, sentinel(code)) {
				t.Fatalf("the reason for waiting is not told: %v", err)
			}
			if len(done) != 0 {
				t.Fatalf("answered: %s", <-done)
			}
			synctest.Wait() // its Skip is on its way, and must not be the first to be let in
			c.Server("n1").NotNow(coordpb.Code_CODE_OK)
			got := map[string]bool{}
			for range 11 {
				got[<-done] = true
			}
			for i := range 10 {
				if want := fmt.Sprintf("%d %d <nil>", i, base+int64(i)+1); !got[want] {
					t.Fatalf("want %s, got %v", want, got)
				}
			}
		}
	})
}

// TestIsolatedServerIsLeft: a server that refuses everything is no better than a
// silent one.
func TestIsolatedServerIsLeft(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		old := cl.Session().Server()
		c.Server(old).NotNow(coordpb.Code_CODE_UNAVAILABLE)
		began := time.Now()
		must[Node](t)(cl.Get(t.Context(), "/"))
		if took := time.Since(began); took > 450*time.Millisecond || cl.Session().Server() == old {
			t.Fatalf("took %s, still at %v", took, cl.Session().Server() == old)
		}
	})
}

func TestClockGoesOn(t *testing.T) {
	a := bootTime()
	time.Sleep(2 * time.Millisecond)
	if d := bootTime() - a; d < 2*time.Millisecond || d > time.Minute {
		t.Fatalf("2 ms are %s", d)
	}
}

func TestGoodbyeMovesAtOnce(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		old := cl.Session().Server()
		c.Server(old).Goodbye(coordpb.Code_CODE_SHUTTING_DOWN)
		c.Server(old).Stop()
		began := time.Now()
		must[Created](t)(cl.Create(t.Context(), "/a", nil))
		if took := time.Since(began); took > 20*time.Millisecond {
			t.Fatalf("moving took %s", took)
		}
	})
}

func TestIdleClientSendsHeartbeatsAndNothingElse(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		connect(t, c, WithSessionTimeout(12*time.Second))
		before := c.Counts()
		time.Sleep(time.Minute)
		n := c.Counts()
		if n.Attaches != 0 || n.Messages != before.Messages {
			t.Fatalf("%+v", n)
		}
		if beats := n.Beats - before.Beats; beats < 25 || beats > 35 {
			t.Fatalf("%d heartbeats a minute, want about 30", beats)
		}
	})
}

// TestIdleClientNoticesADeadServer: no request is outstanding, only heartbeats
// tell.
func TestIdleClientNoticesADeadServer(t *testing.T) {
	fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		time.Sleep(5 * time.Second)
		old := cl.Session().Server()
		c.Server(old).Mute()
		time.Sleep(6 * time.Second)
		if now := cl.Session().Server(); now == old {
			t.Fatal("the session still hangs on the silent server")
		}
		c.Server(old).Unmute()
		time.Sleep(time.Minute)
		if cl.Session().State() != Connected || c.ExpireSilent() != 0 {
			t.Fatal("the session did not live on")
		}
	})
}

// TestDeadlineCountsFromSending: the client's deadline is the sending time of
// the newest answered heartbeat plus the timeout less 1 %, never later than the
// cluster's.
func TestDeadlineCountsFromSending(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(10*time.Second))
		s := cl.Session()
		time.Sleep(time.Minute)
		if left := time.Until(s.Deadline()); left < 8*time.Second || left > 9900*time.Millisecond {
			t.Fatalf("%s left while heartbeats are answered", left)
		}
		c.Server("n1").IgnoreBeats(true)
		c.Server("n1").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
		// Writes are answered, but are no sign of life that the client may
		// count: the leader may not have seen them yet.
		ended := make(chan time.Time, 1)
		context.AfterFunc(s.Context(), func() { ended <- time.Now() })
		deadline := s.Deadline()
		for s.State() != Expired {
			_, _ = cl.Set(t.Context(), "/", nil, AnyVersion)
			time.Sleep(100 * time.Millisecond)
		}
		if late := (<-ended).Sub(deadline); late < 0 || late > 100*time.Millisecond {
			t.Fatalf("ended %s after the deadline", late)
		}
		var se *SessionError
		if !errors.As(context.Cause(s.Context()), &se) || se.Reason != Silent || !errors.Is(se, ErrSessionExpired) {
			t.Fatalf("cause %v", context.Cause(s.Context()))
		}
	})
}

// TestCutClientExpiresByItself: nothing can be reached; at the client's own
// deadline callbacks fire and blocked calls end, before the cluster expires the
// session.
func TestCutClientExpiresByItself(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		states := make(chan State, 10)
		cl := connect(t, c, WithSessionTimeout(10*time.Second), WithStateListener(func(st State) { states <- st }))
		time.Sleep(3 * time.Second)
		read := make(chan error, 1)
		write := make(chan error, 1)
		watch := make(chan error, 1)
		c.Server("n1").Stop()
		c.Server("n2").Stop()
		began := time.Now()
		go func() { _, err := cl.Get(t.Context(), "/"); read <- err }()
		go func() { _, err := cl.Set(t.Context(), "/", nil, AnyVersion); write <- err }()
		go func() {
			for _, err := range cl.Watch(t.Context(), "/") {
				watch <- err
			}
		}()
		<-cl.Session().Context().Done()
		took := time.Since(began)
		if took < 8*time.Second || took > 9900*time.Millisecond {
			t.Fatalf("over after %s", took)
		}
		for name, ch := range map[string]chan error{"read": read, "write": write, "watch": watch} {
			if err := <-ch; !errors.Is(err, ErrSessionExpired) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if c.ExpireSilent() != 0 {
			t.Fatal("the cluster was earlier")
		}
		var all []State
		for len(all) == 0 || all[len(all)-1] != Expired {
			all = append(all, <-states)
		}
		once := []State{Connected, Suspended, Expired}
		twice := []State{Connected, Suspended, Connected, Suspended, Expired} // n1 had ended, and n2 not yet
		if !slices.Equal(all, once) && !slices.Equal(all, twice) {
			t.Fatalf("states %v", all)
		}
		_, err := cl.Get(t.Context(), "/")
		var se *SessionError
		if !errors.As(err, &se) {
			t.Fatalf("a later call: %v", err)
		}
	})
}

// TestPauseOfTheProcessIsSeenAtOnce: the clock has jumped, no timer has fired
// yet, and whoever looks already sees the end.
func TestPauseOfTheProcessIsSeenAtOnce(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		began := time.Now()
		var slept atomic.Int64
		clock := func() time.Duration { return time.Since(began) + time.Duration(slept.Load()) }
		cl := connect(t, c, WithSessionTimeout(10*time.Second), WithClock(clock))
		time.Sleep(20 * time.Second)
		ctx := cl.Session().Context()
		if ctx.Err() != nil {
			t.Fatal("over too early")
		}
		slept.Store(int64(12 * time.Second))
		if ctx.Err() == nil {
			t.Fatal("still alive after 12 s of sleep")
		}
		if cl.Session().State() != Expired {
			t.Fatal("state")
		}
	})
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		began := time.Now()
		var slept atomic.Int64
		clock := func() time.Duration { return time.Since(began) + time.Duration(slept.Load()) }
		cl := connect(t, c, WithSessionTimeout(10*time.Second), WithClock(clock))
		time.Sleep(20 * time.Second)
		c.Server("n1").IgnoreBeats(true)
		c.Server("n1").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
		slept.Store(int64(5 * time.Second))
		<-cl.Session().Context().Done()
		var se *SessionError
		if !errors.As(context.Cause(cl.Session().Context()), &se) || se.Stalled < 5*time.Second {
			t.Fatalf("the pause is not named: %v", se)
		}
	})
}

func TestServerSaysExpired(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		id := uint64(cl.Session().ID())
		// A client that comes back after its session has expired is told so; it
		// never gets a new session under the old handle.
		c.Server(c.Connected(id)).CutAll()
		c.Expire(id)
		<-cl.Session().Context().Done()
		if cl.Session().ID() != SessionID(id) || c.Sessions() != 0 {
			t.Fatal("another session")
		}
	})
}

// TestWithdrawnBeforeItArrived: the write was sent to a server that lost it; its
// Skip comes first and the write is certainly not done.
// TestCloseGoesAfterWhatWasAskedBefore: writes under way are done first.
// TestListenerMayClose: a callback that ends the client is no deadlock.
// TestSlowOpenIsNotTrusted: an Open whose answer took longer than the timeout
// says nothing about how long the session still lives.
