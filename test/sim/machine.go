package sim

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/client"
)

// machine is what a client runs on: a host of the network, and a clock that
// stands still while its process is paused.
type machine struct {
	host string
	born time.Time
	// target is what it dials; "" for all servers.
	target string

	mu      sync.Mutex // guards below
	stopped time.Duration
	resumed chan struct{} // closed when it goes on; nil: it runs
}

// machineAge is what the clock of a new machine shows: 0 must not be special.
const machineAge = time.Hour

func newMachine(host string) *machine { return &machine{host: host, born: time.Now()} }

// now is the machine's clock.
func (m *machine) now() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumed != nil {
		return m.stopped
	}
	return machineAge + time.Since(m.born)
}

// pause stops the clock until resume, if it runs; then it jumps to the present.
func (m *machine) pause() (resume func()) {
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.resumed != nil {
		return func() {}
	}
	resumed := make(chan struct{})
	m.stopped, m.resumed = now, resumed
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.resumed = nil
		close(resumed)
	})
}

// awake returns when the process is not paused.
func (m *machine) awake() {
	m.mu.Lock()
	resumed := m.resumed
	m.mu.Unlock()
	if resumed != nil {
		<-resumed
	}
}

// dial connects a client from a machine of its own.
func (w *world) dial(host string, timeout time.Duration) (*client.Client, error) {
	return w.dialFrom(newMachine(host), "", timeout)
}

// dialFrom connects a client of a machine. Programs with an identity end the
// session that they had before.
func (w *world) dialFrom(m *machine, identity string, timeout time.Duration) (*client.Client, error) {
	patience := 200.0
	if m.target != "" {
		patience = 900 // all that it knows may be away together
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.cfg.paces(patience))
	defer cancel()
	c, err := client.Dial(ctx, cmp.Or(m.target, w.target()),
		client.WithClock(m.now), client.WithLogger(w.clientLog), client.WithSessionTimeout(timeout), client.WithSessionName(m.host), client.WithIdentity(identity),
		w.history.Tap(),
		client.WithRetry(client.Backoff{Min: w.cfg.paces(0.25), Max: w.cfg.paces(5)}),
		client.WithGRPCOptions(grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return w.net.Dial(ctx, m.host, address)
		})))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.host, err)
	}
	return c, nil
}
