package lock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/recipes/lock"
)

// BenchmarkHandover measures the time from the release of a lock to its grant to
// the next of so many waiters, over three servers in this process. Of the
// figures p50-ms is the one that counts; run it with -benchtime=300x.
func BenchmarkHandover(b *testing.B) {
	c, err := localcluster.Start(b.Context(), localcluster.Options{Servers: 3})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	for _, waiters := range []int{16, 256, 2000, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) { benchHandover(b, c.Target(), waiters) })
	}
}

const (
	benchClients  = 10
	benchSessions = 1000 // at most; waiters share them
)

type benchQueue struct {
	b        *testing.B
	watcher  *client.Client
	path     string
	sessions []*client.Session
	granted  chan *lock.Handle
	joined   int
	wg       sync.WaitGroup
}

func benchHandover(b *testing.B, target string, waiters int) {
	ctx, cancel := context.WithCancel(b.Context())
	q := &benchQueue{b: b, path: fmt.Sprintf("/bench/%d", waiters), granted: make(chan *lock.Handle, 1)}
	var clients []*client.Client
	for range benchClients {
		c, err := client.Dial(ctx, target, client.WithSessionTimeout(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	q.watcher = clients[0]
	defer q.wg.Wait()
	defer cancel()
	for i := range min(waiters, benchSessions) {
		s, err := clients[i%benchClients].NewSession(ctx, client.WithSessionTimeout(time.Minute))
		if err != nil {
			b.Fatal(err)
		}
		q.sessions = append(q.sessions, s)
	}
	q.join(ctx)
	holder := <-q.granted
	for q.joined <= waiters {
		for range min(200, waiters+1-q.joined) {
			q.join(ctx)
		}
		q.settle(ctx)
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := holder.Release(ctx); err != nil {
			b.Fatal(err)
		}
		holder = <-q.granted
		took = append(took, time.Since(began))
		q.joined--
		q.join(ctx)
		q.settle(ctx)
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*9/10]), "p90-ms")
}

// join puts one more waiter into the queue.
func (q *benchQueue) join(ctx context.Context) {
	s := q.sessions[q.joined%len(q.sessions)]
	q.joined++
	q.wg.Go(func() {
		h, err := lock.New(s.Client(), q.path).Acquire(ctx)
		switch {
		case err == nil:
			q.granted <- h
		case ctx.Err() == nil:
			q.b.Error(err)
		}
	})
}

// settle waits until all that joined stand in the queue.
func (q *benchQueue) settle(ctx context.Context) {
	for {
		st, _, err := q.watcher.Exists(ctx, q.path)
		if err != nil {
			q.b.Fatal(err)
		}
		if int(st.NumChildren) == q.joined {
			return
		}
		time.Sleep(time.Millisecond)
	}
}
