package fakecoord

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"google.golang.org/grpc"
)

// wire is a client's end of one connection.
type wire struct {
	net.Conn
	c      *Cluster
	server string
	dead   atomic.Bool
	closed chan struct{}
	once   sync.Once
}

// DialOption makes connections reach the servers in memory.
func (c *Cluster) DialOption() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		host, _, _ := strings.Cut(addr, ":")
		s := c.Server(host)
		if s == nil {
			return nil, fmt.Errorf("dial %s: no such host", addr)
		}
		lis := s.listener()
		if lis == nil {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		conn, err := lis.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: conn, c: c, server: host, closed: make(chan struct{})}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.wires[w] = struct{}{}
		return w, nil
	})
}

// Connections counts the connections that clients keep to a server.
func (c *Cluster) Connections(server string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.wires {
		if w.server == server {
			n++
		}
	}
	return n
}

// Kill makes the connections to a server that are there now be dead without
// anybody being told, as behind a firewall that has forgotten them. Later ones
// work.
func (c *Cluster) Kill(server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.wires {
		if w.server == server {
			w.dead.Store(true)
		}
	}
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.dead.Load() {
		<-w.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	if w.dead.Load() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.once.Do(func() {
		close(w.closed)
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		delete(w.c.wires, w)
	})
	return w.Conn.Close()
}
