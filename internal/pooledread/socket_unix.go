//go:build unix

package pooledread

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// tcpSocket reads a socket that does not block. What an attempt needs is kept
// here, so that reading makes no garbage.
type tcpSocket struct {
	raw     syscall.RawConn
	attempt func(fd uintptr) bool

	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

func socketOf(c net.Conn) socket {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	s := &tcpSocket{raw: raw}
	s.attempt = s.try
	return s
}

func (s *tcpSocket) readOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	s.size, s.pool, s.n, s.err = size, pool, 0, nil
	waited := s.raw.Read(s.attempt)
	switch {
	case s.err == nil && waited != nil:
		s.err = waited // closed, or past its deadline
	case s.err == nil && s.n == 0:
		s.err = io.EOF
	}
	if s.err != nil {
		s.drop()
	}
	buf := s.buf
	s.buf, s.pool = nil, nil
	return buf, s.n, s.err
}

// try reads once. It returns false if there is nothing yet.
func (s *tcpSocket) try(fd uintptr) bool {
	s.buf = s.pool.Get(s.size)
	s.n, s.err = syscall.Read(int(fd), *s.buf)
	for errors.Is(s.err, syscall.EINTR) {
		s.n, s.err = syscall.Read(int(fd), *s.buf)
	}
	if s.err == nil {
		return true
	}
	s.n = 0
	if !errors.Is(s.err, syscall.EAGAIN) {
		return true
	}
	s.err = nil
	s.drop()
	return false
}

func (s *tcpSocket) drop() {
	if s.buf != nil {
		s.pool.Put(s.buf)
		s.buf = nil
	}
}
