package server

import (
	"testing"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
)

// BenchmarkZooKeeperPipeline is one connection with 64 requests outstanding, over
// loopback and with a real node; client and server share the processors.
func BenchmarkZooKeeperPipeline(b *testing.B) {
	_, address := zkServer(b)
	zkOpen(b, address).must(zkCreateReq("/a", 0))
	for name, q := range map[string]wire.Request{"set": zkSetReq("/a", "0123456789"), "get": zkGetReq("/a")} {
		b.Run(name, func(b *testing.B) {
			c := zkOpen(b, address)
			const depth = 64
			var batch []byte
			for range depth {
				batch = append(batch, c.frames(q)...)
			}
			in := newZKInput(c.net)
			b.ReportAllocs()
			for sent := 0; sent < b.N; sent += depth {
				c.raw(batch)
				for range depth {
					if _, err := in.frame(1 << 20); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// BenchmarkZooKeeperRequest is what a request costs from its frame to its reply,
// without a network and a log.
func BenchmarkZooKeeperRequest(b *testing.B) {
	for name, q := range map[string]wire.Request{"set": zkSetReq("/a", "0123456789"), "get": zkGetReq("/a"), "exists": zkExistsReq("/none")} {
		b.Run(name, func(b *testing.B) {
			_, s, _ := zkPipe(b)
			c := s.hub.streams()[0].(*zkConn)
			h, record := wire.Header{Xid: 1, Type: q.Type}, q.Append(nil)
			b.ReportAllocs()
			for b.Loop() {
				if err := c.pipe.take(h, record, s.clock.now()); err != nil {
					b.Fatal(err)
				}
				c.out.take().release()
			}
		})
	}
}

// BenchmarkZooKeeperFireTenThousand is what a change costs under the machine's lock
// when ten thousand connections watch the node.
func BenchmarkZooKeeperFireTenThousand(b *testing.B) {
	s, n := fakeServer(b)
	conns := make([]*zkConn, 10_000)
	for i := range conns {
		conns[i] = newZKConn(s, nil, nil, guest{})
		s.hub.join(conns[i])
	}
	write := fsm.Command{Kind: fsm.CmdWrite, Write: mustWrite(b, s, set("/", "x"))}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s.hub.mu.Lock()
		for _, c := range conns {
			s.hub.watches.Add(c.sub, 0, "/", watch.OneShotData)
		}
		s.hub.mu.Unlock()
		b.StartTimer()
		n.Propose(&write, nopWaiter{})
		b.StopTimer()
		for _, c := range conns {
			p := c.out.take()
			if p.events != 1 {
				b.Fatalf("%d events", p.events)
			}
			p.release()
		}
		b.StartTimer()
	}
}
