//go:build unix

package server

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// ReadOnReady waits until the socket has data and only then takes a buffer
// from the pool. gRPC finds this method by its shape; without it each
// connection, a silent one too, would hold a read buffer of its own, 128 KiB
// times ten thousand.
func (c *countedConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return readPooled(c.Conn, size, pool)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, 0, err
	}
	var r readyRead
	if err := raw.Read(func(fd uintptr) bool { return r.try(int(fd), size, pool) }); err != nil {
		r.drop(pool)
		return nil, 0, err
	}
	return r.result(pool)
}

// readyRead is one attempt to read a socket that does not block.
type readyRead struct {
	buf *[]byte
	n   int
	err error
}

// try reads once. It returns false if there is nothing yet.
func (r *readyRead) try(fd, size int, pool mem.BufferPool) bool {
	r.buf = pool.Get(size)
	for r.n, r.err = syscall.Read(fd, *r.buf); errors.Is(r.err, syscall.EINTR); {
		r.n, r.err = syscall.Read(fd, *r.buf)
	}
	if r.err == nil {
		return true
	}
	r.drop(pool)
	return !errors.Is(r.err, syscall.EAGAIN)
}

func (r *readyRead) drop(pool mem.BufferPool) {
	if r.buf != nil {
		pool.Put(r.buf)
		r.buf = nil
	}
}

func (r *readyRead) result(pool mem.BufferPool) (*[]byte, int, error) {
	switch {
	case r.err != nil:
		return nil, 0, r.err
	case r.n == 0:
		r.drop(pool)
		return nil, 0, io.EOF
	}
	return r.buf, r.n, nil
}

func readPooled(c net.Conn, size int, pool mem.BufferPool) (*[]byte, int, error) {
	buf := pool.Get(size)
	n, err := c.Read(*buf)
	if err != nil && n == 0 {
		pool.Put(buf)
		return nil, 0, err
	}
	return buf, n, nil
}
