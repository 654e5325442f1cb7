package coordtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coord/internal/stall"
	"github.com/coordd/coord/server"
)

// host is what a server runs on: its disk, its clock, and whether it is dead. It
// outlives the starts of the server.
type host struct {
	index int
	name  string

	disk stall.Disk

	mu    sync.Mutex // guards below
	step  time.Duration
	dead  bool
	ended chan struct{} // closed when nothing of the killed server runs; nil: not killed
	raise func()        // lets the dead server's host onto the network again
	wrong error         // why the server has cut itself off, without a stall
}

func newHost(i int) *host { return &host{index: i, name: fmt.Sprintf("n%d", i+1)} }

// host returns the host of a server by its name.
func (c *Cluster) host(name string) *host {
	for _, h := range c.servers {
		if h.name == name {
			return h
		}
	}
	return nil // the names are made by the same rule
}

// server returns a server's host by its number.
func (c *Cluster) server(i int) *host {
	c.t.Helper()
	if i < 0 || i >= len(c.servers) {
		c.t.Fatalf("coordtest: no server %d: there are %d, from 0", i, len(c.servers))
	}
	return c.servers[i]
}

// configure puts the server's disk, clock and end into the hands of the test.
func (h *host) configure(c *Cluster, cfg *server.Config) {
	k := &cfg.Cluster
	k.BeforeWrite = h.beforeWrite
	k.Clock.Wall = func() time.Time { return time.Now().Add(h.clockStep()) }
	k.Fatal = func(err error) {
		h.failed(err)
		c.kill(h) // a process would have ended
	}
}

// failed notes why a server has cut itself off.
func (h *host) failed(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.dead && !h.disk.Stalled() {
		h.wrong = err
	}
}

// surprise is the reason of an end that the test has not asked for.
func (h *host) surprise() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

// awaitEnd waits until nothing of a killed server runs.
func (h *host) awaitEnd() {
	h.mu.Lock()
	ended := h.ended
	h.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

func (h *host) clockStep() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.step
}

var errDead = errors.New("the server was killed")

// beforeWrite waits while the disk is stalled. Nothing that a server does after
// it was killed reaches its disk.
func (h *host) beforeWrite() error {
	h.disk.Wait(nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return errDead
	}
	return nil
}
