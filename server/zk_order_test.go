package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// TestRefusalKeepsItsPlaceInTheOrder: also what this server refuses by itself is
// answered behind the writes in front of it, which are still on their way.
func TestRefusalKeepsItsPlaceInTheOrder(t *testing.T) {
	long := "/" + strings.Repeat("x", 5000)
	for name, refused := range map[string]struct {
		frame func(c *zkTester) []byte
		code  wire.Code
	}{
		"a write over a limit":      {func(c *zkTester) []byte { return c.frames(zkSetReq(long, "x")) }, wire.BadArguments},
		"a record that ends early":  {func(c *zkTester) []byte { return zkHeaderOnly(c, wire.SetData) }, wire.MarshallingError},
		"a read that is unreadable": {func(c *zkTester) []byte { return zkHeaderOnly(c, wire.GetData) }, wire.MarshallingError},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, n := zkPipe(t)
			n.hold()
			c.send(zkSetReq("/a", "1"))
			first := c.xid
			c.raw(refused.frame(c))
			n.outstanding(1)
			c.raw(zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
			if h, _ := c.next(); h.Xid != wire.XidPing { // it is read behind the refusal
				t.Fatalf("reply %d (%s) before the write is done", h.Xid, h.Err)
			}
			n.release()
			if code, _ := c.reply(first, wire.SetData); code != wire.OK {
				t.Errorf("the write: %s", code)
			}
			if code, _ := c.reply(first+1, wire.SetData); code != refused.code {
				t.Errorf("the refusal: %s", code)
			}
		})
	}
}

func zkHeaderOnly(c *zkTester, typ wire.Type) []byte {
	c.xid++
	return zkFrame(wire.Header{Xid: c.xid, Type: typ}.Append(nil))
}

// TestReadBetweenWritesSeesThoseBeforeIt and no others, however deep the pipeline
// and whatever one entry of the log holds.
func TestReadBetweenWritesSeesThoseBeforeIt(t *testing.T) {
	c, _, _ := zkPipe(t)
	const depth = 64
	var qs []wire.Request
	for i := range depth {
		qs = append(qs, zkSetReq("/a", fmt.Sprint(i)), zkGetReq("/a"))
	}
	c.send(qs...)
	xid := c.xid - int32(len(qs))
	var shown zxid.ID
	for i := range qs {
		h, record := c.next()
		if h.Xid != xid+int32(i)+1 || h.Err != wire.OK || h.Zxid < shown {
			t.Fatalf("reply %d: %+v after %s", i, h, shown)
		}
		shown = h.Zxid
		var p wire.Reply
		if err := p.Decode(qs[i].Type, record); err != nil {
			t.Fatal(err)
		}
		if qs[i].Type == wire.GetData && string(p.Data) != fmt.Sprint(i/2) {
			t.Fatalf("read %d sees %s", i/2, p.Data)
		}
	}
}

// TestWriteIsNotOfferedBeforeTheReadsInFrontOfIt are executed.
func TestWriteIsNotOfferedBeforeTheReadsInFrontOfIt(t *testing.T) {
	c, _, n := zkPipe(t)
	n.hold()
	c.send(zkSetReq("/a", "1"), zkGetReq("/a"), zkSetReq("/a", "2"))
	n.outstanding(1)
	c.raw(zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
	if h, _ := c.next(); h.Xid != wire.XidPing {
		t.Fatalf("reply %d", h.Xid)
	}
	n.outstanding(1) // still: all three have been read
	n.release()
	c.reply(c.xid-2, wire.SetData)
	if _, p := c.reply(c.xid-1, wire.GetData); string(p.Data) != "1" {
		t.Errorf("the read between sees %q", p.Data)
	}
	c.reply(c.xid, wire.SetData)
}

// TestNothingIsDoneBehindTheEndOfAConnection: what a client has sent behind a
// credential that proves nothing is not done in the name of somebody else.
func TestNothingIsDoneBehindTheEndOfAConnection(t *testing.T) {
	for name, last := range map[string]func(c *zkTester) []byte{
		"a scheme that is not known":     func(c *zkTester) []byte { return c.frames(zkAuthReq("kerberos", "x")) },
		"a credential over the limit":    func(c *zkTester) []byte { return c.frames(zkAuthReq("digest", strings.Repeat("x", 2000))) },
		"an operation that is not known": func(c *zkTester) []byte { return zkHeaderOnly(c, 999) },
		"the end of the session":         func(c *zkTester) []byte { return zkHeaderOnly(c, wire.CloseSession) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := fakeServer(t)
			address := zkServe(t, s)
			c := zkOpen(t, address)
			c.raw(append(last(c), c.frames(zkCreateReq("/behind", 0))...))
			c.ended()
			other := zkOpen(t, address)
			if code, _ := other.call(zkExistsReq("/behind")); code != wire.NoNode {
				t.Errorf("what stood behind was done: %s", code)
			}
		})
	}
}

// TestManyCredentialsEndTheConnection and not the server.
func TestManyCredentialsEndTheConnection(t *testing.T) {
	c, _, _ := zkPipe(t)
	for i := range 4*maxAuths - 1 { // one is the address
		if code, _ := c.call(zkAuthReq("digest", fmt.Sprint("u:", i))); code != wire.OK {
			t.Fatalf("credential %d: %s", i, code)
		}
	}
	if p := c.must(wire.Request{Op: wire.Op{Type: wire.WhoAmI}}); len(p.Clients) != 4*maxAuths {
		t.Errorf("%d identities", len(p.Clients))
	}
	c.send(zkAuthReq("digest", "one:more"))
	c.ended()
}

// TestEventsComeBeforeWhatTheyTellOf: of a change a client hears before any reply,
// a ping's too, that shows its transaction.
func TestEventsComeBeforeWhatTheyTellOf(t *testing.T) {
	s, _ := fakeServer(t)
	address := zkServe(t, s)
	writer := zkOpen(t, address)
	writer.must(zkCreateReq("/a", 0))
	c := zkOpen(t, address)
	for range 200 {
		watched := zkGetReq("/a")
		watched.Watch = true
		c.must(watched)
		writer.send(zkSetReq("/a", "x"))
		var shown zxid.ID
		for {
			c.raw(zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
			h, _ := c.next()
			if h.Xid == wire.XidEvent {
				break
			}
			shown = max(shown, h.Zxid)
		}
		done, _ := writer.next()
		if shown >= done.Zxid {
			t.Fatalf("before the event of %s a ping shows %s", done.Zxid, shown)
		}
		if h, _ := c.next(); h.Xid != wire.XidPing || h.Zxid < done.Zxid {
			t.Fatalf("behind the event of %s a ping shows %s", done.Zxid, h.Zxid)
		}
	}
}
