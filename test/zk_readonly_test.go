package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// TestReadOnlyServerShowsWhatItKnows: with the majority gone, to those who asked
// for it.
func TestReadOnlyServerShowsWhatItKnows(t *testing.T) {
	t.Parallel()
	p := startProcesses(t, 3, "zookeeper: {read_only: true, words: ['*']}\n")
	left := p.follower()
	host := left.zookeeper()
	before := zkOpen(t, host)
	dir := before.dir()
	before.must(zkCreate(dir+"/a", "data", 0))
	if got := zkWord(t, host, "isro"); got != "rw" {
		t.Errorf("isro: %s", got)
	}
	for _, n := range p.nodes {
		if n != left {
			n.kill()
		}
	}
	before.closed("a connection from before")
	poll(t, 20*time.Second, "the server is read-only", func() error {
		if got := zkWord(t, host, "isro"); got != "ro" {
			return fmt.Errorf("isro: %s", got)
		}
		return nil
	})
	plain := zkDial(t, host)
	plain.write((&wire.ConnectRequest{Timeout: 10 * time.Second, HasReadOnly: true}).Append(nil))
	plain.closed("a client that wants to write")

	c := zkDial(t, host)
	hello := c.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, Session: before.session, Password: before.password, ReadOnly: true, HasReadOnly: true})
	if !hello.ReadOnly || hello.Session != before.session {
		t.Errorf("the old session: %+v", hello)
	}
	fresh := zkDial(t, host)
	if hello := fresh.hello(&wire.ConnectRequest{Timeout: 10 * time.Second, ReadOnly: true, HasReadOnly: true}); !hello.ReadOnly || hello.Session == 0 || hello.Timeout != 10*time.Second {
		t.Errorf("a new session: %+v", hello)
	}
	for _, c := range []*zkConn{c, fresh} {
		if r := c.must(zkRead(wire.GetData, dir+"/a", true)); string(r.Data) != "data" {
			t.Errorf("data %q", r.Data)
		}
		c.must(zkRead(wire.GetChildren, dir, false))
		for _, q := range []wire.Request{zkSet(dir+"/a", "x", -1), zkCreate(dir+"/b", "", 0), zkDelete(dir+"/a", -1), zkMulti(), {Op: wire.Op{Type: wire.Sync, Path: "/"}}} {
			c.wants(wire.NotReadOnly, q)
		}
		c.auth("digest", "u:p")
		c.must(zkRead(wire.Exists, dir, false))
	}
	ahead := zkDial(t, host)
	ahead.write((&wire.ConnectRequest{Timeout: 10 * time.Second, LastZxid: 1 << 62, ReadOnly: true, HasReadOnly: true}).Append(nil))
	ahead.closed("a client that has seen more")
	for _, n := range p.nodes {
		if n != left {
			n.start()
		}
	}
	c.closed("a read-only connection, with the majority back")
	p.waitReady(30 * time.Second)
	poll(t, 20*time.Second, "the session goes on", func() error {
		n := zkDial(t, host)
		n.write((&wire.ConnectRequest{Timeout: 10 * time.Second, Session: before.session, Password: before.password, LastZxid: before.last}).Append(nil))
		b, err := n.read(zkPatient)
		if err != nil {
			return err
		}
		var hello wire.ConnectResponse
		if err := hello.Decode(b); err != nil || hello.Session != before.session {
			return fmt.Errorf("%+v, %w", hello, err)
		}
		n.must(zkSet(dir+"/a", "again", -1))
		return nil
	})
}
