package test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// TestResumedWatchSeesEveryChangeOnce follows a subtree through broken
// connections, moves to other servers and killed leaders, and checks that each
// change was seen exactly once and in order, unless the watch said Resync.
func TestResumedWatchSeesEveryChangeOnce(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	px, addresses := proxies(t, c.endpoints())
	writer, watcher := dial(t, c.endpoints()), dial(t, addresses)
	const nodes, rounds = 8, 12_500 // 100,000 changes
	if _, err := writer.Create(ctx, "/w", nil); err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		if _, err := writer.Create(ctx, fmt.Sprintf("/w/%d", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	f := &follower{nodes: nodes, rounds: rounds, versions: map[string]int64{}, ready: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- f.follow(ctx, watcher) }()
	<-f.ready
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			for n := range rounds {
				if _, err := writer.Set(ctx, fmt.Sprintf("/w/%d", i), nil, int64(n)); err != nil {
					t.Errorf("write %d of node %d: %v", n, i, err)
					return
				}
			}
		})
	}
	writing := make(chan struct{})
	go func() { wg.Wait(); close(writing) }()
	disturbed := breakThings(c, px, writing)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events, %d resyncs, %d disturbances", f.events, f.resyncs, disturbed)
	if disturbed < 3 {
		t.Errorf("only %d disturbances: the test shows little", disturbed)
	}
}

// breakThings cuts the watcher's connections, and every fourth time kills the
// leader, until the writing has ended.
func breakThings(c *processes, px []*proxy, writing <-chan struct{}) (times int) {
	for {
		select {
		case <-writing:
			return times
		case <-time.After(300 * time.Millisecond):
		}
		times++
		for _, p := range px {
			p.cut()
		}
		if times%4 == 0 {
			lead := c.leader()
			lead.kill()
			lead.start()
			c.waitReady(30 * time.Second)
		}
	}
}

// follower checks the events of one watch.
type follower struct {
	nodes, rounds   int
	versions        map[string]int64 // last version seen
	ready           chan struct{}
	events, resyncs int
	last            client.Zxid
}

func (f *follower) follow(ctx context.Context, c *client.Client) error {
	started := false
	for ev, err := range c.Watch(ctx, "/w", client.Recursive(), client.Initial(client.ReadDefault)) {
		switch {
		case err != nil:
			return err
		case !started:
			started = true
			close(f.ready)
			continue
		case ev.Type == client.EventResync:
			f.resyncs++
			if err := f.reread(ctx, c); err != nil {
				return err
			}
		default:
			if err := f.see(ev); err != nil {
				return err
			}
		}
		if f.complete() {
			return nil
		}
	}
	return context.Cause(ctx)
}

func (f *follower) see(ev client.Event) error {
	f.events++
	if ev.Zxid < f.last {
		return fmt.Errorf("event of %s after one of %s", ev.Zxid, f.last)
	}
	f.last = ev.Zxid
	if ev.Type != client.EventChanged {
		return fmt.Errorf("unexpected %s of %s", ev.Type, ev.Path)
	}
	want := f.versions[ev.Path] + 1
	if ev.Stat.Version < want && f.resyncs > 0 {
		return nil // read already when the watch asked to
	}
	if ev.Stat.Version != want {
		return fmt.Errorf("%s: version %d was seen, want %d", ev.Path, ev.Stat.Version, want)
	}
	f.versions[ev.Path] = want
	return nil
}

// reread takes the present state, as a user has to after a Resync.
func (f *follower) reread(ctx context.Context, c *client.Client) error {
	for i := range f.nodes {
		path := fmt.Sprintf("/w/%d", i)
		st, _, err := c.Exists(ctx, path)
		if err != nil {
			return err
		}
		f.versions[path] = max(f.versions[path], st.Version)
	}
	return nil
}

func (f *follower) complete() bool {
	for _, v := range f.versions {
		if v != int64(f.rounds) {
			return false
		}
	}
	return len(f.versions) == f.nodes
}
