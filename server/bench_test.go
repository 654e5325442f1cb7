package server

import (
	"fmt"
	"testing"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/zxid"
)

// BenchmarkPipeline is one stream with 64 requests outstanding, over loopback
// and with a real node; client and server share the processors.
func BenchmarkPipeline(b *testing.B) {
	r := start(b, oneServer(b))
	r.open().must(create("/a", "x"))
	for name, request := range map[string]func(c *tester) *coordpb.Request{
		"set": func(c *tester) *coordpb.Request { c.seq++; return put(c.seq, set("/a", "0123456789")) },
		"get": func(c *tester) *coordpb.Request { c.id++; return ask(c.id, local("/a")) },
	} {
		b.Run(name, func(b *testing.B) {
			c := r.open()
			answered := 0
			c.mu.Lock()
			c.onMessage = func(m *coordpb.SessionReply) {
				answered += len(m.GetReplies())
				clear(c.replies)
			}
			c.mu.Unlock()
			const depth = 64
			for sent := 0; sent < b.N; sent += depth {
				batch := make([]*coordpb.Request, depth)
				for i := range batch {
					batch[i] = request(c)
				}
				c.send(batch...)
				c.wait("answers", func() bool { return answered >= sent+depth })
				c.acked = c.seq
			}
		})
	}
}

// BenchmarkFireTenThousand is what a change costs under the machine's lock when
// ten thousand streams watch the node.
func BenchmarkFireTenThousand(b *testing.B) {
	s, n := fakeServer(b)
	conns := make([]*conn, 10_000)
	for i := range conns {
		c := newConn(s, guest{})
		s.hub.join(c)
		s.hub.mu.Lock()
		if err := s.hub.addLocked(c, 1, watchInfo{path: "/", kind: watch.Node}); err != nil {
			b.Fatal(err)
		}
		s.hub.mu.Unlock()
		conns[i] = c
	}
	write := fsm.Command{Kind: fsm.CmdWrite, Write: mustWrite(b, s, set("/", "x"))}
	spare := make([]item, 0, 4)
	for b.Loop() {
		n.Propose(&write, nopWaiter{})
		b.StopTimer()
		for _, c := range conns {
			if got := c.out.take(spare[:0], false); len(got.items) != 1 {
				b.Fatal(fmt.Sprint(len(got.items), " events"))
			}
		}
		b.StartTimer()
	}
}

// BenchmarkResume is the replay of a long history for one watch, under the
// machine's read lock.
func BenchmarkResume(b *testing.B) {
	s, n := fakeServer(b)
	first := s.machine.Zxid()
	write := fsm.Command{Kind: fsm.CmdWrite, Write: mustWrite(b, s, set("/", "x"))}
	for range 10_000 {
		n.Propose(&write, nopWaiter{})
	}
	w := &coordpb.Watch{Path: "/other", Kind: coordpb.Watch_KIND_NODE, Since: uint64(first)}
	for b.Loop() {
		c := newConn(s, guest{})
		c.floor = zxid.ID(0)
		s.reader.submit([]*reading{newReading(c, &coordpb.Request{Id: 1, Watch: w}, s.clock.now())})
		s.hub.leave(c, 0)
	}
}
