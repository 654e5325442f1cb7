package server

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
)

var zkOpenACL = []znode.ACL{{Perms: znode.PermAll, Scheme: "world", ID: "anyone"}}

// zkServe serves ZooKeeper's clients of a fakeServer on a loopback port.
func zkServe(t testing.TB, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.zkListener = newConnCounter(l, s.limits)
	s.workers.Go(func() {
		if err := s.serveZooKeeper(s.zkListener, false); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		l.Close()
		for _, st := range s.hub.streams() {
			st.end(errStopped)
		}
	})
	return l.Addr().String()
}

// zkTester is a client of the ZooKeeper port that hides nothing.
type zkTester struct {
	t   testing.TB
	net net.Conn

	welcome wire.ConnectResponse
	xid     int32
}

func zkDial(t testing.TB, address string) *zkTester {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &zkTester{t: t, net: nc}
}

// zkOpen connects with a new session.
func zkOpen(t testing.TB, address string) *zkTester {
	t.Helper()
	c := zkDial(t, address)
	c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second})
	if c.welcome.Session == 0 {
		t.Fatal("no session")
	}
	return c
}

// hello does the handshake. Frames of requests may ride along.
func (c *zkTester) hello(q *wire.ConnectRequest, more ...byte) {
	c.t.Helper()
	c.raw(append(zkFrame(q.Append(nil)), more...))
	if err := c.welcome.Decode(c.frame()); err != nil {
		c.t.Fatal(err)
	}
}

func zkFrame(payload []byte) []byte {
	return wire.EndFrame(append(wire.BeginFrame(nil), payload...), 0)
}

func (c *zkTester) raw(b []byte) {
	c.t.Helper()
	if _, err := c.net.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// frames are requests with the next numbers, as they are sent.
func (c *zkTester) frames(qs ...wire.Request) (out []byte) {
	for i := range qs {
		c.xid++
		out = append(out, zkFrame(qs[i].Append(wire.Header{Xid: c.xid, Type: qs[i].Type}.Append(nil)))...)
	}
	return out
}

func (c *zkTester) send(qs ...wire.Request) {
	c.t.Helper()
	c.raw(c.frames(qs...))
}

func (c *zkTester) read() ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c.net, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(c.net, b)
	return b, err
}

func (c *zkTester) frame() []byte {
	c.t.Helper()
	b, err := c.read()
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return b
}

// next takes the next reply or event.
func (c *zkTester) next() (wire.ReplyHeader, []byte) {
	c.t.Helper()
	h, record, err := wire.DecodeReplyHeader(c.frame())
	if err != nil {
		c.t.Fatal(err)
	}
	return h, record
}

// reply takes the next reply, which must be to the request with the number.
func (c *zkTester) reply(xid int32, typ wire.Type) (wire.Code, wire.Reply) {
	c.t.Helper()
	h, record := c.next()
	if h.Xid != xid {
		c.t.Fatalf("reply %d (%s) where that to %d has to come", h.Xid, h.Err, xid)
	}
	var p wire.Reply
	if h.Err == wire.OK {
		if err := p.Decode(typ, record); err != nil {
			c.t.Fatal(err)
		}
	}
	return h.Err, p
}

// call sends one request and takes its reply.
func (c *zkTester) call(q wire.Request) (wire.Code, wire.Reply) {
	c.t.Helper()
	c.send(q)
	return c.reply(c.xid, q.Type)
}

// must is call for what has to succeed.
func (c *zkTester) must(q wire.Request) wire.Reply {
	c.t.Helper()
	code, p := c.call(q)
	if code != wire.OK {
		c.t.Fatalf("%s %s: %s", q.Type, q.Path, code)
	}
	return p
}

// ended waits until the server has closed the connection, whatever comes before.
func (c *zkTester) ended() {
	c.t.Helper()
	for {
		_, err := c.read()
		var ne net.Error
		switch {
		case err == nil:
		case errors.As(err, &ne) && ne.Timeout():
			c.t.Fatal("the connection stays open")
		default:
			return
		}
	}
}

func zkCreateReq(path string, flags int32) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Create, Path: path, Data: []byte("x"), ACL: zkOpenACL, Flags: flags}}
}

func zkSetReq(path, data string) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.SetData, Path: path, Data: []byte(data), Version: -1}}
}

func zkDeleteReq(path string) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Delete, Path: path, Version: -1}}
}

func zkGetReq(path string) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.GetData, Path: path}}
}

func zkExistsReq(path string) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Exists, Path: path}}
}

func zkAuthReq(scheme, secret string) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: scheme, Secret: []byte(secret)}
}

// zkPipe opens a session at a fakeServer with a node /a.
func zkPipe(t testing.TB, change ...func(*Config)) (*zkTester, *Server, *fakeNode) {
	t.Helper()
	s, n := fakeServer(t, change...)
	c := zkOpen(t, zkServe(t, s))
	c.must(zkCreateReq("/a", 0))
	return c, s, n
}

// outstanding waits until n writes wait for the cluster.
func (n *fakeNode) outstanding(want int) {
	n.t.Helper()
	eventually(n.t, "the writes are submitted", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.queue) == want
	})
}
