package server

import (
	"io"
	"net"
	"sync"
)

// arrivals are the connections that have not said yet who they are. Nothing else can
// end them while they are silent, and a server that stops must not wait for them. The
// zero value is ready.
type arrivals struct {
	mu     sync.Mutex // guards below
	conns  map[net.Conn]struct{}
	closed bool
}

// add reports false if no more are taken.
func (a *arrivals) add(c net.Conn) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return false
	}
	if a.conns == nil {
		a.conns = make(map[net.Conn]struct{})
	}
	a.conns[c] = struct{}{}
	return true
}

// remove forgets a connection that has arrived, or has gone.
func (a *arrivals) remove(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.conns, c)
}

// close closes all.
func (a *arrivals) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	for c := range a.conns {
		_ = c.Close() // nothing was promised to it
	}
}

// rereadConn reads first what a buffer has already taken.
type rereadConn struct {
	net.Conn
	taken io.Reader // nil when all of it is read
}

func (c *rereadConn) Read(p []byte) (int, error) {
	if c.taken != nil {
		n, err := c.taken.Read(p)
		if err != io.EOF {
			return n, err
		}
		c.taken = nil
	}
	return c.Conn.Read(p)
}
