package test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// The benchmarks here measure whole clusters of processes on this machine. One
// run of each is meant (-benchtime 1x); what they report stands in
// docs/performance.md.

const million = 1_000_000

// BenchmarkMillionZnodes loads a million znodes of 100 bytes through the client
// and reports the memory of a server, the longest time that a write waits while
// all servers write a snapshot, and the time from kill -9 of all until a write
// is answered.
func BenchmarkMillionZnodes(b *testing.B) {
	for b.Loop() {
		c := startProcesses(b, 3, "session: {max: 10m}\n")
		cl := dial(b, c.endpoints(), client.WithSessionTimeout(5*time.Minute))
		start := time.Now()
		loadZnodes(b, cl, million)
		b.ReportMetric(million/time.Since(start).Seconds(), "loaded/s")
		var rss int64
		for _, p := range c.nodes {
			rss = max(rss, p.stats(b).RssBytes)
		}
		b.ReportMetric(float64(rss)/(1<<20), "RSS-MiB")
		b.ReportMetric(stallDuringSnapshot(b, c, cl).Seconds()*1000, "stall-ms")
		for _, p := range c.nodes {
			p.kill()
		}
		start = time.Now()
		for _, p := range c.nodes {
			p.start()
		}
		if _, err := cl.Set(b.Context(), "/load", nil, client.AnyVersion); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(start).Seconds(), "restart-s")
		c.end()
	}
}

// loadZnodes makes n znodes of 100 bytes below 100 parents.
func loadZnodes(b *testing.B, cl *client.Client, n int) {
	ctx := b.Context()
	if _, err := cl.Create(ctx, "/load", nil); err != nil {
		b.Fatal(err)
	}
	const parents, inFlight = 100, 500
	for i := range parents {
		if _, err := cl.Create(ctx, fmt.Sprintf("/load/%02d", i), nil); err != nil {
			b.Fatal(err)
		}
	}
	slots := make(chan struct{}, inFlight)
	var failed atomic.Pointer[error]
	data := make([]byte, 100)
	for i := range n {
		slots <- struct{}{}
		err := cl.WriteAsync(func(_ []client.OpResult, err error) {
			if err != nil {
				failed.Store(&err)
			}
			<-slots
		}, client.OpCreate(fmt.Sprintf("/load/%02d/node-%06d", i%parents, i), data))
		if err != nil {
			b.Fatal(err)
		}
	}
	for range inFlight {
		slots <- struct{}{}
	}
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
}

// stallDuringSnapshot is the longest time that a write took while every server
// wrote a snapshot, less the median without one.
func stallDuringSnapshot(b *testing.B, c *processes, cl *client.Client) time.Duration {
	var snapshots sync.WaitGroup
	for _, p := range c.nodes {
		snapshots.Go(p.snapshot)
	}
	done := make(chan struct{})
	go func() { snapshots.Wait(); close(done) }()
	var longest time.Duration
	for i := 0; ; i++ {
		select {
		case <-done:
			b.Logf("%d writes during the snapshots", i)
			return longest
		default:
		}
		start := time.Now()
		if _, err := cl.Set(b.Context(), fmt.Sprintf("/load/%02d", i%100), nil, client.AnyVersion); err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(start))
	}
}

// BenchmarkLeaderLoss reports the longest pause of eight writing clients when
// the leader is killed, and when it is stopped in order.
func BenchmarkLeaderLoss(b *testing.B) {
	for name, end := range map[string]func(*process){
		"kill": (*process).kill,
		"stop": func(p *process) { p.stop() },
	} {
		b.Run(name, func(b *testing.B) {
			c := startProcesses(b, 3, "")
			w := startCounters(b, c.endpoints(), 8)
			var pauses []time.Duration
			for b.Loop() {
				for range 20 {
					w.waitProgress(maxPause)
					lead := c.leader()
					w.resetPause()
					end(lead)
					w.waitProgress(maxPause)
					pauses = append(pauses, w.longestPause())
					lead.start()
					c.waitReady(30 * time.Second)
				}
			}
			w.stop()
			var most time.Duration
			for _, p := range pauses {
				most = max(most, p)
			}
			b.ReportMetric(median(pauses).Seconds()*1000, "median-ms")
			b.ReportMetric(most.Seconds()*1000, "max-ms")
		})
	}
}

// BenchmarkLoneWrite reports the time of one write at a time through the leader
// and through a follower.
func BenchmarkLoneWrite(b *testing.B) {
	c := startProcesses(b, 3, "")
	lead, follow := c.leader(), c.follower()
	setup := dial(b, c.endpoints())
	if _, err := setup.Create(b.Context(), "/n", nil); err != nil {
		b.Fatal(err)
	}
	for name, p := range map[string]*process{"leader": lead, "follower": follow} {
		b.Run(name, func(b *testing.B) {
			cl := dial(b, []string{p.grpc()})
			var took []time.Duration
			for b.Loop() {
				for range 1000 {
					start := time.Now()
					if _, err := cl.Set(b.Context(), "/n", nil, client.AnyVersion); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(start))
				}
			}
			b.ReportMetric(median(took).Seconds()*1000, "median-ms")
		})
	}
}

// BenchmarkHandover reports the time from the start of a release until the next
// holder knows, with different numbers of waiters behind it.
func BenchmarkHandover(b *testing.B) {
	for _, waiters := range []int{16, 256, 1000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			c := startProcesses(b, 3, "")
			for b.Loop() {
				took := handovers(b, c, waiters)
				b.ReportMetric(median(took).Seconds()*1000, "median-ms")
			}
		})
	}
}

// handovers keeps a queue of waiters full and times handovers.
func handovers(b *testing.B, c *processes, waiters int) []time.Duration {
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	granted := make(chan *lock.Handle)
	clients := make([]*client.Client, 10)
	for i := range clients {
		clients[i] = dial(b, c.endpoints())
	}
	watcher := dial(b, c.endpoints())
	for i := range waiters {
		cl := clients[i%len(clients)]
		s, err := cl.NewSession(ctx, client.WithSessionTimeout(60*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		m := lock.New(cl, "/locks/busy", lock.WithSession(s))
		wg.Go(func() {
			for ctx.Err() == nil {
				h, err := m.Acquire(ctx)
				if err != nil {
					return
				}
				select {
				case granted <- h:
				case <-ctx.Done():
				}
			}
		})
	}
	poll(b, time.Minute, "a full queue", func() error {
		st, _, err := watcher.Exists(ctx, "/locks/busy")
		if err == nil && int(st.NumChildren) < waiters {
			err = fmt.Errorf("%d waiters", st.NumChildren)
		}
		return err
	})
	var took []time.Duration
	h := <-granted
	for range 300 {
		start := time.Now()
		released := make(chan error, 1)
		go func() { released <- h.Release(ctx) }()
		next := <-granted
		took = append(took, time.Since(start))
		if err := <-released; err != nil {
			b.Fatal(err)
		}
		h = next
	}
	return took
}
