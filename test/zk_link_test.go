package test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// zkLink is a connection to the ZooKeeper port for clients that ride through
// failures: it returns errors, and its session can go on over the next one. One
// goroutine sends and one receives.
type zkLink struct {
	net net.Conn
	in  *bufio.Reader

	session  session.ID
	password []byte
	timeout  time.Duration
	xid      int32
	last     zxid.ID      // largest that a reply has shown
	events   []wire.Event // that came since they were last taken
	pongs    int          // that came before the replies to requests before their pings
}

// errZKExpired is what a client is told whose session is over.
var errZKExpired = errors.New("the session has expired")

// zkLinkTo opens a session, or goes on with that of old.
func zkLinkTo(host string, timeout time.Duration, old *zkLink) (*zkLink, error) {
	nc, err := net.DialTimeout("tcp", host, time.Second)
	if err != nil {
		return nil, err
	}
	l := &zkLink{net: nc, in: bufio.NewReaderSize(nc, 64<<10)}
	q := wire.ConnectRequest{Timeout: timeout, Password: make([]byte, 16), HasReadOnly: true}
	if old != nil {
		q.Session, q.Password, q.LastZxid, q.Timeout = old.session, old.password, old.last, old.timeout
		l.last, l.xid = old.last, old.xid
	}
	if err := l.hello(&q); err != nil {
		nc.Close()
		return nil, err
	}
	return l, nil
}

func (l *zkLink) hello(q *wire.ConnectRequest) error {
	if err := l.write(q.Append(nil)); err != nil {
		return err
	}
	b, err := l.frame(2 * time.Second)
	if err != nil {
		return err
	}
	var p wire.ConnectResponse
	if err := p.Decode(b); err != nil {
		return err
	}
	if p.Session == 0 {
		return errZKExpired
	}
	l.session, l.password, l.timeout = p.Session, p.Password, p.Timeout
	return nil
}

// zkLinkAny tries the hosts in turn until one takes the session, for as long as it
// lives.
func zkLinkAny(hosts []string, first int, timeout time.Duration, old *zkLink) (*zkLink, error) {
	limit := timeout
	if old == nil {
		limit = 20 * time.Second
	}
	var last error
	for deadline, i := time.Now().Add(limit+5*time.Second), first; time.Now().Before(deadline); i++ {
		l, err := zkLinkTo(hosts[i%len(hosts)], timeout, old)
		if err == nil || errors.Is(err, errZKExpired) {
			return l, err
		}
		last = err
		time.Sleep(10 * time.Millisecond)
	}
	return nil, fmt.Errorf("no server takes the session: %w", last)
}

func (l *zkLink) write(payloads ...[]byte) error {
	var b []byte
	for _, p := range payloads {
		start := len(b)
		b = wire.EndFrame(append(wire.BeginFrame(b), p...), start)
	}
	_, err := l.net.Write(b)
	return err
}

func (l *zkLink) frame(patience time.Duration) ([]byte, error) {
	if err := l.net.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(l.in, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(l.in, b)
	return b, err
}

// send sends requests in one packet and returns the number of the first.
func (l *zkLink) send(qs ...wire.Request) (first int32, err error) {
	var frames [][]byte
	first = l.xid + 1
	for i := range qs {
		l.xid++
		xid := l.xid
		if t := qs[i].Type; t == wire.Ping {
			xid = wire.XidPing
		} else if t == wire.SetWatches || t == wire.SetWatches2 {
			xid = wire.XidSetWatches
		}
		frames = append(frames, qs[i].Append(wire.Header{Xid: xid, Type: qs[i].Type}.Append(nil)))
	}
	return first, l.write(frames...)
}

// next takes the next reply, of a request of type t; events before it are kept. The
// answer to a ping may come before its turn.
func (l *zkLink) next(t wire.Type, patience time.Duration) (zkReply, error) {
	for {
		if t == wire.Ping && l.pongs > 0 {
			l.pongs--
			return zkReply{ReplyHeader: wire.ReplyHeader{Xid: wire.XidPing}}, nil
		}
		b, err := l.frame(patience)
		if err != nil {
			return zkReply{}, err
		}
		h, record, err := wire.DecodeReplyHeader(b)
		if err != nil {
			return zkReply{}, err
		}
		if h.Xid == wire.XidEvent {
			e, err := wire.DecodeEvent(record)
			if err != nil {
				return zkReply{}, err
			}
			l.events = append(l.events, e)
			continue
		}
		if h.Xid == wire.XidPing && t != wire.Ping {
			l.last = max(l.last, h.Zxid)
			l.pongs++
			continue
		}
		r := zkReply{ReplyHeader: h, record: record}
		if h.Err == wire.OK {
			if err := r.Decode(t, record); err != nil {
				return r, fmt.Errorf("reply to %s: %w", t, err)
			}
		}
		if int64(h.Zxid) > 0 && h.Zxid < l.last {
			return r, fmt.Errorf("a reply shows %s after %s", h.Zxid, l.last)
		}
		l.last = max(l.last, h.Zxid)
		return r, nil
	}
}

// call sends requests in one packet and takes the replies, which must come in that
// order.
func (l *zkLink) call(patience time.Duration, qs ...wire.Request) ([]zkReply, error) {
	first, err := l.send(qs...)
	if err != nil {
		return nil, err
	}
	var out []zkReply
	for i := range qs {
		r, err := l.next(qs[i].Type, patience)
		if err != nil {
			return out, err
		}
		if r.Xid > 0 && r.Xid != first+int32(i) {
			return out, fmt.Errorf("reply %d to request %d", r.Xid, first+int32(i))
		}
		out = append(out, r)
	}
	return out, nil
}

// one is call for a single request; a code other than OK is an error.
func (l *zkLink) one(q wire.Request) (zkReply, error) {
	rs, err := l.call(zkPatient, q)
	if err != nil {
		return zkReply{}, err
	}
	if rs[0].Err != wire.OK {
		return rs[0], fmt.Errorf("%s %s: %w", q.Type, q.Path, rs[0].Err)
	}
	return rs[0], nil
}

var zkPing = wire.Request{Op: wire.Op{Type: wire.Ping}}

var zkSyncRoot = wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}}

func (c *processes) zkAddresses() (out []string) {
	for _, p := range c.nodes {
		out = append(out, p.zookeeper())
	}
	return out
}
