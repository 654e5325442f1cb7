package test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/server"
)

// The tests of faults_*_test.go show that faults which other services had are
// impossible here. docs/testing.md has the whole list.

// startLocal runs n servers in this process, which end with the test. change may
// be nil.
func startLocal(t testing.TB, n int, change func(*server.Config)) *localcluster.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := localcluster.Start(ctx, localcluster.Options{Servers: n, Change: change})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("end of the cluster: %v", err)
		}
	})
	return c
}

// shortSessions lets tests see sessions end soon.
func shortSessions(c *server.Config) { c.Session.Min = time.Second }

// testContext bounds a test: by patience times the limit, see poll.
func testContext(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience*limit)
	t.Cleanup(cancel)
	return ctx
}

// must fails the test on an error.
func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// connection is a plain gRPC connection to a server.
func connection(t testing.TB, endpoint string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func localStats(t testing.TB, endpoint string) *coordpb.StatsReply {
	t.Helper()
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // a test may ask often
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	st, err := coordpb.NewAdminClient(conn).Stats(ctx, &coordpb.StatsRequest{})
	if err != nil {
		t.Fatalf("stats of %s: %v", endpoint, err)
	}
	return st
}

// hello begins a session stream, without the client library, and returns it
// after the welcome.
func hello(ctx context.Context, conn *grpc.ClientConn, h *coordpb.Hello) (coordpb.Coord_SessionClient, *coordpb.Welcome, error) {
	stream, err := coordpb.NewCoordClient(conn).Session(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := stream.Send(&coordpb.SessionRequest{Hello: h}); err != nil {
		return nil, nil, err
	}
	m, err := stream.Recv()
	if err == nil && m.GetWelcome() == nil {
		err = fmt.Errorf("the first message is no welcome: %v", m)
	}
	return stream, m.GetWelcome(), err
}

func openHello(timeout time.Duration) *coordpb.Hello {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // it does not fail
	return &coordpb.Hello{Mode: coordpb.Hello_MODE_OPEN, Nonce: nonce, TimeoutMs: timeout.Milliseconds(), Name: "test"}
}

func attachHello(w *coordpb.Welcome, connection uint64) *coordpb.Hello {
	return &coordpb.Hello{Mode: coordpb.Hello_MODE_ATTACH, SessionId: w.GetSessionId(), Secret: w.GetSecret(), Connection: connection}
}

// answerTo waits for the reply to request id or seq of a stream.
func answerTo(stream coordpb.Coord_SessionClient, id, seq uint64) (*coordpb.Reply, error) {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		for _, r := range m.GetReplies() {
			if r.GetId() == id && r.GetSeq() == seq {
				return r, nil
			}
		}
		if g := m.GetGoodbye(); g != nil {
			return nil, fmt.Errorf("the server ends the stream: %v", g.GetError())
		}
	}
}

// localLeader is the number of the server that leads.
func localLeader(t testing.TB, c *localcluster.Cluster) int {
	t.Helper()
	leader := -1
	poll(t, 20*time.Second, "a leader", func() error {
		for i := range c.Endpoints() {
			if s := c.Server(i); s != nil && s.Node().Status().Leader == fmt.Sprintf("n%d", i+1) {
				leader = i
				return nil
			}
		}
		return fmt.Errorf("nobody leads")
	})
	return leader
}

// sameLocalDigests waits until all servers say the same digest of their state.
func sameLocalDigests(t testing.TB, c *localcluster.Cluster) {
	t.Helper()
	type state struct{ digest, index uint64 }
	poll(t, 20*time.Second, "equal digests", func() error {
		var first *state
		for i := range c.Endpoints() {
			digest, index, _ := c.Server(i).Node().Machine().Digest()
			now := state{digest, index}
			if first == nil {
				first = &now
			}
			if now != *first {
				return fmt.Errorf("n%d has %+v, n1 %+v", i+1, now, *first)
			}
		}
		return nil
	})
}

// lag keeps a server from applying anything until the function returned is
// called: it is a follower that has fallen behind.
func lag(t testing.TB, c *localcluster.Cluster, i int) (catchUp func()) {
	t.Helper()
	entered, release := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Server(i).Node().Machine().View(func(*fsm.View) {
			close(entered)
			<-release
		})
	}()
	<-entered
	return func() {
		close(release)
		<-done
	}
}
