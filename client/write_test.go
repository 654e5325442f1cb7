package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

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
