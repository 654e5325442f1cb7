package server

import (
	"io"
	"net"
	"sync"

	"google.golang.org/grpc/mem"
)

const (
	// zkReadBytes is how much is read at a time: some hundred requests.
	zkReadBytes = 32 << 10
	// zkSecureReadBytes is that of a connection with TLS, which cannot wait for
	// data without a buffer, and has others below.
	zkSecureReadBytes = 4 << 10
)

var (
	zkReadBuffers       = newReadBuffers(zkReadBytes)
	zkSecureReadBuffers = newReadBuffers(zkSecureReadBytes)
)

// zkInput takes a connection's bytes apart into frames. While it waits for a client
// that is silent it holds no buffer, unless the connection has TLS. It takes one
// caller at a time.
type zkInput struct {
	conn  net.Conn
	ready readyReader // nil: conn cannot wait for data without a buffer
	pool  *readBuffers

	buf *[]byte // nil: none is held
	b   []byte  // the part of it that was not taken yet
}

// readyReader waits for data without a buffer. See countedConn.
type readyReader interface {
	ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
}

func newZKInput(c net.Conn) *zkInput {
	if r, ok := c.(readyReader); ok {
		return &zkInput{conn: c, ready: r, pool: zkReadBuffers}
	}
	return &zkInput{conn: c, pool: zkSecureReadBuffers}
}

// peek returns the next n bytes, no more than a buffer holds, without taking them.
func (in *zkInput) peek(n int) ([]byte, error) {
	for len(in.b) < n {
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
	return in.b[:n], nil
}

// rest takes what was read and not taken yet.
func (in *zkInput) rest() []byte {
	b := in.b
	in.b = nil
	return b
}

// frame takes the next frame, of at most so many bytes. It is good until the next
// call.
func (in *zkInput) frame(most int) ([]byte, error) {
	head, err := in.peek(4)
	if err != nil {
		return nil, err
	}
	n := int(int32(head[0])<<24 | int32(head[1])<<16 | int32(head[2])<<8 | int32(head[3]))
	if n < 0 || n > most {
		return nil, malformed("a frame of %d bytes, at most %d are taken", n, most)
	}
	if 4+n <= in.pool.size {
		b, err := in.peek(4 + n)
		if err != nil {
			return nil, err
		}
		in.b = in.b[4+n:]
		return b[4:], nil
	}
	in.b = in.b[4:]
	return readAll(in, n)
}

// Read implements io.Reader.
func (in *zkInput) Read(p []byte) (int, error) {
	if len(in.b) == 0 {
		return in.conn.Read(p)
	}
	n := copy(p, in.b)
	in.b = in.b[n:]
	return n, nil
}

// fill reads more, once. The buffer must not be full.
func (in *zkInput) fill() error {
	had, n, err := 0, 0, error(nil)
	if len(in.b) == 0 && in.ready != nil {
		in.release()
		in.buf, n, err = in.ready.ReadOnReady(in.pool.size, in.pool)
	} else {
		if in.buf == nil {
			in.buf = in.pool.Get(in.pool.size)
		}
		had = copy(*in.buf, in.b)
		n, err = in.conn.Read((*in.buf)[had:])
	}
	if in.buf != nil {
		in.b = (*in.buf)[:had+n]
	}
	if n > 0 {
		return nil // an error comes again
	}
	return err
}

// release gives the buffer back. What was returned of it is not good any more.
func (in *zkInput) release() {
	if in.buf != nil {
		in.pool.Put(in.buf)
		in.buf, in.b = nil, nil
	}
}

// readBuffers is a mem.BufferPool of buffers of one size.
type readBuffers struct {
	size int
	pool sync.Pool
}

func newReadBuffers(size int) *readBuffers {
	return &readBuffers{size: size, pool: sync.Pool{New: func() any {
		b := make([]byte, size)
		return &b
	}}}
}

// Get implements mem.BufferPool.
func (p *readBuffers) Get(int) *[]byte { return p.pool.Get().(*[]byte) }

// Put implements mem.BufferPool.
func (p *readBuffers) Put(b *[]byte) { p.pool.Put(b) }

// readAll reads exactly n bytes into memory that grows as they come: a length alone
// costs nothing.
func readAll(in io.Reader, n int) ([]byte, error) {
	const step = 64 << 10
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, min(n, 2*cap(b))), b...)
		}
		m, err := io.ReadFull(in, b[len(b):cap(b)])
		b = b[:len(b)+m]
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}
