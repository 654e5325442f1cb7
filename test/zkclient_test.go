package test

import (
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

const (
	zkSuper = "super:secret"
	// zkNothing is how long it is looked for something that must not come.
	zkNothing = 100 * time.Millisecond
	zkPatient = 10 * time.Second
)

var openACL = []znode.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}}

// zkDigest is what a user's password proves, as it stands in an ACL.
func zkDigest(userPassword string) string {
	user, _, _ := strings.Cut(userPassword, ":")
	sum := sha1.Sum([]byte(userPassword))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// zkCluster is a cluster with a superuser and all four-letter words.
func zkCluster(t testing.TB) *processes {
	t.Helper()
	return startProcesses(t, 3, "auth: {super_digest: \""+zkDigest(zkSuper)+"\"}\nzookeeper: {words: ['*']}\n")
}

// zkConn is a client of the ZooKeeper port that hides nothing: requests go out as
// they are told to, and replies and events come back in the order in which they
// were sent.
type zkConn struct {
	t    testing.TB
	net  net.Conn
	host string

	session  session.ID
	password []byte
	timeout  time.Duration
	xid      int32
	events   []wire.Event // that came while a reply was waited for
	last     zxid.ID      // largest that a reply has shown
}

// zkDial connects without a handshake.
func zkDial(t testing.TB, host string) *zkConn {
	t.Helper()
	nc, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &zkConn{t: t, net: nc, host: host}
}

// zkOpen connects with a new session.
func zkOpen(t testing.TB, host string) *zkConn {
	t.Helper()
	c := zkDial(t, host)
	c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, Password: make([]byte, 16), HasReadOnly: true})
	if c.session == 0 {
		t.Fatal("no session")
	}
	return c
}

// zkResume connects with the session of another connection.
func (c *zkConn) resume(host string) *zkConn {
	c.t.Helper()
	n := zkDial(c.t, host)
	n.hello(&wire.ConnectRequest{Timeout: c.timeout, Session: c.session, Password: c.password, LastZxid: c.last})
	return n
}

// hello does the handshake.
func (c *zkConn) hello(q *wire.ConnectRequest) *wire.ConnectResponse {
	c.t.Helper()
	c.write(q.Append(nil))
	frame, err := c.read(zkPatient)
	if err != nil {
		c.t.Fatalf("handshake: %v", err)
	}
	var p wire.ConnectResponse
	if err := p.Decode(frame); err != nil {
		c.t.Fatal(err)
	}
	c.session, c.password, c.timeout = p.Session, p.Password, p.Timeout
	return &p
}

// write sends payloads as frames, in one packet.
func (c *zkConn) write(payloads ...[]byte) {
	c.t.Helper()
	var b []byte
	for _, p := range payloads {
		start := len(b)
		b = wire.EndFrame(append(wire.BeginFrame(b), p...), start)
	}
	c.raw(b)
}

func (c *zkConn) raw(b []byte) {
	c.t.Helper()
	if _, err := c.net.Write(b); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// read returns the next frame.
func (c *zkConn) read(patience time.Duration) ([]byte, error) {
	if err := c.net.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(c.net, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	_, err := io.ReadFull(c.net, b)
	return b, err
}

// closed says that the server has closed the connection, with nothing before it.
func (c *zkConn) closed(what string) {
	c.t.Helper()
	b, err := c.read(zkPatient)
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		c.t.Errorf("%s: the connection is open (%x, %v)", what, b, err)
	}
}

// frame is a request with the next number.
func (c *zkConn) frame(q *wire.Request) []byte {
	c.xid++
	return q.Append(wire.Header{Xid: c.xid, Type: q.Type}.Append(nil))
}

// send sends requests in one packet.
func (c *zkConn) send(qs ...wire.Request) {
	c.t.Helper()
	var frames [][]byte
	for i := range qs {
		frames = append(frames, c.frame(&qs[i]))
	}
	c.write(frames...)
}

// zkReply is a reply as it came.
type zkReply struct {
	wire.ReplyHeader
	wire.Reply
	record []byte
}

// reply takes the next reply, of a request of type t. Events before it are kept.
func (c *zkConn) reply(t wire.Type) zkReply {
	c.t.Helper()
	for {
		b, err := c.read(zkPatient)
		if err != nil {
			c.t.Fatalf("waiting for the reply to %s: %v", t, err)
		}
		h, record, err := wire.DecodeReplyHeader(b)
		if err != nil {
			c.t.Fatal(err)
		}
		if h.Xid == wire.XidEvent && t != wire.Ping {
			e, err := wire.DecodeEvent(record)
			if err != nil || int64(h.Zxid) != -1 || h.Err != wire.OK {
				c.t.Fatalf("event %+v, %v", h, err)
			}
			c.events = append(c.events, e)
			continue
		}
		r := zkReply{ReplyHeader: h, record: record}
		if h.Err == wire.OK {
			if err := r.Decode(t, record); err != nil {
				c.t.Fatalf("reply to %s: %v in %x", t, err, record)
			}
		} else if len(record) > 0 {
			c.t.Errorf("%d bytes behind error %d", len(record), h.Err)
		}
		if int64(h.Zxid) > 0 {
			if h.Zxid < c.last {
				c.t.Errorf("a reply shows %s after %s", h.Zxid, c.last)
			}
			c.last = max(c.last, h.Zxid)
		}
		return r
	}
}

// call sends a request and takes its reply.
func (c *zkConn) call(q wire.Request) zkReply {
	c.t.Helper()
	c.send(q)
	r := c.reply(q.Type)
	if r.Xid != c.xid {
		c.t.Fatalf("reply %d to request %d", r.Xid, c.xid)
	}
	return r
}

// event takes the next event, false if none comes for a while.
func (c *zkConn) event(patience time.Duration) (wire.Event, bool) {
	c.t.Helper()
	if len(c.events) > 0 {
		e := c.events[0]
		c.events = c.events[1:]
		return e, true
	}
	b, err := c.read(patience)
	if err != nil {
		return wire.Event{}, false
	}
	h, record, err := wire.DecodeReplyHeader(b)
	if err != nil || h.Xid != wire.XidEvent {
		c.t.Fatalf("reply %+v instead of an event, %v", h, err)
	}
	e, err := wire.DecodeEvent(record)
	if err != nil {
		c.t.Fatal(err)
	}
	return e, true
}

// wantEvents takes exactly these events, in this order.
func (c *zkConn) wantEvents(what string, want ...wire.Event) {
	c.t.Helper()
	for i, w := range want {
		if e, ok := c.event(zkPatient); !ok || e != w {
			c.t.Errorf("%s: event %d is %+v (%v), want %+v", what, i, e, ok, w)
		}
	}
	if e, ok := c.event(zkNothing); ok {
		c.t.Errorf("%s: event %+v too many", what, e)
	}
}

// Requests, by name.

func zkCreate(path, data string, flags int32) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Create, Path: path, Data: []byte(data), ACL: openACL, Flags: flags}}
}

func zkCreate2(path, data string, flags int32) wire.Request {
	q := zkCreate(path, data, flags)
	q.Type = wire.Create2
	return q
}

func zkSet(path, data string, version int32) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.SetData, Path: path, Data: []byte(data), Version: version}}
}

func zkDelete(path string, version int32) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Delete, Path: path, Version: version}}
}

func zkRead(t wire.Type, path string, watch bool) wire.Request {
	return wire.Request{Op: wire.Op{Type: t, Path: path, Watch: watch}}
}

func zkMulti(ops ...wire.Op) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Multi}, Ops: ops}
}

// must is call, for a request that has to succeed.
func (c *zkConn) must(q wire.Request) zkReply {
	c.t.Helper()
	r := c.call(q)
	if r.Err != wire.OK {
		c.t.Fatalf("%s %s: %s", q.Type, q.Path, r.Err)
	}
	return r
}

// wants is call, for a request that has to be answered with a code.
func (c *zkConn) wants(code wire.Code, q wire.Request) {
	c.t.Helper()
	if r := c.call(q); r.Err != code {
		c.t.Errorf("%s %q: %s, want %s", q.Type, q.Path, r.Err, code)
	}
}

// auth proves an identity.
func (c *zkConn) auth(scheme, secret string) {
	c.t.Helper()
	c.write((&wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: scheme, Secret: []byte(secret)}).
		Append(wire.Header{Xid: wire.XidAuth, Type: wire.Auth}.Append(nil)))
	if r := c.reply(wire.Auth); r.Xid != wire.XidAuth || r.Zxid != 0 || r.Err != wire.OK {
		c.t.Fatalf("auth: %+v", r.ReplyHeader)
	}
}

// zkWord asks with a four-letter word.
func zkWord(t testing.TB, host, word string) string {
	t.Helper()
	text, err := zkTryWord(host, word)
	if err != nil {
		t.Fatalf("%s: %v", word, err)
	}
	return text
}

// zkTryWord is zkWord for a server that may not be there.
func zkTryWord(host, word string) (string, error) {
	nc, err := net.Dial("tcp", host)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(zkPatient)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(nc, word); err != nil {
		return "", err
	}
	b, err := io.ReadAll(nc)
	return string(b), err
}

// zkDirs makes each test a folder of its own.
var zkDirs struct {
	mu sync.Mutex
	n  int
}

func (c *zkConn) dir() string {
	c.t.Helper()
	zkDirs.mu.Lock()
	zkDirs.n++
	path := fmt.Sprintf("/dir%d", zkDirs.n)
	zkDirs.mu.Unlock()
	c.must(zkCreate(path, "", 0))
	return path
}
