package pooledread

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// wrapper is what users of the package make of a connection.
type wrapper struct {
	net.Conn
	reads *Reader
	calls *atomic.Int64
}

func (w *wrapper) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	w.calls.Add(1)
	return w.reads.ReadOnReady(size, pool)
}

type wrappingListener struct {
	net.Listener
	calls atomic.Int64
}

func (l *wrappingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wrapper{Conn: c, reads: New(c), calls: &l.calls}, nil
}

// TestGRPCFindsTheMethod keeps an update of gRPC from passing over it in silence.
func TestGRPCFindsTheMethod(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lis := &wrappingListener{Listener: l}
	s := grpc.NewServer()
	served := make(chan error, 1)
	go func() { served <- s.Serve(lis) }()
	defer func() { s.Stop(); <-served }()

	var calls atomic.Int64
	cc, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return &wrapper{Conn: c, reads: New(c), calls: &calls}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for cc.Connect(); cc.GetState() != connectivity.Ready; {
		if !cc.WaitForStateChange(ctx, cc.GetState()) {
			t.Fatal(context.Cause(ctx))
		}
	}
	for calls.Load() == 0 || lis.calls.Load() == 0 {
		if ctx.Err() != nil {
			t.Fatalf("gRPC reads otherwise: %d calls at the client, %d at the server", calls.Load(), lis.calls.Load())
		}
		time.Sleep(time.Millisecond)
	}
}
