package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/client/fakecoord"
)

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
