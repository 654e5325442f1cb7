package client

import (
	"slices"
	"sync"
	"time"
)

// maxStreams is how many sessions share one connection: as many streams as any
// HTTP/2 server or proxy is expected to take.
const maxStreams = 100

// linkPool lets the streams of a client's sessions share connections, so that a
// thousand sessions do not need a thousand of them. Their heartbeats go other
// ways ([pulses]). A session never waits for the health of a connection: one that
// has disappointed anybody is retired, and gets no new streams.
//
// It is safe for concurrent use.
type linkPool struct {
	core *core

	// mu guards open, and users of each link. In open are the links that take
	// new streams.
	mu   sync.Mutex
	open map[string][]*link
}

func newLinkPool(c *core) *linkPool { return &linkPool{core: c, open: map[string][]*link{}} }

// take returns a connection to an endpoint for one stream. release must follow.
func (lp *linkPool) take(endpoint string) (*link, error) {
	lp.mu.Lock()
	defer lp.mu.Unlock()
	for _, l := range lp.open[endpoint] {
		if l.users < maxStreams {
			l.users++
			return l, nil
		}
	}
	l, err := lp.core.newLink(endpoint)
	if err != nil {
		return nil, err
	}
	l.users = 1
	lp.open[endpoint] = append(lp.open[endpoint], l)
	return l, nil
}

// release gives back what take returned. The last user's closes the connection.
func (lp *linkPool) release(l *link) {
	lp.mu.Lock()
	l.users--
	last := l.users == 0
	if last {
		lp.retireLocked(l)
	}
	lp.mu.Unlock()
	if last {
		l.close()
	}
}

// retire keeps new streams off a connection that has failed: a fresh one may do
// better. Who is on it stays.
func (lp *linkPool) retire(l *link) {
	lp.mu.Lock()
	defer lp.mu.Unlock()
	lp.retireLocked(l)
}

// silent keeps new streams off all connections to an endpoint that are older than
// a silence which began at a certain time: what made one of them dead may have
// done it to all.
func (lp *linkPool) silent(endpoint string, began time.Time) {
	lp.mu.Lock()
	defer lp.mu.Unlock()
	for _, l := range slices.Clone(lp.open[endpoint]) {
		if l.made.Before(began) {
			lp.retireLocked(l)
		}
	}
}

func (lp *linkPool) retireLocked(l *link) {
	left := slices.DeleteFunc(lp.open[l.endpoint], func(o *link) bool { return o == l })
	if lp.open[l.endpoint] = left; len(left) == 0 {
		delete(lp.open, l.endpoint)
	}
}
