package coordtest

import (
	"context"
	"errors"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/session"
)

// Expire ends a session as silence for its timeout would: when it returns, its
// ephemeral znodes are gone. The client is told, if it can be reached. A session
// that has ended already stays as it is.
func (c *Cluster) Expire(s *client.Session) {
	c.t.Helper()
	c.ExpireID(s.ID())
}

// ExpireID is Expire for a session of which only the number is known.
func (c *Cluster) ExpireID(id client.SessionID) {
	c.t.Helper()
	ctx, cancel := patience()
	defer cancel()
	for {
		err := c.expireAt(ctx, c.AwaitLeader(), id)
		switch {
		case err == nil, errors.Is(err, session.ErrExpired), errors.Is(err, session.ErrClosed), errors.Is(err, session.ErrUnknown):
			return
		case ctx.Err() != nil:
			c.t.Fatalf("coordtest: expire session %s: %v", id, err)
		}
	}
}

func (c *Cluster) expireAt(ctx context.Context, server int, id session.ID) error {
	s := c.alive(server)
	if s == nil {
		return cluster.ErrNotLeader
	}
	return s.Node().Expire(ctx, id)
}

// DropReply makes the next write of a client lose its reply: the cluster commits
// it, and then the client's connections break. A write that is on its way already
// keeps its reply. Several calls drop as many.
func (c *Cluster) DropReply(cl *client.Client) {
	c.t.Helper()
	c.machineOf(cl).tap.arm()
}

// Pause stops a client as SIGSTOP stops its process: it sends and receives nothing
// and its clock stands still, so it does not notice that it loses its session. At
// resume the clock jumps to the present. The goroutines of the test go on: what
// they do before resume is what a process does right after a pause, before it
// has looked at anything.
func (c *Cluster) Pause(cl *client.Client) (resume func()) {
	c.t.Helper()
	m := c.machineOf(cl)
	start, thaw := m.pause(), c.net.Freeze(m.host)
	return c.undone(func() { start(); thaw() })
}

// Break breaks the connections of a client, as a proxy does that is restarted.
// What was on its way in them is lost. The client may connect again at once.
func (c *Cluster) Break(cl *client.Client) {
	c.t.Helper()
	c.net.Reset(c.machineOf(cl).host)
}

// Partition cuts a client off from all servers until heal. Its clock goes on, so
// it notices that it loses its session.
func (c *Cluster) Partition(cl *client.Client) (heal func()) {
	c.t.Helper()
	return c.undone(c.net.CutOff(c.machineOf(cl).host))
}
