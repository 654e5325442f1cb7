package coordtest

import (
	"context"
	"time"

	"github.com/coordd/coord/server"
)

// Servers is how many servers the cluster has.
func (c *Cluster) Servers() int { return len(c.servers) }

// Leader is the number of the server that leads, -1 while none does. It does not
// wait. Right after a cut it may be one that does not know yet that it leads no
// more.
func (c *Cluster) Leader() int {
	best, term := -1, uint64(0)
	for i := range c.servers {
		s := c.alive(i)
		if s == nil {
			continue
		}
		if st := s.Node().Status(); st.Leading && st.Term > term {
			best, term = i, st.Term
		}
	}
	return best
}

// alive is a running server, nil if there is none.
func (c *Cluster) alive(i int) *server.Server {
	h := c.servers[i]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return nil
	}
	return c.local.Server(i)
}

// AwaitLeader waits for a leader among the servers but those, and returns it. If
// there is none within 30 s the test ends.
func (c *Cluster) AwaitLeader(not ...int) int {
	c.t.Helper()
	leader := -1
	found := func() bool {
		leader = c.Leader()
		for _, i := range not {
			if i == leader {
				return false
			}
		}
		return leader >= 0
	}
	if !c.until(startTime, found) {
		c.t.Fatalf("coordtest: no leader within %s", startTime)
	}
	return leader
}

// Isolate cuts a server off from all others and from all clients, until heal. It
// goes on to run.
func (c *Cluster) Isolate(server int) (heal func()) {
	c.t.Helper()
	return c.undone(c.net.CutOff(c.server(server).name))
}

// Cut makes nothing pass between two servers until heal. What was on its way then
// arrives.
func (c *Cluster) Cut(a, b int) (heal func()) {
	c.t.Helper()
	return c.undone(c.net.Cut(c.server(a).name, c.server(b).name))
}

// StallDisk makes the writes of a server to its disk hang until resume. A server
// whose disk hangs for 5 s cuts itself off and ends, as a coordd process does;
// Restart brings it back.
func (c *Cluster) StallDisk(server int) (resume func()) {
	c.t.Helper()
	return c.undone(c.server(server).disk.Stall())
}

// StepClock moves the wall clock of a server by d, also back. Steps add up and
// stay over a restart. The cluster looks at wall clocks only when a leadership
// begins, and then believes the majority of them, so nothing need happen before.
func (c *Cluster) StepClock(server int, d time.Duration) {
	c.t.Helper()
	h := c.server(server)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step += d
}

// undone makes sure that a disturbance ends with the test.
func (c *Cluster) undone(undo func()) func() {
	c.later(undo)
	return undo
}

// Kill ends a server as kill -9 does: its connections break, it hands nothing
// over, and nothing more reaches its disk. It does nothing to one that is dead.
func (c *Cluster) Kill(server int) {
	c.t.Helper()
	c.kill(c.server(server))
}

func (c *Cluster) kill(h *host) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return
	}
	h.dead, h.raise = true, c.net.Down(h.name)
	// What is left of it needs some time to end, and nobody can see it do so.
	ended := make(chan struct{})
	h.ended = ended
	go func() { // Cluster.stop waits for it
		defer close(ended)
		_ = c.local.StopServer(h.index) // it does not end in order
	}()
}

// Restart starts a server with the data that it has, one that was killed or ended
// by itself, or kills it before. It returns when the server serves clients; if that
// takes more than 30 s, for want of a majority for instance, the test ends.
func (c *Cluster) Restart(server int) {
	c.t.Helper()
	c.Launch(server)
	ready := func() bool {
		s := c.alive(server)
		return s != nil && s.Node().Status().Ready
	}
	if !c.until(startTime, ready) {
		c.t.Fatalf("coordtest: server %d does not serve clients after %s", server, startTime)
	}
}

// Launch is Restart without the wait, for starting a majority that is dead.
func (c *Cluster) Launch(server int) {
	c.t.Helper()
	h := c.server(server)
	c.kill(h)
	h.awaitEnd()
	h.mu.Lock()
	h.dead, h.ended = false, nil
	h.raise()
	h.mu.Unlock()
	if err := c.local.StartServer(server); err != nil {
		c.t.Fatalf("coordtest: start server %d: %v", server, err)
	}
}

// patience bounds what is asked of the cluster.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), startTime)
}
