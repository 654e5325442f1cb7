package test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// TestZooKeeperPort goes through the protocol, byte by byte where it matters,
// through each of the servers.
func TestZooKeeperPort(t *testing.T) {
	t.Parallel()
	c := zkCluster(t)
	for i, n := range c.nodes {
		host, other := n.zookeeper(), c.nodes[(i+1)%len(c.nodes)].zookeeper()
		for name, f := range zkProtocol {
			t.Run(n.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f(t, host, other)
			})
		}
	}
}

// zkProtocol is what the port is asked, by subject.
var zkProtocol = map[string]func(t *testing.T, host, other string){
	"handshake": zkHandshake, "sessions": zkSessions, "moving": zkMoving, "create": zkCreates, "stat": zkStats,
	"versions": zkVersions, "delete": zkDeletes, "paths": zkPaths, "acl": zkACLs, "identities": zkIdentities,
	"reads": zkReads, "watches": zkWatches, "lasting watches": zkLastingWatches, "watches again": zkWatchesAgain,
	"multi": zkMultis, "order": zkOrder, "special nodes": zkSpecialNodes, "container and ttl": zkReaped,
	"words": zkWords, "bad frames": zkBadFrames, "large": zkLarge,
}

func zkHandshake(t *testing.T, host, _ string) {
	c := zkDial(t, host)
	c.write((&wire.ConnectRequest{Timeout: 10 * time.Second, HasReadOnly: true}).Append(nil))
	b, err := c.read(zkPatient)
	if err != nil || len(b) != 37 || !bytes.Equal(b[:8], []byte{0, 0, 0, 0, 0, 0, 0x27, 0x10}) || b[36] != 0 {
		t.Errorf("answer to a request with the read-only byte: %x, %v", b, err)
	}
	c = zkDial(t, host)
	c.write((&wire.ConnectRequest{Timeout: 10 * time.Second, Password: make([]byte, 16)}).Append(nil))
	if b, err := c.read(zkPatient); err != nil || len(b) != 36 {
		t.Errorf("answer to one without: %d bytes, %v", len(b), err)
	}
	for asked, granted := range map[time.Duration]time.Duration{
		0: 2 * time.Second, -time.Second: 2 * time.Second, time.Millisecond: 2 * time.Second, 2001 * time.Millisecond: 2001 * time.Millisecond, time.Hour: 5 * time.Minute,
	} {
		if p := zkDial(t, host).hello(&wire.ConnectRequest{Timeout: asked}); p.Timeout != granted {
			t.Errorf("asked for %s, got %s", asked, p.Timeout)
		}
	}
	// A client that has seen more than there is gets no answer: it goes elsewhere.
	c = zkDial(t, host)
	c.write((&wire.ConnectRequest{Timeout: 10 * time.Second, LastZxid: 1 << 62}).Append(nil))
	c.closed("a client from the future")
	// Requests may come in one packet with the handshake, and in pieces.
	c = zkDial(t, host)
	c.write((&wire.ConnectRequest{Timeout: 10 * time.Second}).Append(nil), c.frame(&wire.Request{Op: wire.Op{Type: wire.Exists, Path: "/"}}))
	if _, err := c.read(zkPatient); err != nil {
		t.Fatal(err)
	}
	c.reply(wire.Exists)
	q := zkRead(wire.Exists, "/", false)
	for _, b := range wire.EndFrame(append(wire.BeginFrame(nil), c.frame(&q)...), 0) {
		c.raw([]byte{b})
	}
	c.reply(wire.Exists)
}

func zkSessions(t *testing.T, host, other string) {
	c := zkOpen(t, host)
	dir := c.dir()
	c.must(zkCreate(dir+"/e", "", wire.FlagEphemeral))
	c.must(zkCreate(dir+"/f", "", wire.FlagEphemeral))
	if r := c.must(zkRead(wire.Exists, dir+"/e", false)); r.Stat.EphemeralOwner != c.session {
		t.Errorf("owner %s, session %s", r.Stat.EphemeralOwner, c.session)
	}
	watcher := zkOpen(t, other)
	watcher.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	watcher.must(zkRead(wire.GetChildren, dir, true))
	// A broken connection is not the end of a session, and a wrong password harms
	// nobody.
	c.net.Close()
	wrong := zkDial(t, host)
	if p := wrong.hello(&wire.ConnectRequest{Timeout: time.Second, Session: c.session, Password: make([]byte, 16), HasReadOnly: true}); p.Session != 0 || p.Timeout != 0 || len(p.Password) != 16 || !p.HasReadOnly {
		t.Errorf("wrong password: %+v", p)
	}
	wrong.closed("wrong password")
	c = c.resume(other)
	if c.session == 0 {
		t.Fatal("the session is gone")
	}
	c.must(zkRead(wire.Exists, dir+"/e", false))
	if p := c.resume(host); p.timeout != c.timeout {
		t.Errorf("timeout %s became %s", c.timeout, p.timeout)
	} else {
		c = p
	}
	// Closing takes the ephemerals away in one transaction, and what stands behind
	// it is dropped.
	closing := wire.Request{Op: wire.Op{Type: wire.CloseSession}}
	late := zkCreate(dir+"/late", "", 0)
	c.send(closing, late)
	r := c.reply(wire.CloseSession)
	c.closed("a closed session")
	watcher.wantEvents("close", wire.Event{Type: wire.EventChildren, Path: dir})
	watcher.must(wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}})
	if st := watcher.must(zkRead(wire.Exists, dir, false)).Stat; st.Pzxid != r.Zxid || st.NumChildren != 0 || st.Cversion != 4 {
		t.Errorf("after %s: %+v", r.Zxid, st)
	}
	if p := c.resume(host); p.session != 0 {
		t.Error("a closed session was resumed")
	}
	if p := zkDial(t, host).hello(&wire.ConnectRequest{Session: 0x7eee, Password: make([]byte, 16)}); p.Session != 0 {
		t.Error("a session that never was, was resumed")
	}
}

// A session that moves takes its writes with it: its former connection can do
// nothing any more, not even what it had sent before.
func zkMoving(t *testing.T, host, other string) {
	c := zkOpen(t, host)
	dir := c.dir()
	moved := c.resume(other)
	if moved.session != c.session {
		t.Fatal("not resumed")
	}
	_, _ = c.net.Write(wire.EndFrame(append(wire.BeginFrame(nil), c.frame(&wire.Request{Op: zkCreate(dir+"/ghost", "", 0).Op})...), 0))
	c.closed("the former connection")
	moved.wants(wire.NoNode, zkRead(wire.Exists, dir+"/ghost", false))
	moved.must(zkCreate(dir+"/real", "", wire.FlagEphemeral))
	// An identity belongs to the connection, and has to be proved again.
	moved.auth("digest", "u:p")
	secret := zkCreate(dir+"/secret", "", 0)
	secret.ACL = digestOnly("u:p")
	moved.must(secret)
	moved.must(zkRead(wire.GetData, dir+"/secret", false))
	again := moved.resume(host)
	again.wants(wire.NoAuth, zkRead(wire.GetData, dir+"/secret", false))
	again.auth("digest", "u:p")
	again.must(zkRead(wire.GetData, dir+"/secret", false))
}

func zkWords(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	c.must(zkRead(wire.GetData, dir, true))
	c.must(zkCreate(dir+"/e", "", wire.FlagEphemeral))
	id := "0x" + strings.TrimLeft(strings.TrimPrefix(c.session.String(), "0x"), "0")
	for word, parts := range map[string][]string{
		"ruok": {"^imok$"}, "isro": {"^rw$"},
		// go-zookeeper takes this form and no other.
		"srvr": {
			`^Zookeeper version: [A-Za-z0-9.\-]+, built on \d\d/\d\d/\d\d\d\d \d\d:\d\d [A-Z]+\n`, `Latency min/avg/max: \d+/\d+\.\d+/\d+\n`,
			`Received: \d+\nSent: \d+\nConnections: \d+\nOutstanding: \d+\nZxid: 0x[0-9a-f]+\nMode: (leader|follower)\nNode count: \d+\n$`,
		},
		"stat": {`Clients:\n( /127.0.0.1:\d+\[1\]\(queued=\d+,recved=\d+,sent=\d+\)\n)+\n`},
		"mntr": {`zk_version\t3\.`, `zk_server_state\t(leader|follower)\n`, `zk_znode_count\t\d+\n`, `zk_outstanding_requests\t\d+\n`, `zk_avg_latency\t\d+\.\d+\n`},
		"conf": {`^clientPort=\d+\n`, `serverId=[123]\n`, `minSessionTimeout=2000\nmaxSessionTimeout=300000\n`},
		"envi": {`^Environment:\nzookeeper.version=3\.\d+\.\d+`},
		"cons": {`sid=` + id + `,`},
		"dump": {`SessionTracker dump:\n`, `ephemeral nodes dump:\n`, regexp.QuoteMeta(id) + `:\n\t` + dir + `/e`},
		"wchs": {`\d+ connections watching \d+ paths\nTotal watches:\d+\n`},
		"wchp": {regexp.QuoteMeta(dir) + `\n(\t0x[0-9a-f]+\n)*\t` + id + `\n`},
		"wchc": {id + `\n(\t/.*\n)*\t` + dir + `\n`},
		"dirs": {`^datadir_size: \d+\nlogdir_size: \d+\n$`},
	} {
		got := zkWord(t, host, word)
		for _, p := range parts {
			if !regexp.MustCompile(p).MatchString(got) {
				t.Errorf("%s does not match %s:\n%.600s", word, p, got)
			}
		}
	}
	if got := zkWord(t, host, "nope"); got != "" {
		t.Errorf("an unknown word: %q", got)
	}
}

// Whatever is wrong with a frame ends its connection, or is answered, and nobody
// else notices.
func zkBadFrames(t *testing.T, host, _ string) {
	watcher := zkOpen(t, host)
	for name, b := range map[string][]byte{
		"empty": {0, 0, 0, 0}, "shorter than a header": {0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7}, "negative": {0xff, 0xff, 0xff, 0xfe},
		"longer than allowed": {0, 0x10, 0, 0}, "text": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		c := zkOpen(t, host)
		c.raw(b)
		c.closed(name)
	}
	cut := zkDial(t, host)
	cut.raw([]byte{0, 0, 0, 4, 0, 0, 0, 0})
	cut.closed("a handshake cut short")
	for _, typ := range []wire.Type{0, -1, 10, 13, 20, 99, 999} {
		c := zkOpen(t, host)
		c.send(wire.Request{Op: wire.Op{Type: typ}})
		b, err := c.read(zkPatient)
		h, _, derr := wire.DecodeReplyHeader(b)
		if err := errors.Join(err, derr); err != nil || h.Err != wire.Unimplemented || h.Zxid != ^zxid.ID(0) || len(b) != 16 {
			t.Errorf("operation %d: %+v, %v", typ, h, err)
		}
		c.closed("an unknown operation")
	}
	// A record that ends early is an error, and the connection lives on.
	c := zkOpen(t, host)
	for _, typ := range []wire.Type{wire.Create, wire.SetData, wire.Exists, wire.Multi, wire.SetWatches, wire.AddWatch} {
		c.write(append(wire.Header{Xid: 5, Type: typ}.Append(nil), 0, 0, 0, 9, 'x'))
		if r := c.reply(typ); r.Err != wire.MarshallingError || r.Xid != 5 {
			t.Errorf("%s cut short: %+v", typ, r.ReplyHeader)
		}
	}
	// Ids of requests are the client's business.
	for _, xid := range []int32{0, -3, 7, 7} {
		q := zkRead(wire.Exists, "/", false)
		c.write(q.Append(wire.Header{Xid: xid, Type: wire.Exists}.Append(nil)))
		if r := c.reply(wire.Exists); r.Xid != xid {
			t.Errorf("%d echoed as %d", xid, r.Xid)
		}
	}
	watcher.must(zkRead(wire.Exists, "/", false))
}

func zkLarge(t *testing.T, host, _ string) {
	c := zkOpen(t, host)
	dir := c.dir()
	// The largest frame is taken, one byte more is not.
	q := zkSet(dir, "", -1)
	room := wire.MaxFrameBytes - len(c.frame(&q))
	q.Data = bytes.Repeat([]byte{'x'}, room)
	c.must(q)
	if r := c.must(zkRead(wire.GetData, dir, false)); len(r.Data) != room || int(r.Stat.DataLength) != room {
		t.Errorf("%d bytes of %d", len(r.Data), room)
	}
	q.Data = append(q.Data, 'x')
	_, _ = c.net.Write(wire.EndFrame(append(wire.BeginFrame(nil), c.frame(&q)...), 0)) // it may be cut off while we write
	if _, err := c.read(zkPatient); err == nil {
		t.Error("a frame that is too long was answered")
	}
	// Replies have no limit.
	c = zkOpen(t, host)
	name := strings.Repeat("n", 3000)
	for i := 0; i < 500; i += 50 {
		var ops []wire.Op
		for range 50 {
			ops = append(ops, zkCreate(dir+"/"+name, "", wire.FlagSequential).Op)
		}
		c.must(zkMulti(ops...))
	}
	if r := c.must(zkRead(wire.GetChildren2, dir, false)); len(r.Names) != 500 {
		t.Errorf("%d children", len(r.Names))
	}
}

// A client that reads nothing, and one that says nothing, end; nobody else
// notices.
func TestStalledZooKeeperClientsHarmNobody(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 1, "limits: {queue_size: 1MiB}\n")
	host := p.nodes[0].zookeeper()
	good := zkOpen(t, host)
	dir := good.dir()
	silent, err := net.Dial("tcp", host) // no handshake: it is closed after 10 s
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	stalled := zkOpen(t, host)
	stalled.must(wire.Request{Op: wire.Op{Type: wire.AddWatch, Path: dir}, Mode: wire.AddPersistentRecursive})
	deadline := time.Now().Add(60 * time.Second)
	for n := 0; ; n++ {
		good.must(zkCreate(dir+"/"+strings.Repeat("x", 900), "", wire.FlagSequential))
		if n%100 == 0 && !strings.Contains(zkWord(t, host, "srvr"), "Connections: ") {
			t.Fatal("the server does not answer")
		}
		if n%100 == 0 && zkAlone(stalled) {
			break // its queue was full
		}
		if time.Now().After(deadline) {
			t.Fatal("the stalled client is still connected")
		}
	}
	if err := silent.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("the silent client: %d bytes, %v", n, err)
	}
	good.must(zkRead(wire.Exists, dir, false))
}

// zkAlone says whether a connection has been closed by the server although its
// client has not read all.
func zkAlone(c *zkConn) bool {
	q := zkRead(wire.Exists, "/", false)
	_, err := c.net.Write(wire.EndFrame(append(wire.BeginFrame(nil), c.frame(&q)...), 0))
	return err != nil
}
