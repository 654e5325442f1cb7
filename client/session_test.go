package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

// lose loses the answers to the next n numbered writes after they were done.
func lose(c *fakecoord.Cluster, n int, how fakecoord.Action) {
	c.OnReply(func(_ string, r *coordpb.Reply) fakecoord.Action {
		if r.Seq == 0 || n == 0 {
			return fakecoord.Pass
		}
		n--
		return how
	})
}

func TestLostAnswerIsAskedForAgain(t *testing.T) {
	for _, how := range []fakecoord.Action{fakecoord.Cut, fakecoord.Drop} {
		for _, servers := range []int{1, 3} {
			t.Run(fmt.Sprintf("action %d, %d servers", how, servers), func(t *testing.T) {
				fake(t, servers, func(t *testing.T, c *fakecoord.Cluster) {
					ctx := t.Context()
					cl := connect(t, c)
					lose(c, 1, how)
					p := must[Created](t)(cl.Create(ctx, "/a-", []byte("x"), WithSequential()))
					lose(c, 2, how)
					st := must[Stat](t)(cl.Set(ctx, p.Path, []byte("y"), 0))
					if st.Version != 1 {
						t.Fatalf("set was done %d times", st.Version)
					}
					lose(c, 1, how)
					must[[]OpResult](t)(cl.Txn(ctx, OpCreate("/b", nil), OpCheck(p.Path, 1)))
					lose(c, 1, how)
					if _, err := cl.Create(ctx, "/b", nil); !errors.Is(err, ErrNodeExists) {
						t.Fatalf("the answer to a refused write changed: %v", err)
					}
					lose(c, 1, how)
					if err := cl.Delete(ctx, p.Path, 1); err != nil {
						t.Fatal(err)
					}
					if n := c.Counts(); n.Writes != 5 || n.Repeats < 5 {
						t.Fatalf("%+v", n)
					}
				})
			})
		}
	}
}

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
		for _, want := range []State{Connected, Suspended, Expired} {
			if got := <-states; got != want {
				t.Fatalf("state %s, want %s", got, want)
			}
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

func TestCancelledWriteIsWithdrawn(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(time.Minute))
		must[Created](t)(cl.Create(t.Context(), "/a", nil))
		c.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := cl.Set(ctx, "/a", nil, AnyVersion)
		var e *Error
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnknownOutcome) || !errors.As(err, &e) || e.Outcome != MaybeDone {
			t.Fatalf("got %v", err)
		}
		if time.Since(began) != time.Second {
			t.Fatalf("returned after %s", time.Since(began))
		}
		// Not sent at all: the outcome is certain.
		gone, cancel2 := context.WithCancel(t.Context())
		cancel2()
		if _, err = cl.Set(gone, "/a", nil, AnyVersion); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("got %v", err)
		}
		c.Thaw()
		must[Stat](t)(cl.Set(t.Context(), "/a", nil, AnyVersion)) // the line goes on
	})
}

func TestSettledWriteKnowsItsOutcome(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(time.Minute))
		// Done, and the answer was lost: the context's end does not hide it.
		lose(c, 1, fakecoord.Drop)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		r, err := cl.WriteSettled(ctx, OpCreate("/a-", nil, WithSequential()))
		if err != nil || len(r) != 1 || r[0].Path != "/a-0000000000" {
			t.Fatalf("%+v %v", r, err)
		}
		// Never arrived anywhere: certainly not done.
		c.Server(cl.Session().Server()).Stop()
		for _, n := range []string{"n1", "n2"} {
			c.Server(n).Stop()
		}
		time.Sleep(time.Second)
		if _, err = cl.WriteSettled(ctx, OpCreate("/b", nil)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrUnknownOutcome) {
			t.Fatalf("got %v", err)
		}
		for _, n := range []string{"n1", "n2"} {
			c.Server(n).Start()
		}
		must[Created](t)(cl.Create(t.Context(), "/c", nil))
		if len(c.Paths("/b")) != 0 {
			t.Fatal("the withdrawn write was done")
		}
	})
}

// TestWithdrawnBeforeItArrived: the write was sent to a server that lost it; its
// Skip comes first and the write is certainly not done.
func TestWithdrawnBeforeItArrived(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(time.Minute))
		s := cl.Session()
		c.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		go func() {
			_, err := cl.WriteSettled(ctx, OpCreate("/a", nil))
			done <- err
		}()
		time.Sleep(20 * time.Millisecond)
		// What was sent waits in the server; cut it before it is applied. The
		// fake applies it in a connection that the session has left.
		c.Server(s.Server()).Stop()
		time.Sleep(500 * time.Millisecond)
		c.Thaw()
		err := <-done
		if err == nil && len(c.Paths("/a")) != 1 || err != nil && len(c.Paths("/a")) != 0 {
			t.Fatalf("outcome %v, but there is %v", err, c.Paths("/"))
		}
		if err != nil && (!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrCancelled)) {
			t.Fatalf("got %v", err)
		}
		must[Created](t)(cl.Create(t.Context(), "/b", nil))
	})
}

func TestManyWritesWaitForTheirNumbers(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(time.Minute))
		c.Freeze()
		const writes = 3 * window
		done := make(chan error, writes)
		for range writes {
			if err := cl.WriteAsync(func(_ []OpResult, err error) { done <- err }, OpCreate("/a-", nil, WithSequential())); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(100 * time.Millisecond)
		cl.session.mu.Lock()
		numbered := len(cl.session.line.pending)
		cl.session.mu.Unlock()
		if numbered != window {
			t.Fatalf("%d numbers were given", numbered)
		}
		c.Server(cl.Session().Server()).CutAll()
		c.Thaw()
		for range writes {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if n := len(c.Paths("/a-")); n != writes {
			t.Fatalf("%d nodes", n)
		}
	})
}

func TestAnswersAreAcknowledgedWhenIdle(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		must[Created](t)(cl.Create(t.Context(), "/a", nil))
		before := c.Counts().Messages
		time.Sleep(time.Second)
		if n := c.Counts().Messages - before; n != 1 {
			t.Fatalf("%d messages while idle, want one acknowledgement", n)
		}
	})
}

func TestSessionEndLeavesNoWriteInDoubtThatNeedNotBe(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(10*time.Second))
		c.Server("n1").Mute()
		sent := make(chan error, 1)
		go func() { _, err := cl.Create(t.Context(), "/a", nil); sent <- err }()
		time.Sleep(time.Second)
		c.Server("n1").Stop()
		time.Sleep(time.Millisecond)
		queued := make(chan error, 1)
		go func() { _, err := cl.Create(t.Context(), "/b", nil); queued <- err }()
		var e *Error
		if err := <-sent; !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, ErrSessionExpired) || !errors.As(err, &e) || e.Outcome != MaybeDone {
			t.Fatalf("sent: %v", err)
		}
		if err := <-queued; errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, ErrSessionExpired) || !errors.As(err, &e) || e.Outcome != NotDone {
			t.Fatalf("queued: %v", err)
		}
	})
}

func TestCloseEndsTheSession(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		must[Created](t)(cl.Create(t.Context(), "/e", nil, WithEphemeral()))
		s := cl.Session()
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Close(done); err != nil {
			t.Fatal(err)
		}
		if len(c.Paths("/e")) != 0 || c.Sessions() != 0 {
			t.Fatal("the ephemeral node is still there")
		}
		if s.State() != Closed || !errors.Is(context.Cause(s.Context()), ErrClosed) {
			t.Fatalf("%s %v", s.State(), context.Cause(s.Context()))
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			must2(cl.Get(t.Context(), "/")), must2(cl.Create(t.Context(), "/x", nil)), cl.WriteAsync(nil, OpDelete("/x", 0)),
			must2(cl.NewSession(t.Context())),
		} {
			if !errors.Is(err, ErrClosed) {
				t.Fatalf("after Close: %v", err)
			}
		}
	})
}

func must2[T any](_ T, err error) error { return err }

// TestCloseGoesAfterWhatWasAskedBefore: writes under way are done first.
func TestCloseGoesAfterWhatWasAskedBefore(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		failed := 0
		for range 500 {
			_ = cl.WriteAsync(func(_ []OpResult, err error) {
				if err != nil {
					failed++
				}
			}, OpCreate("/a-", nil, WithSequential()))
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		if n := len(c.Paths("/a-")); n != 500 || failed != 0 {
			t.Fatalf("%d nodes, %d failures", n, failed)
		}
	})
}

func TestCloseOfAnUnreachableClusterIsBounded(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		c.Server("n1").Stop()
		c.Server("n2").Stop()
		began := time.Now()
		err := cl.Close()
		var e *Error
		if !errors.Is(err, ErrUnavailable) || !errors.As(err, &e) || len(e.Tried) != 2 {
			t.Fatalf("got %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Fatalf("took %s", took)
		}
	})
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		c.Server("n1").Mute()
		began := time.Now()
		if err := cl.Close(); err == nil {
			t.Fatal("closed by a silent server")
		}
		if took := time.Since(began); took > 2*closeGrace+time.Second {
			t.Fatalf("took %s", took)
		}
		c.Server("n1").Unmute()
	})
}

// TestListenerMayClose: a callback that ends the client is no deadlock.
func TestListenerMayClose(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		var cl *Client
		closed := make(chan error, 1)
		ready := make(chan struct{})
		cl = connect(t, c, WithStateListener(func(st State) {
			if st == Suspended {
				<-ready
				closed <- cl.Close()
			}
		}))
		close(ready)
		c.Server("n1").Stop()
		if err := <-closed; !errors.Is(err, ErrUnavailable) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestIdentityTakesOver(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		old := connect(t, c, WithIdentity("worker-7"))
		must[Created](t)(old.Create(t.Context(), "/member", nil, WithEphemeral()))
		next := connect(t, c, WithIdentity("worker-7"))
		<-old.Session().Context().Done()
		must[Created](t)(next.Create(t.Context(), "/member", nil, WithEphemeral()))
		time.Sleep(time.Minute)
		if c.Sessions() != 1 || len(c.Paths("/member")) != 1 {
			t.Fatalf("%d sessions, %v", c.Sessions(), c.Paths("/"))
		}
		if !errors.Is(context.Cause(old.Session().Context()), ErrSessionExpired) {
			t.Fatalf("cause %v", context.Cause(old.Session().Context()))
		}
	})
}

func TestExtraSessionHasItsOwnLife(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		s := must[*Session](t)(cl.NewSession(t.Context(), WithSessionTimeout(30*time.Second)))
		if s.ID() == cl.Session().ID() || s.Timeout() != 30*time.Second {
			t.Fatalf("session %s, timeout %s", s.ID(), s.Timeout())
		}
		view := s.Client()
		a := must[Created](t)(view.Create(t.Context(), "/a", nil, WithEphemeral()))
		if a.Stat.EphemeralOwner != s.ID() {
			t.Fatal("owner")
		}
		c.Expire(uint64(s.ID()))
		<-s.Context().Done()
		if cl.Session().Context().Err() != nil {
			t.Fatal("the client's own session ended too")
		}
		s = must[*Session](t)(cl.NewSession(t.Context()))
		if err := s.Client().Close(); err != nil || c.Sessions() != 1 {
			t.Fatalf("%v, %d sessions", err, c.Sessions())
		}
		must[*Session](t)(cl.NewSession(t.Context()))
		if err := cl.Close(); err != nil || c.Sessions() != 0 {
			t.Fatalf("%v, %d sessions left behind", err, c.Sessions())
		}
	})
}

// TestSlowOpenIsNotTrusted: an Open whose answer took longer than the timeout
// says nothing about how long the session still lives.
func TestSlowOpenIsNotTrusted(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.Freeze()
		go func() {
			time.Sleep(30 * time.Second)
			c.Thaw()
		}()
		cl := connect(t, c, WithSessionTimeout(10*time.Second))
		if left := time.Until(cl.Session().Deadline()); left < 3*time.Second {
			t.Fatalf("handed out with %s to live", left)
		}
		if n := c.Sessions(); n != 1 {
			t.Fatalf("%d sessions", n)
		}
	})
}

func TestDialSaysWhatItTried(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		c.Server("n1").Stop()
		c.Server("n2").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_NOT_FORMED, Message: "waiting for n3"})
		began := time.Now()
		_, err := Dial(t.Context(), c.Target(), FailFast(), WithGRPCOptions(c.DialOption()))
		var e *Error
		if !errors.Is(err, ErrUnavailable) || !errors.As(err, &e) || len(e.Tried) != 2 {
			t.Fatalf("got %v", err)
		}
		if !errors.Is(e.Tried[1].Err, ErrNotFormed) || time.Since(began) > 100*time.Millisecond {
			t.Fatalf("%v after %s", e.Tried, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = Dial(ctx, c.Target(), WithGRPCOptions(c.DialOption()))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &e) || len(e.Tried) != 2 {
			t.Fatalf("got %v", err)
		}
		c.Server("n2").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_AUTH_FAILED, Message: "no such user"})
		if _, err = Dial(t.Context(), c.Target(), WithGRPCOptions(c.DialOption())); !errors.Is(err, ErrAuthFailed) {
			t.Fatalf("got %v", err)
		}
		// A cluster that comes up later is waited for.
		c.Server("n2").Refuse(&coordpb.Error{Code: coordpb.Code_CODE_UNAVAILABLE})
		go func() {
			time.Sleep(20 * time.Second)
			c.Server("n1").Start()
		}()
		connect(t, c)
	})
}

func TestClosedPortIsNamedAtOnce(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := lis.Addr().String()
	_ = lis.Close()
	began := time.Now()
	_, err = Dial(t.Context(), addr, FailFast())
	var e *Error
	if !errors.Is(err, ErrUnavailable) || !errors.As(err, &e) || len(e.Tried) != 1 {
		t.Fatalf("got %v", err)
	}
	if took := time.Since(began); took > time.Second { // 100 ms on an idle machine
		t.Fatalf("took %s", took)
	}
	var op *net.OpError
	if !errors.As(e.Tried[0].Err, &op) {
		t.Fatalf("the reason is hidden: %v", e.Tried[0].Err)
	}
}

func TestServerThatIsNoCoorddIsNotTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fakecoord.New(t, 1)
		c.Server("n1").Refuse(&coordpb.Error{Code: coordpb.Code(999), Message: "from the future"})
		_, err := Dial(t.Context(), c.Target(), WithGRPCOptions(c.DialOption()))
		if !errors.Is(err, ErrProtocol) {
			t.Fatalf("got %v", err)
		}
	})
}
