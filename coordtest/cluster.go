package coordtest

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/memnet"
	"github.com/coordd/coord/server"
)

// Cluster is a running cluster. Its methods may be called from any goroutine; when
// something cannot be done they end the test, so call them from its goroutine.
type Cluster struct {
	t       testing.TB
	opts    options
	net     *memnet.Network
	local   *localcluster.Cluster
	servers []*host

	mu       sync.Mutex // guards below
	clients  map[*client.Client]*machine
	machines []*machine     // of all clients
	undo     []func()       // of disturbances, at the end
	looker   *client.Client // see Paths
}

// startTime bounds the start of a cluster, and what Cluster waits for otherwise.
const startTime = 30 * time.Second

// Start runs a cluster of one server until the test ends.
func Start(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	return StartCluster(t, 1, opts...)
}

// StartCluster runs a cluster of n servers until the test ends. It returns when
// all of them have a vote and serve clients. Servers are numbered from 0.
func StartCluster(t testing.TB, n int, opts ...Option) *Cluster {
	t.Helper()
	if n < 1 {
		t.Fatalf("coordtest: a cluster of %d servers", n)
	}
	c := &Cluster{t: t, opts: newOptions(opts), net: memnet.New(), clients: map[*client.Client]*machine{}}
	for i := range n {
		c.servers = append(c.servers, newHost(i))
	}
	c.net.DelayAll(c.opts.latency)
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	local, err := localcluster.Start(ctx, localcluster.Options{
		Servers: n, Dir: c.dataDir(), Net: c.net, Change: c.configure, Logger: c.opts.log,
	})
	if err != nil {
		t.Fatalf("coordtest: %v", err)
	}
	c.local = local
	t.Cleanup(c.close)
	if !c.until(startTime, c.allVote) {
		t.Fatalf("coordtest: not all of %d servers have a vote after %s", n, startTime)
	}
	return c
}

// dataDir is in memory where that is possible: no test is about real disks.
func (c *Cluster) dataDir() string {
	if c.opts.dir != "" {
		return c.opts.dir
	}
	dir, err := os.MkdirTemp("/dev/shm", "coordtest-")
	if err != nil {
		return c.t.TempDir()
	}
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// configure makes a server's configuration fit for a test.
func (c *Cluster) configure(cfg *server.Config) {
	c.opts.sessions(cfg)
	k := &cfg.Cluster
	k.LogStore = "boltdb" // works in fake time
	k.DiskReserve = -1
	k.StableBeforeVote = time.Millisecond
	if len(c.servers) == 1 { // nobody else to wait for
		k.Heartbeat, k.Election, k.Lease = aloneTime, aloneTime, aloneTime
	}
	c.host(k.Name).configure(c, cfg)
}

// aloneTime is how long a server that is alone waits for others before it leads.
const aloneTime = 40 * time.Millisecond

// allVote says that all servers are there, and know it.
func (c *Cluster) allVote() bool {
	for i := range c.servers {
		s := c.alive(i)
		if s == nil {
			return false
		}
		if st := s.Node().Status(); !st.Voter || !st.Ready {
			return false
		}
	}
	return true
}

// until polls for a condition.
func (c *Cluster) until(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// later runs f at the end of the test, before the servers end.
func (c *Cluster) later(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.undo = append(c.undo, f)
}

// close undoes what still disturbs, and ends clients and servers.
func (c *Cluster) close() {
	c.mu.Lock()
	undo := c.undo
	c.undo = nil
	var clients []*client.Client
	for cl := range c.clients {
		clients = append(clients, cl)
	}
	if c.looker != nil {
		clients = append(clients, c.looker)
	}
	c.mu.Unlock()
	for _, f := range undo {
		f()
	}
	var all sync.WaitGroup
	for _, cl := range clients {
		all.Go(func() { _ = cl.Close() }) // the test may have left it without a server
	}
	all.Wait()
	for _, h := range c.servers {
		all.Go(func() { c.stop(h) })
	}
	all.Wait()
}

// stop ends a server in order, or waits for the end of one that was killed.
func (c *Cluster) stop(h *host) {
	h.awaitEnd()
	if err := c.local.StopServer(h.index); err != nil {
		c.t.Errorf("coordtest: server %d: %v", h.index, err)
	}
	if err := h.surprise(); err != nil {
		c.t.Errorf("coordtest: server %d has cut itself off: %v", h.index, err)
	}
}
