package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

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

// TestFailFastWaitsForAServerThatIsSlow: it is for those that are not there.
func TestFailFastWaitsForAServerThatIsSlow(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		c.Server("n1").Stop()
		c.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := Dial(ctx, c.Target(), FailFast(), WithGRPCOptions(c.DialOption()))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "\n") {
			t.Fatalf("got %v", err)
		}
		time.AfterFunc(3*time.Second, c.Thaw)
		connect(t, c, FailFast())
	})
}

// TestFailFastRepeatsAWriteWhileAServerIsThere: one that may be repeated.
func TestFailFastRepeatsAWriteWhileAServerIsThere(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, FailFast(), WithoutSession())
		ctx := WithRequestID(t.Context(), "order-1")
		c.Server("n1").NotNow(coordpb.Code_CODE_UNAVAILABLE)
		time.AfterFunc(3*time.Second, func() { c.Server("n1").NotNow(coordpb.Code_CODE_OK) })
		began := time.Now()
		must[Created](t)(cl.Create(ctx, "/a", nil))
		if took := time.Since(began); took < 3*time.Second {
			t.Fatalf("done after %s, before a server could", took)
		}
		c.Server("n1").Stop()
		began = time.Now()
		_, err := cl.Create(WithRequestID(t.Context(), "order-2"), "/b", nil)
		// It may have gone out on the connection that was about to break.
		if took := time.Since(began); !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownOutcome) || took > 5*time.Second {
			t.Fatalf("%v after %s", err, took)
		}
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
