package renewal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/recipes/internal/rig"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPausesGrowAndBeginAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pause
		took := func() time.Duration {
			began := time.Now()
			if err := p.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		within := func(d, most time.Duration) {
			t.Helper()
			if d > most || d < most/2 {
				t.Fatalf("a pause of %s, want %s to %s", d, most/2, most)
			}
		}
		for want := firstPause; want < longestPause; want *= 2 {
			within(took(), want)
		}
		within(took(), longestPause)
		within(took(), longestPause)
		time.Sleep(calm + time.Second)
		within(took(), firstPause)
		within(took(), 2*firstPause)
		p.Reset()
		within(took(), firstPause)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	})
}

func TestSessionsFollowEachOther(t *testing.T) {
	rig.Fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := rig.Connect(t, c, client.WithSessionTimeout(30*time.Second))
		s := NewSessions(cl)
		for range 3 {
			before, err := s.Live(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if again, err := s.Live(t.Context()); err != nil || again != before || s.Current() != before {
				t.Fatal("a session that lives was replaced")
			}
			c.Expire(uint64(before.ID()))
			<-before.Context().Done()
			after, err := s.Live(t.Context())
			if err != nil || after == before || after.Timeout() != before.Timeout() || after.Name() != before.Name() {
				t.Fatalf("%v %v", after, err)
			}
		}
		if err := s.Close(t.Context()); err != nil || c.Sessions() != 0 {
			t.Fatalf("%d sessions are left, %v", c.Sessions(), err)
		}
		if _, err := s.Live(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Fatalf("one that was closed on purpose: %v", err)
		}
	})
}

func TestHopelessErrors(t *testing.T) {
	for err, want := range map[error]bool{
		client.ErrNoAuth: true, client.ErrClosed: true, client.ErrBadPath: true,
		client.ErrUnavailable: false, client.ErrSessionExpired: false, client.ErrOverloaded: false, context.Canceled: false,
	} {
		if got := Hopeless(fmt.Errorf("create /x: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestWithinEndsWithEither(t *testing.T) {
	mine := errors.New("mine")
	for _, first := range []bool{true, false} {
		a, cancelA := context.WithCancelCause(t.Context())
		b, cancelB := context.WithCancelCause(t.Context())
		ctx, cancel := Within(a, b)
		if first {
			cancelA(mine)
		} else {
			cancelB(mine)
		}
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), mine) {
			t.Error(context.Cause(ctx))
		}
		cancel()
		cancelA(nil)
		cancelB(nil)
	}
}
