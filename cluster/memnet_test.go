package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// memNet is a network in memory. It works in fake time: who waits, waits on a
// channel or a condition. Links between two hosts can be cut: bytes under way
// stay where they are, as in a real network, and flow on when the link heals.
type memNet struct {
	mu        sync.Mutex
	listeners map[string]*memListener
	cuts      map[[2]string]bool
	refused   map[[2]string]bool
	conns     map[*memConn]struct{}
}

func newMemNet() *memNet {
	return &memNet{
		listeners: make(map[string]*memListener), cuts: make(map[[2]string]bool), refused: make(map[[2]string]bool),
		conns: make(map[*memConn]struct{}),
	}
}

type memAddr string

func (memAddr) Network() string  { return "mem" }
func (a memAddr) String() string { return string(a) }

var errRefused = syscall.ECONNREFUSED

// listen opens the port of host addr.
func (n *memNet) listen(addr string) net.Listener {
	l := &memListener{net: n, addr: addr, ch: make(chan net.Conn, 16), done: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

// dialer returns the dial function of host from.
func (n *memNet) dialer(from string) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, to string) (net.Conn, error) {
		n.mu.Lock()
		l := n.listeners[to]
		cut := n.cuts[link(from, to)]
		if n.refused[link(from, to)] {
			l = nil
		}
		n.mu.Unlock()
		if cut {
			<-ctx.Done() // nobody answers
			return nil, ctx.Err()
		}
		if l == nil {
			return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memAddr(to), Err: errRefused}
		}
		here, there := n.pair(from, to)
		select {
		case l.ch <- there:
			return here, nil
		case <-l.done:
			return nil, &net.OpError{Op: "dial", Net: "mem", Addr: memAddr(to), Err: errRefused}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func link(a, b string) [2]string {
	if a > b {
		a, b = b, a
	}
	return [2]string{a, b}
}

// cut stops the bytes between two hosts; heal lets them go on.
func (n *memNet) cut(a, b string)  { n.setCut(a, b, true) }
func (n *memNet) heal(a, b string) { n.setCut(a, b, false) }

func (n *memNet) setCut(a, b string, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link(a, b)] = cut
	for c := range n.conns {
		if c.in.link == link(a, b) {
			c.in.setCut(cut)
		}
	}
}

// refuse breaks the connections between two hosts and refuses new ones, as a
// dead process does; admit lets them be made again.
func (n *memNet) refuse(a, b string) {
	n.mu.Lock()
	n.refused[link(a, b)] = true
	var hit []*memConn
	for c := range n.conns {
		if c.in.link == link(a, b) {
			hit = append(hit, c)
		}
	}
	n.mu.Unlock()
	for _, c := range hit {
		_ = c.Close()
	}
}

func (n *memNet) admit(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.refused, link(a, b))
}

// reset breaks the connections between two hosts; new ones can be made at once.
func (n *memNet) reset(a, b string) {
	n.refuse(a, b)
	n.admit(a, b)
}

// deafen makes a host refuse connections until undo; those that stand, and those
// it makes itself, are left alone.
func (n *memNet) deafen(addr string) (undo func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[addr]
	delete(n.listeners, addr)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listeners[addr] = l
	}
}

// cutOneWay stops the bytes of the present connections in one direction, and all
// dialling; heal lets both go on.
func (n *memNet) cutOneWay(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cuts[link(from, to)] = true
	for c := range n.conns {
		if c.remote.String() == from && c.local.String() == to {
			c.in.setCut(true)
		}
	}
}

func (n *memNet) pair(from, to string) (here, there net.Conn) {
	l := link(from, to)
	up, down := newMemPipe(l), newMemPipe(l)
	a := &memConn{net: n, in: down, out: up, local: memAddr(from), remote: memAddr(to)}
	b := &memConn{net: n, in: up, out: down, local: memAddr(to), remote: memAddr(from)}
	n.mu.Lock()
	defer n.mu.Unlock()
	up.cut, down.cut = n.cuts[l], n.cuts[l]
	n.conns[a], n.conns[b] = struct{}{}, struct{}{}
	return a, b
}

type memListener struct {
	net  *memNet
	addr string
	ch   chan net.Conn
	once sync.Once
	done chan struct{}
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ch:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Addr() net.Addr { return memAddr(l.addr) }

func (l *memListener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.net.mu.Lock()
		defer l.net.mu.Unlock()
		if l.net.listeners[l.addr] == l {
			delete(l.net.listeners, l.addr)
		}
	})
	return nil
}

type memConn struct {
	net           *memNet
	in, out       *memPipe
	local, remote memAddr
}

func (c *memConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memConn) Write(p []byte) (int, error) { return c.out.write(p) }
func (c *memConn) LocalAddr() net.Addr         { return c.local }
func (c *memConn) RemoteAddr() net.Addr        { return c.remote }

func (c *memConn) Close() error {
	c.in.close(net.ErrClosed)
	c.out.close(io.EOF)
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	delete(c.net.conns, c)
	return nil
}

func (c *memConn) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.out.setWriteDeadline(t)
	return nil
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.setWriteDeadline(t)
	return nil
}

// memPipeBytes is the room of one direction, as of socket buffers.
const memPipeBytes = 1 << 20

// memPipe is one direction of a connection.
type memPipe struct {
	link [2]string

	mu       sync.Mutex
	changed  *sync.Cond
	buf      bytes.Buffer
	cut      bool
	readErr  error // set by a close at either end; EOF comes after what is buffered
	writeErr error
	readEnd  memDeadline
	writeEnd memDeadline
}

type memDeadline struct {
	timer *time.Timer
	over  bool
}

func newMemPipe(l [2]string) *memPipe {
	p := &memPipe{link: l}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *memPipe) read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.readErr != nil && !errors.Is(p.readErr, io.EOF):
			return 0, p.readErr
		case p.readEnd.over:
			return 0, os.ErrDeadlineExceeded
		case p.buf.Len() > 0 && !p.cut:
			n, _ := p.buf.Read(b)
			p.changed.Broadcast()
			return n, nil
		case errors.Is(p.readErr, io.EOF) && !p.cut:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

func (p *memPipe) write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := 0
	for {
		switch {
		case p.writeErr != nil:
			return done, p.writeErr
		case p.writeEnd.over:
			return done, os.ErrDeadlineExceeded
		case p.buf.Len() < memPipeBytes:
			n := min(len(b)-done, memPipeBytes-p.buf.Len())
			p.buf.Write(b[done : done+n])
			done += n
			p.changed.Broadcast()
			if done == len(b) {
				return done, nil
			}
		}
		p.changed.Wait()
	}
}

// close ends the pipe: readErr is what the reader gets.
func (p *memPipe) close(readErr error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readErr == nil || !errors.Is(readErr, io.EOF) {
		p.readErr = readErr
	}
	p.writeErr = net.ErrClosed
	p.changed.Broadcast()
}

func (p *memPipe) setCut(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	p.changed.Broadcast()
}

func (p *memPipe) setReadDeadline(t time.Time)  { p.setDeadline(&p.readEnd, t) }
func (p *memPipe) setWriteDeadline(t time.Time) { p.setDeadline(&p.writeEnd, t) }

func (p *memPipe) setDeadline(d *memDeadline, t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.over = false
	if t.IsZero() {
		return
	}
	left := time.Until(t)
	if left <= 0 {
		d.over = true
		p.changed.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(left, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.timer == timer {
			d.over = true
			p.changed.Broadcast()
		}
	})
	d.timer = timer
}
