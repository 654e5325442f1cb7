package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/internal/tlsfiles"
)

// core is what the sessions of one client share.
type core struct {
	opts      *options
	endpoints []string
	tls       *tlsfiles.Source // nil without WithTLSFiles
	links     *links           // of calls outside of streams
	streams   *linkPool
	pulses    *pulses

	// seen is the highest zxid that any answer to this client has shown. No
	// later read may show less.
	seen atomic.Uint64

	// mu guards the fields below.
	mu        sync.Mutex
	sessions  map[*Session]struct{} // live ones; closed with the client
	closed    bool
	clusterID string // of the first Welcome; another cluster is refused
}

func newCore(endpoints []string, o *options) (*core, error) {
	c := &core{opts: o, endpoints: endpoints, sessions: map[*Session]struct{}{}}
	if !o.tlsFiles.Zero() {
		src, err := tlsfiles.Open(o.tlsFiles, 0, o.log)
		if err != nil {
			return nil, err
		}
		c.tls = src
	}
	c.links, c.streams, c.pulses = newLinks(c), newLinkPool(c), newPulses(c)
	return c, nil
}

// saw raises the highest zxid seen.
func (c *core) saw(z uint64) {
	for {
		old := c.seen.Load()
		if z <= old || c.seen.CompareAndSwap(old, z) {
			return
		}
	}
}

// cluster returns the id of the cluster this client belongs to, "" before the
// first answer, and takes over id if it is the first.
func (c *core) cluster(id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clusterID == "" {
		c.clusterID = id
	}
	return c.clusterID
}

func (c *core) add(s *Session) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.sessions[s] = struct{}{}
	return nil
}

func (c *core) remove(s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

// close ends all sessions at the same time and then the connections. It returns
// the sessions' errors.
func (c *core) close() error {
	c.mu.Lock()
	c.closed = true
	live := make([]*Session, 0, len(c.sessions))
	for s := range c.sessions {
		live = append(live, s)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	errs := make([]error, len(live))
	var wg sync.WaitGroup
	for i, s := range live {
		wg.Go(func() { errs[i] = s.Close(ctx) })
	}
	wg.Wait()
	c.links.close()
	if c.tls != nil {
		c.tls.Close()
	}
	return errors.Join(errs...)
}

// closeGrace bounds how long the end of a session is tried for although the
// caller does not wait any more: without it the session's ephemeral znodes
// would stay until it expires.
const closeGrace = 5 * time.Second
