// Package memnet is a network in memory: hosts that listen, dial and talk over
// connections with the promises of TCP, and that can be cut off, frozen, slowed
// down and reset.
//
// It is goroutine-free: who waits, waits on a condition, so that in a bubble of
// testing/synctest the clock goes on while everybody waits. It works in real time
// as well. All methods may be called from any goroutine.
//
// An address is "host:port"; the host alone names a machine in the methods that
// disturb the network.
package memnet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Network is a set of hosts. New makes it.
type Network struct {
	mu        sync.Mutex // guards below
	changed   chan struct{}
	listeners map[string]*listener
	conns     map[*pipe]struct{} // one for each direction of a connection
	cuts      map[link]int
	oneWay    map[route]int
	cutOff    map[string]int
	frozen    map[string]int
	down      map[string]int
	delays    map[link]time.Duration
	delay     time.Duration // of links that are not in delays
	lastPort  int
}

// link names two hosts, in order.
type link struct{ a, b string }

// route is one direction of a link.
type route struct{ from, to string }

func between(a, b string) link { return link{min(a, b), max(a, b)} }

// New makes a network without hosts.
func New() *Network {
	return &Network{
		changed: make(chan struct{}), listeners: map[string]*listener{}, conns: map[*pipe]struct{}{},
		cuts: map[link]int{}, oneWay: map[route]int{}, cutOff: map[string]int{}, frozen: map[string]int{}, down: map[string]int{},
		delays:   map[link]time.Duration{},
		lastPort: 40_000,
	}
}

// Addr is the address of a connection's end.
type Addr string

// Network implements net.Addr.
func (Addr) Network() string { return "mem" }

// String implements net.Addr.
func (a Addr) String() string { return string(a) }

// hostOf is the machine of an address; an address without a port is one.
func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// Dial connects host from to an address. While the link is cut, or the host
// frozen, it waits as for a machine that does not answer; it fails at once with
// ECONNREFUSED where nobody listens or the process is down. Its error is a *net.OpError, or that of ctx.
func (n *Network) Dial(ctx context.Context, from, address string) (net.Conn, error) {
	for {
		c, changed, err := n.tryDial(from, address)
		if c != nil || err != nil {
			return c, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, opError("dial", address, context.Cause(ctx))
		}
	}
}

// tryDial connects, or fails, or says what to wait for.
func (n *Network) tryDial(from, address string) (_ net.Conn, changed <-chan struct{}, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	to := hostOf(address)
	if n.down[from] > 0 {
		return nil, nil, opError("dial", address, syscall.ECONNREFUSED)
	}
	if n.blockedLocked(from, to) || n.blockedLocked(to, from) || n.frozen[from] > 0 {
		return nil, n.changed, nil
	}
	l := n.listeners[address]
	if l == nil || n.down[to] > 0 {
		return nil, nil, opError("dial", address, syscall.ECONNREFUSED)
	}
	n.lastPort++
	here, there := n.pairLocked(Addr(fmt.Sprintf("%s:%d", from, n.lastPort)), Addr(address))
	if !l.push(there) {
		n.forgetLocked(here)
		return nil, nil, opError("dial", address, syscall.ECONNREFUSED)
	}
	return here, nil, nil
}

func opError(op, address string, err error) error {
	return &net.OpError{Op: op, Net: "mem", Addr: Addr(address), Err: err}
}

func (n *Network) pairLocked(local, remote Addr) (here, there *conn) {
	up := newPipe(hostOf(string(local)), hostOf(string(remote)))
	down := newPipe(hostOf(string(remote)), hostOf(string(local)))
	here = &conn{net: n, in: down, out: up, local: local, remote: remote}
	there = &conn{net: n, in: up, out: down, local: remote, remote: local}
	for _, p := range []*pipe{up, down} {
		n.conns[p] = struct{}{}
		p.set(n.stateLocked(p))
	}
	return here, there
}

func (n *Network) forgetLocked(c *conn) {
	delete(n.conns, c.in)
	delete(n.conns, c.out)
}

// forget is told when both ends of a pipe are closed.
func (n *Network) forget(p *pipe) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, p)
}

// Listen opens an address. It fails with EADDRINUSE if it is open.
func (n *Network) Listen(address string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address] != nil {
		return nil, opError("listen", address, syscall.EADDRINUSE)
	}
	l := newListener(n, address)
	l.setFrozen(n.frozen[hostOf(address)] > 0)
	n.listeners[address] = l
	return l, nil
}

// Open is how many connections the network has.
func (n *Network) Open() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return (len(n.conns) + 1) / 2
}
