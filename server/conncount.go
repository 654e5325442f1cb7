package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/coordd/coord/internal/pooledread"
)

// writeStall is how long one write to a client's socket may block. A client
// that reads nothing for this long loses its connection.
const writeStall = 30 * time.Second

// connCounter is a listener that counts the open connections and closes new
// ones at once past a limit: refusing costs a peer that floods us more than it
// costs us. It is safe for concurrent use.
type connCounter struct {
	net.Listener
	*connCounts
}

// connCounts are the open connections of one listener, or of several that have one
// limit.
type connCounts struct {
	total, perAddress int // limits; 0: none
	refused           atomic.Uint64

	mu        sync.Mutex // guards below
	open      int
	byAddress map[string]int // kept only with a limit per address
}

// listeners are those of the clients' ports, by protocol.
func (s *Server) listeners() map[protocol]*connCounter {
	out := map[protocol]*connCounter{protoGRPC: s.grpcListener}
	if s.zkListener != nil {
		out[protoZooKeeper] = s.zkListener
	}
	return out
}

func newConnCounter(l net.Listener, limits Limits) *connCounter {
	return &connCounter{l, &connCounts{
		total:      limits.Connections,
		perAddress: limits.ConnectionsPerAddress,
		byAddress:  make(map[string]int),
	}}
}

// beside is a second listener that counts with l.
func (l *connCounter) beside(second net.Listener) *connCounter {
	return &connCounter{second, l.connCounts}
}

// Accept waits for the next connection within the limits.
func (l *connCounter) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		host := hostOf(c.RemoteAddr())
		if !l.take(host) {
			l.refused.Add(1)
			c.Close() // nothing to do about an error
			continue
		}
		return &countedConn{Conn: c, reads: pooledread.New(c), release: sync.OnceFunc(func() { l.give(host) })}, nil
	}
}

func (l *connCounts) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total > 0 && l.open >= l.total {
		return false
	}
	if l.perAddress > 0 {
		if l.byAddress[host] >= l.perAddress {
			return false
		}
		l.byAddress[host]++
	}
	l.open++
	return true
}

func (l *connCounts) give(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.perAddress == 0 {
		return
	}
	if l.byAddress[host]--; l.byAddress[host] <= 0 {
		delete(l.byAddress, host)
	}
}

// count is the number of open connections.
func (l *connCounts) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// countedConn gives its place back when it is closed, and bounds each write.
type countedConn struct {
	net.Conn
	reads   *pooledread.Reader
	release func()
}

// ReadOnReady keeps gRPC from holding a read buffer for each connection, 128 KiB
// times ten thousand.
func (c *countedConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	return c.reads.ReadOnReady(size, pool)
}

// Write writes p, or fails after writeStall.
func (c *countedConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeStall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Close closes the connection. It may be called twice.
func (c *countedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// hostOf is the address without its port.
func hostOf(a net.Addr) string {
	if a == nil {
		return ""
	}
	return hostPart(a.String())
}
