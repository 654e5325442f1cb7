// Package pooledread reads sockets into buffers of a pool that are taken only
// when there is something to read.
//
// gRPC does this by itself for a bare *net.TCPConn. Once that is wrapped, for
// instance to count what it does, each connection, a silent one too, would hold
// a read buffer of its own, 32 KiB and more: with ten thousand connections most
// of a server's memory. A wrapper that has the method ReadOnReady, which gRPC
// finds by its shape, gets the pool back; [Reader] is what it needs for that.
package pooledread

import (
	"net"

	"google.golang.org/grpc/mem"
)

// Reader reads one connection. It takes one caller at a time.
type Reader struct {
	conn net.Conn
	raw  socket // knows how to wait for data; nil if conn is no plain socket
}

// socket is a connection that can say when there is something to read.
type socket interface {
	readOnReady(size int, pool mem.BufferPool) (*[]byte, int, error)
}

// New makes a Reader for c. Only a *net.TCPConn can be waited for; of any other
// connection, one with TLS too, a buffer is held while it is read.
func New(c net.Conn) *Reader { return &Reader{conn: c, raw: socketOf(c)} }

// ReadOnReady waits until there is data, takes a buffer of size bytes from the
// pool and reads into it once. It returns the buffer, which the caller gives
// back, and how many of its bytes were read. With an error there may be bytes,
// too; without any there is no buffer.
func (r *Reader) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	if r.raw != nil {
		return r.raw.readOnReady(size, pool)
	}
	buf := pool.Get(size)
	n, err := r.conn.Read(*buf)
	if n == 0 && err != nil {
		pool.Put(buf)
		return nil, 0, err
	}
	return buf, n, err
}
