package test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// counters is a load in which each client counts in a znode of its own. The
// version of a znode and the number in it prove how often a write was applied.
type counters struct {
	t       testing.TB
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	clients []*counter
}

// counter is one client. Its fields are read once it has stopped, except those
// that are atomic.
type counter struct {
	c       *client.Client
	path    string
	applied int64
	last    atomic.Int64 // when the last write was answered, ns since start
	longest atomic.Int64 // longest time between two answers, ns, since resetPause
	err     error
}

// startCounters opens n sessions, each at a server of its client's choice, that
// write without a pause until stop.
func startCounters(t testing.TB, endpoints []string, n int, opts ...client.Option) *counters {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &counters{t: t, cancel: cancel}
	t.Cleanup(cancel)
	for i := range n {
		dialCtx, done := context.WithTimeout(ctx, 20*time.Second)
		c, err := client.Dial(dialCtx, strings.Join(endpoints, ","), append([]client.Option{client.WithSessionTimeout(20 * time.Second)}, opts...)...)
		done()
		if err != nil {
			t.Fatal(err)
		}
		k := &counter{c: c, path: fmt.Sprintf("/counter-%d", i)}
		if _, err := c.Create(ctx, k.path, []byte("0")); err != nil {
			t.Fatal(err)
		}
		w.clients = append(w.clients, k)
	}
	start := time.Now()
	for _, k := range w.clients {
		k.last.Store(int64(time.Since(start)))
		w.wg.Go(func() { k.count(ctx, start) })
	}
	return w
}

func (k *counter) count(ctx context.Context, start time.Time) {
	for ctx.Err() == nil {
		next := k.applied + 1
		st, err := k.c.Set(context.WithoutCancel(ctx), k.path, []byte(strconv.FormatInt(next, 10)), k.applied)
		if err == nil && st.Version != next {
			err = fmt.Errorf("set %d made version %d", next, st.Version)
		}
		if err != nil {
			k.err = err
			return
		}
		k.applied = next
		now := int64(time.Since(start))
		k.longest.Store(max(k.longest.Load(), now-k.last.Swap(now)))
	}
}

// resetPause forgets the longest pause so far.
func (w *counters) resetPause() {
	for _, k := range w.clients {
		k.longest.Store(0)
	}
}

// longestPause is the longest time that any client waited for an answer since
// resetPause.
func (w *counters) longestPause() time.Duration {
	var d int64
	for _, k := range w.clients {
		d = max(d, k.longest.Load())
	}
	return time.Duration(d)
}

// total is the number of writes answered so far, of all clients.
func (w *counters) progress() (marks []int64) {
	for _, k := range w.clients {
		marks = append(marks, k.last.Load())
	}
	return marks
}

// waitProgress waits until every client has had an answer after the call.
func (w *counters) waitProgress(limit time.Duration) {
	w.t.Helper()
	before := w.progress()
	poll(w.t, limit, "an answer for every client", func() error {
		for i, now := range w.progress() {
			if now == before[i] {
				return fmt.Errorf("client %d has none", i)
			}
		}
		return nil
	})
}

// stop ends the load and checks that no call failed and that every write was
// applied exactly once.
func (w *counters) stop() {
	w.t.Helper()
	w.cancel()
	w.wg.Wait()
	for i, k := range w.clients {
		if k.err != nil {
			w.t.Errorf("client %d: after %d writes: %v", i, k.applied, k.err)
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		n, err := k.c.Get(ctx, k.path)
		cancel()
		if err != nil {
			w.t.Errorf("client %d: %v", i, err)
			continue
		}
		if n.Stat.Version != k.applied || string(n.Data) != strconv.FormatInt(k.applied, 10) {
			w.t.Errorf("client %d: %d writes were answered, but version is %d and data %q", i, k.applied, n.Stat.Version, n.Data)
		}
		if err := k.c.Close(); err != nil {
			w.t.Errorf("client %d: close: %v", i, err)
		}
	}
}

// median of some durations.
func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}
