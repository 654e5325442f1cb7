package memnet

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	net           *Network
	in, out       *pipe
	local, remote Addr
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.named("read", err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.out.write(b, c.in.endHeard())
	return n, c.named("write", err)
}

// named wraps an error as package net does; io.EOF stays bare.
func (c *conn) named(op string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	was := c.in.closeReader()
	c.out.closeWriter()
	c.settle()
	if was {
		return c.named("close", net.ErrClosed)
	}
	return nil
}

// abort breaks the connection: the other side gets ECONNRESET.
func (c *conn) abort() {
	for _, p := range []*pipe{c.in, c.out} {
		p.fail(syscall.ECONNRESET)
		c.net.forget(p)
	}
}

// settle lets the network forget the directions that both ends have closed.
func (c *conn) settle() {
	for _, p := range []*pipe{c.in, c.out} {
		if p.over() {
			c.net.forget(p)
		}
	}
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.named("set", c.in.setReadDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.named("set", c.out.setWriteDeadline(t))
}
