package zkimport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

const (
	// sessionTimeout is asked for; a server may grant less.
	sessionTimeout = 30 * time.Second
	// maxReplyBytes bounds one answer: the names of millions of children.
	maxReplyBytes = 512 << 20
	// eagerBytes are allocated on the word of a frame's length, no more.
	eagerBytes = 1 << 20
)

var (
	errClosed      = errors.New("the server closed the connection")
	errNoZooKeeper = errors.New("the answer is not one of ZooKeeper's")
)

// call is one request and its answer.
type call struct {
	typ    wire.Type
	record []byte
	xid    int32
	reply  wire.Reply
	err    error // a wire.Code, or why there is no answer
	lost   bool  // there is no answer: the connection is gone
	done   chan struct{}
}

// zkConn is one connection to one server, with a session of its own. Requests
// are sent as they come and answered in order.
type zkConn struct {
	host   string
	nc     net.Conn
	reader io.Reader
	last   func(zxid.ID) // told of each zxid that an answer shows

	mu      sync.Mutex // guards what follows; never held over I/O
	xid     int32
	out     []byte  // frames to send
	pending []*call // sent or about to be, oldest first
	failed  error
	wake    chan struct{} // has room for one: there is something to send
	dead    chan struct{} // closed with failed
	wg      sync.WaitGroup
}

// handshake opens a session. floor is a transaction that the server must have
// applied: one that has not closes the connection.
func (c *zkConn) handshake(floor zxid.ID) (time.Duration, error) {
	hello := wire.ConnectRequest{LastZxid: floor, Timeout: sessionTimeout, Password: make([]byte, wire.PasswordBytes), HasReadOnly: true}
	if _, err := c.nc.Write(wire.EndFrame(hello.Append(wire.BeginFrame(nil)), 0)); err != nil {
		return 0, err
	}
	frame, err := readFrame(c.reader, 1<<10)
	if err != nil {
		return 0, err
	}
	var welcome wire.ConnectResponse
	if err := welcome.Decode(frame); err != nil {
		return 0, errNoZooKeeper
	}
	if welcome.Session == 0 || welcome.Timeout <= 0 {
		return 0, errors.New("the server opens no session")
	}
	return welcome.Timeout, nil
}

// start runs the connection until it fails or is closed. timeout is the session's.
func (c *zkConn) start(timeout time.Duration) {
	c.wake, c.dead = make(chan struct{}, 1), make(chan struct{})
	c.wg.Go(func() { c.fail(c.receive(timeout)) })
	c.wg.Go(func() { c.fail(c.send(timeout)) })
}

// close ends the connection and its goroutines. The session is ended in the
// ensemble too, if the connection still stands.
func (c *zkConn) close() {
	bye := &call{typ: wire.CloseSession, done: make(chan struct{})}
	c.submit(bye)
	select {
	case <-bye.done:
	case <-time.After(time.Second):
	}
	c.fail(errClosed)
	c.wg.Wait()
}

// fail ends the connection; all that is unanswered is lost.
func (c *zkConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	c.failed = err
	c.nc.Close()
	close(c.dead)
	for _, q := range c.pending {
		q.lose(err)
	}
	c.pending = nil
}

func (q *call) lose(err error) {
	q.err, q.lost = err, true
	close(q.done)
}

// submit sends a request. Its answer comes in any case.
func (c *zkConn) submit(q *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		q.lose(c.failed)
		return
	}
	c.pending = append(c.pending, q)
	start := len(c.out)
	q.xid = c.number(q.typ)
	h := wire.Header{Xid: q.xid, Type: q.typ}
	c.out = wire.EndFrame(append(h.Append(wire.BeginFrame(c.out)), q.record...), start)
	select {
	case c.wake <- struct{}{}:
	default: // it will look anyway
	}
}

func (c *zkConn) number(t wire.Type) int32 {
	switch t {
	case wire.Ping:
		return wire.XidPing
	case wire.Auth:
		return wire.XidAuth
	default:
	}
	c.xid = c.xid%(1<<30) + 1
	return c.xid
}

// send writes what is submitted, and pings where nothing is.
func (c *zkConn) send(timeout time.Duration) error {
	ping := time.NewTicker(timeout / 3)
	defer ping.Stop()
	for {
		select {
		case <-c.dead:
			return errClosed
		case <-ping.C:
			c.submit(&call{typ: wire.Ping, done: make(chan struct{})})
		case <-c.wake:
		}
		c.mu.Lock()
		out := c.out
		c.out = nil
		c.mu.Unlock()
		if len(out) == 0 {
			continue
		}
		if err := c.nc.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := c.nc.Write(out); err != nil {
			return err
		}
	}
}

// receive hands answers to the calls, in order. Pings are answered too, so silence
// of a whole timeout is the end of the connection.
func (c *zkConn) receive(timeout time.Duration) error {
	for {
		if err := c.nc.SetReadDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		frame, err := readFrame(c.reader, maxReplyBytes)
		if err != nil {
			return err
		}
		h, record, err := wire.DecodeReplyHeader(frame)
		if err != nil {
			return errNoZooKeeper
		}
		if h.Xid == wire.XidEvent {
			continue // no watches are set
		}
		if int64(h.Zxid) > 0 {
			c.last(h.Zxid)
		}
		if err := c.answer(h, record); err != nil {
			return err
		}
	}
}

func (c *zkConn) answer(h wire.ReplyHeader, record []byte) error {
	c.mu.Lock()
	if len(c.pending) == 0 {
		c.mu.Unlock()
		return errNoZooKeeper
	}
	q := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	c.mu.Unlock()
	if h.Xid != q.xid {
		q.lose(errNoZooKeeper)
		return errNoZooKeeper
	}
	if h.Err != wire.OK {
		q.err = h.Err
	} else if err := q.reply.Decode(q.typ, record); err != nil {
		q.lose(errNoZooKeeper)
		return errNoZooKeeper
	}
	close(q.done)
	return nil
}

// readFrame reads one frame of at most so many bytes.
func readFrame(r io.Reader, most int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errClosed
		}
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n > int64(most) {
		return nil, fmt.Errorf("%w (it claims to have %d bytes)", errNoZooKeeper, n)
	}
	if n <= eagerBytes {
		b := make([]byte, n)
		_, err := io.ReadFull(r, b)
		return b, err
	}
	var b bytes.Buffer
	_, err := io.CopyN(&b, r, n)
	return b.Bytes(), err
}
