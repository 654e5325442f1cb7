package coordtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/client"
)

// machine is what a client runs on: a host of the network, and a clock.
type machine struct {
	host string
	tap  *tap

	mu      sync.Mutex // guards below
	began   time.Time
	pauses  int
	stopped time.Duration // what the clock shows while there are pauses
}

// newMachine makes a machine for one client.
func (c *Cluster) newMachine() *machine {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &machine{host: fmt.Sprintf("client-%d", len(c.machines)+1), began: time.Now()}
	m.tap = &tap{cut: func() { c.net.Reset(m.host) }}
	c.machines = append(c.machines, m)
	return m
}

// bootAge is what the clock of a machine shows when it is made: a client must not
// take the moment 0 for something special.
const bootAge = time.Hour

// now is the clock of the machine.
func (m *machine) now() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pauses > 0 {
		return m.stopped
	}
	return bootAge + time.Since(m.began)
}

// pause stops the clock until resume. Then it shows the time that it would show
// if it had not stood still.
func (m *machine) pause() (resume func()) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pauses++
	m.stopped = now
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pauses--
	})
}

func (c *Cluster) optionsOf(m *machine) []client.Option {
	return []client.Option{
		client.WithClock(m.now),
		client.WithLogger(c.opts.log),
		client.WithGRPCOptions(
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return c.net.Dial(ctx, m.host, address)
			}),
			grpc.WithChainStreamInterceptor(m.tap.stream),
			grpc.WithChainUnaryInterceptor(m.tap.unary),
		),
	}
}

// Target is the cluster as client.Dial takes it, with DialOptions.
func (c *Cluster) Target() string { return c.local.Target() }

// DialOptions make a client reach this cluster, for code that dials itself. Each
// client needs its own: they are a machine for it. Who dials also closes, before
// the test ends.
func (c *Cluster) DialOptions() []client.Option { return c.optionsOf(c.newMachine()) }

// Dial connects a client with a session, on a machine of its own. It is closed
// when the test ends. If the cluster does not take it within 30 s, the test ends.
// With client.WithClock among opts its clock is the caller's, and Pause does not
// stop it.
func (c *Cluster) Dial(opts ...client.Option) *client.Client {
	c.t.Helper()
	m := c.newMachine()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	cl, err := client.Dial(ctx, c.Target(), append(c.optionsOf(m), opts...)...)
	if err != nil {
		c.t.Fatalf("coordtest: %v", err)
	}
	c.mu.Lock()
	c.clients[cl] = m
	c.mu.Unlock()
	return cl
}

// machineOf finds the machine that a client runs on: one of Dial, or one that has
// dialed with DialOptions and has a session.
func (c *Cluster) machineOf(cl *client.Client) *machine {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.clients[cl]; m != nil {
		return m
	}
	id := cl.Session().ID()
	for _, m := range c.machines {
		if id != 0 && m.tap.knows(id) {
			return m
		}
	}
	c.t.Fatal("coordtest: the client was made neither by Dial nor with DialOptions, or has no session")
	return nil
}
