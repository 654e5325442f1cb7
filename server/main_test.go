package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/internal/tlsfiles"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// discard is a logger for tests that do not look at the log.
func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// oneServer is a Config for a cluster of one on free loopback ports.
func oneServer(t testing.TB) Config {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := l.Addr().String()
	t.Cleanup(func() { l.Close() })
	first := make(chan net.Listener, 1)
	first <- l // kept open, so that nobody else gets the port meanwhile
	listen := func(ctx context.Context, address string) (net.Listener, error) {
		select {
		case l := <-first:
			return l, nil
		default: // a restart
			return new(net.ListenConfig).Listen(ctx, "tcp", address)
		}
	}
	return Config{
		Cluster: cluster.Config{
			Name: "n1", Peers: []cluster.Peer{{Name: "n1", Address: peer}}, Bootstrap: cluster.BootstrapAuto,
			DataDir: t.TempDir(), Heartbeat: 50 * time.Millisecond, Election: 50 * time.Millisecond, Lease: 30 * time.Millisecond,
			DiskReserve: 8 << 20, Net: cluster.Net{Listen: listen},
		},
		GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Logger: discard(), Version: "test", Reflection: true,
	}
}

// running is a server that serves.
type running struct {
	*Server
	t    testing.TB
	conn *grpc.ClientConn
	stop func() // ends it and waits; may be called twice
}

// start runs a server until the test ends and waits until it is ready.
func start(t testing.TB, cfg Config) *running {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	r := &running{Server: s, t: t}
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run did not end")
		}
	})
	t.Cleanup(r.stop)
	if cfg.TLS == (tlsfiles.Files{}) {
		r.conn = r.dial()
	}
	eventually(t, "the server is ready", func() bool { return s.cluster.Status().Ready && s.formed() == nil })
	return r
}

func (r *running) dial() *grpc.ClientConn {
	r.t.Helper()
	conn, err := grpc.NewClient(r.Addrs().GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *running) coord() coordpb.CoordClient { return coordpb.NewCoordClient(r.conn) }

// eventually polls until ok or the patience is over.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
