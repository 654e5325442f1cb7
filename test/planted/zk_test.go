//go:build planted

package planted

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
)

// zkConn is one connection of a ZooKeeper client.
type zkConn struct {
	w       *world
	conn    net.Conn
	xid     int32
	session session.ID
	secret  []byte
}

// zkDial opens a session, or moves that of an older connection, whose host goes on
// to know nothing of it.
func (w *world) zkDial(server int, old *zkConn) *zkConn {
	w.t.Helper()
	conn, err := w.net.Dial(w.soon(patience), "zk", w.hosts[server].name+":2181")
	if err != nil {
		w.t.Fatal(err)
	}
	w.must("deadline", conn.SetDeadline(time.Now().Add(patience)))
	c := &zkConn{w: w, conn: conn}
	q := wire.ConnectRequest{Timeout: 10 * time.Second}
	if old != nil {
		q.Session, q.Password = old.session, old.secret
	}
	c.write(q.Append(nil))
	var r wire.ConnectResponse
	w.must("handshake", r.Decode(c.read()))
	c.session, c.secret = r.Session, r.Password
	return c
}

func (c *zkConn) write(payload []byte) {
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))
	_, err := c.conn.Write(append(frame, payload...))
	c.w.must("write", err)
}

func (c *zkConn) read() []byte {
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		c.w.must("read", err)
		return nil
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(c.conn, frame)
	c.w.must("read", err)
	return frame
}

// send sends a set and does not wait. It returns the record of it.
func (c *zkConn) send(path, data string) check.Record {
	c.xid++
	q := wire.Request{Op: wire.Op{Type: wire.SetData, Path: path, Data: []byte(data), Version: -1}}
	c.write(q.Append(wire.Header{Xid: c.xid, Type: q.Type}.Append(nil)))
	now := c.w.h.Now()
	return check.Record{
		Kind: check.Set, Client: "zk", Session: c.session, Path: path, Data: data, Want: client.AnyVersion,
		Begin: now, End: now, Outcome: check.Unknown,
	}
}

// loseGeneration leaves two writes on their way at a server that is cut off, moves
// the session to another one, and writes there. What comes late must not be done.
func loseGeneration(w *world) {
	lead := w.awaitLeader(-1)
	w.create(w.client("a"), "/a", "one", 0)
	time.Sleep(time.Second)
	from, to := others(lead)[0], others(lead)[1]
	old := w.zkDial(from, nil)
	defer old.conn.Close()
	heal := w.isolate(from)
	lost := []check.Record{old.send("/a", "early one"), old.send("/a", "early two")}
	time.Sleep(5 * latency)
	for _, r := range lost {
		r.End = w.h.Now()
		w.h.Add(r)
	}
	time.Sleep(time.Millisecond)
	now := w.zkDial(to, old)
	defer now.conn.Close()
	r := now.send("/a", "late")
	reply := now.read()
	_, body, err := wire.DecodeReplyHeader(reply)
	w.must("reply", err)
	var p wire.Reply
	w.must("reply", p.Decode(wire.SetData, body))
	r.Outcome, r.End = check.Done, w.h.Now()
	r.Zxid, r.Stat = p.Stat.Mzxid, check.Stat{Czxid: p.Stat.Czxid, Mzxid: p.Stat.Mzxid, Version: p.Stat.Version}
	w.h.Add(r)
	heal()
	time.Sleep(time.Second)
}
