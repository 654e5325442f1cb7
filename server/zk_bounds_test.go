package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
)

// TestFullDiskLetsLocksGo: what only takes away goes on, and who leaves may.
func TestFullDiskLetsLocksGo(t *testing.T) {
	for name, goes := range map[string]wire.Request{
		"delete":       zkDeleteReq("/a"),
		"multi":        {Op: wire.Op{Type: wire.Multi}, Ops: []wire.Op{{Type: wire.Check, Path: "/a", Version: -1}, {Type: wire.Delete, Path: "/a", Version: -1}}},
		"credential":   zkAuthReq("digest", "u:p"),
		"closeSession": {Op: wire.Op{Type: wire.CloseSession}},
		"read":         zkGetReq("/a"),
	} {
		t.Run(name, func(t *testing.T) {
			c, _, n := zkPipe(t)
			n.load(cluster.ErrDiskFull)
			if code, _ := c.call(goes); code != wire.OK {
				t.Errorf("%s", code)
			}
		})
	}
}

// TestHeldWriteIsNeitherLostNorRefused: it waits until the cluster takes it, and
// everything behind it does too, but for pings.
func TestHeldWriteIsNeitherLostNorRefused(t *testing.T) {
	for _, err := range []error{cluster.ErrOverloaded, &cluster.DiskFullError{Why: "no longer than a moment"}} {
		t.Run(err.Error(), func(t *testing.T) {
			c, s, n := zkPipe(t)
			n.load(err)
			const writes = 200
			for i := range writes {
				c.send(zkSetReq("/a", fmt.Sprint(i)))
			}
			c.send(zkGetReq("/a"))
			c.raw(zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
			if h, _ := c.next(); h.Xid != wire.XidPing {
				t.Fatalf("reply %d (%s) to what had to wait", h.Xid, h.Err)
			}
			n.mu.Lock()
			heard := n.heard
			n.mu.Unlock()
			if heard < writes {
				t.Errorf("%d signs of life, %d requests were read", heard, writes)
			}
			n.load(nil)
			for i := range int32(writes) {
				if code, _ := c.reply(c.xid-writes+i, wire.SetData); code != wire.OK {
					t.Fatalf("write %d: %s", i, code)
				}
			}
			if _, p := c.reply(c.xid, wire.GetData); string(p.Data) != fmt.Sprint(writes-1) {
				t.Errorf("the read behind them sees %q", p.Data)
			}
			if held := s.metrics.throttled.overload.Load(); held != 1 { // those behind it waited for it
				t.Errorf("%d writes counted as held back", held)
			}
		})
	}
}

// TestWaitingForTheClusterCostsLittle: however many requests wait, one timer looks
// whether they may go on.
func TestWaitingForTheClusterCostsLittle(t *testing.T) {
	c, _, n := zkPipe(t)
	n.load(cluster.ErrOverloaded)
	for range 1000 {
		c.send(zkSetReq("/a", "x"))
	}
	c.raw(zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil)))
	c.next()
	asked := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.loads
	}
	before, begin := asked(), time.Now()
	eventually(t, "it is looked again", func() bool { return asked() >= before+10 })
	took := time.Since(begin)
	if least := 8 * zkRetry; took < least {
		t.Errorf("looked ten times within %s, want no less than %s", took, least)
	}
}

// TestSessionIsHeldToItsWritesPerSecond on this port as on the other.
func TestSessionIsHeldToItsWritesPerSecond(t *testing.T) {
	c, s, _ := zkPipe(t, func(cfg *Config) { cfg.Limits.WritesPerSecond = 20 })
	begin := time.Now()
	for range 8 {
		c.send(zkSetReq("/a", "x"))
	}
	for i := range int32(8) {
		if code, _ := c.reply(c.xid-7+i, wire.SetData); code != wire.OK {
			t.Fatalf("%s", code)
		}
	}
	if took := time.Since(begin); took < 250*time.Millisecond { // two at once, then 20 a second
		t.Errorf("8 writes in %s", took)
	}
	if s.metrics.throttled.rate.Load() == 0 {
		t.Error("none is counted as held back")
	}
}

// TestClientThatReadsNothingCostsLittle: its answers are bounded, whatever it asks
// for.
func TestClientThatReadsNothingCostsLittle(t *testing.T) {
	ping := zkFrame(wire.Header{Xid: wire.XidPing, Type: wire.Ping}.Append(nil))
	for name, request := range map[string]func(c *zkTester) []byte{
		"pings":    func(*zkTester) []byte { return ping },
		"writes":   func(c *zkTester) []byte { return c.frames(zkSetReq("/a", "x")) },
		"refusals": func(c *zkTester) []byte { return zkHeaderOnly(c, wire.SetData) },
		"reads":    func(c *zkTester) []byte { return c.frames(zkGetReq("/a")) },
	} {
		t.Run(name, func(t *testing.T) {
			const queue = 256 << 10
			c, s, _ := zkPipe(t, func(cfg *Config) { cfg.Limits.QueueBytes = queue })
			var most int
			done := make(chan struct{})
			go func() {
				defer close(done)
				chunk := bytes.Repeat(request(c), 2000)
				for {
					if err := c.net.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
						return
					}
					if _, err := c.net.Write(chunk); err != nil {
						return // it is not read any more
					}
				}
			}()
			for stop := false; !stop; {
				select {
				case <-done:
					stop = true
				case <-time.After(time.Millisecond):
				}
				for _, st := range s.hub.streams() {
					most = max(most, st.(*zkConn).out.size())
				}
			}
			if most > queue {
				t.Errorf("%d bytes of answers waited", most)
			}
		})
	}
}

// TestManyReadsInOneAreBounded: one request cannot ask for gigabytes.
func TestManyReadsInOneAreBounded(t *testing.T) {
	c, _, _ := zkPipe(t, func(cfg *Config) { cfg.Limits.QueueBytes = 1 << 20; cfg.Limits.OpsPerMulti = 50 })
	c.must(zkSetReq("/a", strings.Repeat("x", 100_000)))
	many := func(n int) wire.Request {
		q := wire.Request{Op: wire.Op{Type: wire.MultiRead}}
		for range n {
			q.Ops = append(q.Ops, wire.Op{Type: wire.GetData, Path: "/a"})
		}
		return q
	}
	if p := c.must(many(10)); len(p.Results) != 10 || len(p.Results[9].Reply.Data) != 100_000 {
		t.Errorf("%d results", len(p.Results))
	}
	for _, n := range []int{11, 50, 51, 20_000} {
		if code, _ := c.call(many(n)); code != wire.BadArguments {
			t.Errorf("%d reads: %s", n, code)
		}
	}
}

// TestSilentConnectionKeepsNothing of what it has sent and got.
func TestSilentConnectionKeepsNothing(t *testing.T) {
	c, s, _ := zkPipe(t)
	for range 20 {
		c.send(zkSetReq("/a", strings.Repeat("x", 500_000)), zkGetReq("/a"))
		c.reply(c.xid-1, wire.SetData)
		c.reply(c.xid, wire.GetData)
	}
	own := s.hub.streams()[0].(*zkConn)
	eventually(t, "it is silent", func() bool { return own.waiting() == 0 && own.out.size() == 0 })
	own.pipe.mu.Lock()
	defer own.pipe.mu.Unlock()
	own.out.mu.Lock()
	defer own.out.mu.Unlock()
	if own.pipe.scratch.Data != nil || own.pipe.heldBytes != 0 || own.out.buf != nil {
		t.Errorf("kept: %d bytes of a request, %d held, buffer %v", len(own.pipe.scratch.Data), own.pipe.heldBytes, own.out.buf)
	}
}

// TestOutcomeThatNobodyKnowsEndsTheConnection: ZooKeeper's clients take that for
// what it is, and an error code for "not done".
func TestOutcomeThatNobodyKnowsEndsTheConnection(t *testing.T) {
	c, s, n := zkPipe(t)
	own := s.hub.streams()[0].(*zkConn)
	n.hold()
	c.send(zkSetReq("/a", "x"))
	n.outstanding(1)
	own.pipe.mu.Lock()
	seq := own.pipe.seq - 1
	own.pipe.mu.Unlock()
	own.Applied(&fsm.Result{Line: own.line, Seq: seq, Kind: fsm.CmdWrite, Status: fsm.StatusRepeat, Err: session.ErrUnknownOutcome})
	if b, err := c.read(); err == nil {
		t.Errorf("answered %x", b)
	}
	n.mu.Lock()
	n.queue = nil
	n.mu.Unlock()
}
