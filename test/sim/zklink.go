package sim

import (
	"bufio"
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

var (
	// errZKLost is what becomes of a request whose connection broke: it was done, or
	// not.
	errZKLost = errors.New("the connection was lost")
	// errZKOver is the error of everything that a session is needed for.
	errZKOver = errors.New("the session is over")
)

// zkCall is a request on its way, and then its answer.
type zkCall struct {
	wire.Request
	xid  int32
	sent time.Duration // on the history's clock
	done chan struct{} // closed when the fields below are known

	wire.ReplyHeader
	wire.Reply
	err error // errZKLost: there will be no answer
}

// zkLink is one connection of a session. Requests are answered in their order, but
// for pings.
type zkLink struct {
	c    *zkClient
	net  net.Conn
	in   *bufio.Reader
	peer *process // the life of the server that it leads to; nil: not known

	// setting says that the answer to setWatches is awaited. Of the reading
	// goroutine alone.
	setting bool

	mu      sync.Mutex // guards below; held while requests are written, so that they go in their order
	waiting []*zkCall
	pings   []time.Duration // when those were sent that are not answered
	broken  bool
}

func newZKLink(c *zkClient, nc net.Conn) *zkLink {
	return &zkLink{c: c, net: nc, in: bufio.NewReader(nc)}
}

// hello does the handshake.
func (l *zkLink) hello(q *wire.ConnectRequest) (*wire.ConnectResponse, error) {
	if err := l.net.SetDeadline(time.Now().Add(l.c.patience())); err != nil {
		return nil, err
	}
	if _, err := l.net.Write(framed(nil, q.Append(nil))); err != nil {
		return nil, err
	}
	b, err := l.frame()
	if err != nil {
		return nil, err
	}
	p := new(wire.ConnectResponse)
	return p, p.Decode(b)
}

// framed appends a payload as a frame.
func framed(b, payload []byte) []byte {
	start := len(b)
	return wire.EndFrame(append(wire.BeginFrame(b), payload...), start)
}

// zkLongest bounds what a server is believed about the length of a frame.
const zkLongest = 16 << 20

func (l *zkLink) frame() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > zkLongest {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(l.in, b)
	return b, err
}

// submit sends requests in one packet. An error is that none was sent.
func (l *zkLink) submit(qs ...wire.Request) ([]*zkCall, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return nil, errZKLost
	}
	var b []byte
	calls := make([]*zkCall, len(qs))
	for i, q := range qs {
		k := &zkCall{Request: q, xid: l.c.nextXid(), sent: l.c.w.history.Now(), done: make(chan struct{})}
		if q.Type == wire.SetWatches2 {
			k.xid = wire.XidSetWatches
		}
		calls[i] = k
		b = framed(b, q.Append(wire.Header{Xid: k.xid, Type: q.Type}.Append(nil)))
	}
	l.waiting = append(l.waiting, calls...)
	l.writeLocked(b)
	return calls, nil
}

// ping sends a sign of life.
func (l *zkLink) ping() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return
	}
	l.pings = append(l.pings, l.c.w.history.Now())
	l.writeLocked(framed(nil, wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
}

func (l *zkLink) writeLocked(b []byte) {
	if err := l.net.SetWriteDeadline(time.Now().Add(l.c.patience())); err != nil {
		_ = l.net.Close() // the reader notices
		return
	}
	if _, err := l.net.Write(b); err != nil {
		_ = l.net.Close()
	}
}

// read takes what comes until the connection breaks. It gives a server up that is
// silent for long.
func (l *zkLink) read() error {
	for {
		if err := l.net.SetReadDeadline(time.Now().Add(l.c.patience())); err != nil {
			return err
		}
		b, err := l.frame()
		if err != nil {
			return err
		}
		h, record, err := wire.DecodeReplyHeader(b)
		if err != nil {
			return err
		}
		switch h.Xid {
		case wire.XidEvent:
			e, err := wire.DecodeEvent(record)
			if err != nil {
				return err
			}
			l.c.event(l, e)
		case wire.XidPing:
			l.pong(h.Zxid)
		default:
			if err := l.answer(h, record); err != nil {
				return err
			}
		}
	}
}

func (l *zkLink) pong(z zxid.ID) {
	l.mu.Lock()
	sent := l.pings[0]
	l.pings = l.pings[1:]
	l.mu.Unlock()
	l.c.heard(sent, z)
}

// answer gives a reply to the request that is next.
func (l *zkLink) answer(h wire.ReplyHeader, record []byte) error {
	l.mu.Lock()
	if len(l.waiting) == 0 || l.waiting[0].xid != h.Xid {
		l.mu.Unlock()
		l.c.w.wrong("%s: reply %d is not the one whose turn it is", l.c.m.host, h.Xid)
		return errZKLost
	}
	k := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.mu.Unlock()
	defer close(k.done)
	k.ReplyHeader = h
	if h.Err == wire.OK {
		if k.err = k.Reply.Decode(k.Type, record); k.err != nil {
			l.c.w.wrong("%s: the reply to %s cannot be read: %v", l.c.m.host, k.Type, k.err)
			return k.err
		}
	}
	l.c.heard(k.sent, h.Zxid)
	l.c.answered(l, k)
	return nil
}

// fail ends the connection, and with it what waits for answers.
func (l *zkLink) fail() {
	_ = l.net.Close()
	l.mu.Lock()
	waiting := l.waiting
	l.broken, l.waiting = true, nil
	l.mu.Unlock()
	for _, k := range waiting {
		k.err = errZKLost
		close(k.done)
	}
}
