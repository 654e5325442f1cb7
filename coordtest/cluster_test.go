package coordtest

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBoth runs f in fake time, and in real time beside other tests.
func inBoth(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Run("fake time", func(t *testing.T) { synctest.Test(t, f) })
	t.Run("real time", func(t *testing.T) {
		t.Parallel()
		f(t)
	})
}

// inFakeTime runs f in a bubble.
func inFakeTime(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func acquire(t *testing.T, cl *client.Client, path string) *lock.Handle {
	t.Helper()
	h, err := lock.New(cl, path).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// lostWithin says how long it took until a handle was lost.
func lostWithin(t *testing.T, h *lock.Handle, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	select {
	case <-h.Lost():
	case <-time.After(limit):
		t.Fatalf("not lost after %s", limit)
	}
	return time.Since(began)
}

func TestClustersOfOneAndThreeServeAndEnd(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		inBoth(t, func(t *testing.T) {
			c := StartCluster(t, n)
			for range 3 {
				h := acquire(t, c.Dial(), "/l")
				if err := h.Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if leader := c.AwaitLeader(); leader >= n || c.Servers() != n {
				t.Errorf("leader %d of %d", leader, c.Servers())
			}
		})
	}
}

func TestExpireEndsASessionAndItsHolderHears(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T) {
		c := Start(t)
		h := acquire(t, c.Dial(), "/l")
		c.Expire(h.Session())
		if left := c.Paths("/l/"); len(left) != 0 {
			t.Errorf("left: %q", left)
		}
		lostWithin(t, h, 5*time.Second)
		if next := acquire(t, c.Dial(), "/l"); next.FencingToken() <= h.FencingToken() {
			t.Errorf("token %d after %d", next.FencingToken(), h.FencingToken())
		}
		c.Expire(h.Session()) // it has ended: nothing happens
	})
}

// TestCodeThatDialsItselfCanBeDisturbed, as soon as it has a session.
func TestCodeThatDialsItselfCanBeDisturbed(t *testing.T) {
	inFakeTime(t, func(t *testing.T) {
		c := Start(t)
		one, err := client.Dial(t.Context(), c.Target(), c.DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		two, err := client.Dial(t.Context(), c.Target(), c.DialOptions()...)
		if err != nil {
			t.Fatal(err)
		}
		defer two.Close()
		h := acquire(t, one, "/l")
		c.Partition(one)
		put(t, two, "/n")
		if took := lostWithin(t, h, time.Minute); took < 5*time.Second {
			t.Errorf("lost after %s", took)
		}
	})
}
