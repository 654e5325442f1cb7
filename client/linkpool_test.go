package client

import (
	"bytes"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/client/fakecoord"
)

// TestManySessionsNeedFewConnections: a hundred share one, and all share that of
// the heartbeats.
func TestManySessionsNeedFewConnections(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		sessions := more(t, cl, 249)
		want := func(n int) {
			t.Helper()
			synctest.Wait()
			if got := c.Connections("n1"); got != n {
				t.Fatalf("%d connections, want %d", got, n)
			}
		}
		want(3 + 1)
		for _, s := range sessions {
			must[Created](t)(s.Client().Create(t.Context(), "/e-", nil, WithEphemeral(), WithSequential()))
		}
		time.Sleep(time.Minute)
		alive(t, c, sessions...)
		// Room that is given back is used again, and a connection nobody needs goes.
		for _, s := range sessions[:50] {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		sessions = append(sessions[50:], more(t, cl, 50)...)
		want(3 + 1)
		for _, s := range sessions {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		want(1 + 1)
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		want(0)
	})
}

// TestDeadConnectionsAreNotShared: connections that are dead without anybody
// being told are found out and left, by idle sessions and busy ones, where there
// is no other server.
func TestDeadConnectionsAreNotShared(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(6*time.Second))
		sessions := append(more(t, cl, 120), cl.Session()) // on two connections
		for range 3 {
			time.Sleep(10 * time.Second)
			c.Kill("n1")
			began := time.Now()
			busy := sessions[3].Client()
			must[Created](t)(busy.Create(t.Context(), "/e-", nil, WithEphemeral(), WithSequential()))
			if took := time.Since(began); took > 3*time.Second {
				t.Fatalf("a write over a dead connection took %s", took)
			}
			must[*Session](t)(cl.NewSession(t.Context()))
		}
		time.Sleep(10 * time.Second)
		alive(t, c, sessions...)
		if n := c.Connections("n1"); n > 10 {
			t.Fatalf("%d connections are left over", n)
		}
	})
}

// TestStuckSessionDoesNotHoldUpTheOthers: one whose callback does not return takes
// in no more answers; the sessions that share its connection do.
func TestStuckSessionDoesNotHoldUpTheOthers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		stuck := more(t, cl, 1)[0].Client()
		must[Created](t)(cl.Create(t.Context(), "/big", bytes.Repeat([]byte("x"), 1<<20)))
		release := make(chan struct{})
		var once sync.Once
		t.Cleanup(func() { once.Do(func() { close(release) }) })
		answered := make(chan error, 20)
		for range 20 {
			if err := stuck.GetAsync("/big", func(_ Node, err error) { <-release; answered <- err }); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			began := time.Now()
			must[Node](t)(cl.Get(t.Context(), "/big"))
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Fatalf("a read of another session took %s", took)
			}
		}
		if n := c.Connections("n1"); n != 2 {
			t.Fatalf("%d connections: the sessions do not share one", n)
		}
		once.Do(func() { close(release) })
		for range 20 {
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestEndedSessionLeavesTheConnectionToTheOthers: a server that ends one session is
// there for the next.
func TestEndedSessionLeavesTheConnectionToTheOthers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithIdentity("a"))
		for range 3 {
			s := must[*Session](t)(cl.NewSession(t.Context()))
			c.Expire(uint64(s.ID()))
			<-s.Context().Done()
		}
		more(t, cl, 3)
		synctest.Wait()
		if n := c.Connections("n1"); n != 2 {
			t.Fatalf("%d connections, want one and that of the heartbeats", n)
		}
	})
}
