package memnet

import (
	"net"
	"sync"
)

// backlog is how many connections may wait to be accepted; further ones are
// refused.
const backlog = 1024

// listener is an open address.
type listener struct {
	net     *Network
	address string

	mu      sync.Mutex // guards below; may be taken under net.mu
	changed *sync.Cond
	waiting []*conn
	frozen  bool
	closed  bool
}

func newListener(n *Network, address string) *listener {
	l := &listener{net: n, address: address}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// push hands over a new connection. It returns false if the listener does not
// take it.
func (l *listener) push(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.waiting) >= backlog {
		return false
	}
	l.waiting = append(l.waiting, c)
	l.changed.Broadcast()
	return true
}

func (l *listener) setFrozen(frozen bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = frozen
	l.changed.Broadcast()
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.closed && (l.frozen || len(l.waiting) == 0) {
		l.changed.Wait()
	}
	if l.closed {
		return nil, opError("accept", l.address, net.ErrClosed)
	}
	c := l.waiting[0]
	l.waiting = l.waiting[1:]
	return c, nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return Addr(l.address) }

// Close implements net.Listener. Who was not accepted is reset. It returns
// net.ErrClosed the second time.
func (l *listener) Close() error {
	l.net.mu.Lock()
	if l.net.listeners[l.address] == l {
		delete(l.net.listeners, l.address)
	}
	l.net.mu.Unlock()
	l.mu.Lock()
	waiting, was := l.waiting, l.closed
	l.waiting, l.closed = nil, true
	l.changed.Broadcast()
	l.mu.Unlock()
	for _, c := range waiting {
		c.abort()
	}
	if was {
		return opError("close", l.address, net.ErrClosed)
	}
	return nil
}
