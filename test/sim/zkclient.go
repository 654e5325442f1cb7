package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// zkClient is a session on the ZooKeeper port, kept as ZooKeeper's own clients keep
// theirs: it sends signs of life, goes on at the next server when a connection
// breaks, and sets its watches again there. It records what becomes of the session
// and of its watches.
type zkClient struct {
	w    *world
	m    *machine
	rnd  *rand.Rand // of the goroutine that keeps the session
	stop context.CancelFunc
	kept sync.WaitGroup
	over chan struct{} // closed when the session is

	mu       sync.Mutex // guards below
	link     *zkLink    // nil: there is none
	changed  chan struct{}
	xid      int32
	id       session.ID // 0: not open yet
	password []byte
	timeout  time.Duration
	last     zxid.ID       // largest that was shown
	counted  time.Duration // when the newest request was sent that was answered
	armed    map[zkWatch]int
	closing  bool
	lost     int // connections
}

// zkWatch is a watch that fires once, and its value in zkClient.armed the number of
// its record.
type zkWatch struct{ path, what string }

// dialZK opens a session.
func (w *world) dialZK(m *machine, timeout time.Duration, rnd *rand.Rand) (*zkClient, error) {
	ctx, stop := context.WithCancel(context.Background())
	c := &zkClient{
		w: w, m: m, rnd: rnd, stop: stop, over: make(chan struct{}), changed: make(chan struct{}), timeout: timeout, armed: map[zkWatch]int{},
	}
	c.kept.Go(func() { c.keep(ctx) })
	opening, cancel := context.WithTimeout(ctx, w.cfg.paces(200))
	defer cancel()
	if _, err := c.connection(opening); err != nil {
		c.leave()
		return nil, fmt.Errorf("%s: no server opens a session: %w", m.host, err)
	}
	return c, nil
}

// patience is how long a server may be silent.
func (c *zkClient) patience() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timeout / 2
}

func (c *zkClient) nextXid() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.xid++
	return c.xid
}

// keep keeps the session connected until it is over, or ctx ends.
func (c *zkClient) keep(ctx context.Context) {
	at := c.rnd.IntN(len(c.w.hosts))
	unbroken := unbroken(c.w.cfg.Plan)
	for ctx.Err() == nil {
		c.m.awake()
		l, err := c.attach(ctx, c.w.server(at))
		switch {
		case errors.Is(err, errZKOver):
			c.ended(check.ByServer, c.w.history.Now(), check.Done)
			return
		case err == nil:
			c.ride(ctx, l, unbroken)
		}
		at++
		select {
		case <-c.over:
			return
		case <-ctx.Done():
		case <-time.After(c.w.cfg.paces(0.3)):
		}
	}
}

// attach connects to a server, with a new session or its own.
func (c *zkClient) attach(ctx context.Context, h *host) (*zkLink, error) {
	dialing, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	peer := h.running()
	nc, err := c.w.net.Dial(dialing, c.m.host, h.name+zkPort)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = nc.Close() })()
	l := newZKLink(c, nc)
	l.peer = peer
	c.mu.Lock()
	q := &wire.ConnectRequest{Session: c.id, Password: c.password, LastZxid: c.last, Timeout: c.timeout}
	c.mu.Unlock()
	if q.Session == 0 {
		q.Password = make([]byte, wire.PasswordBytes)
	}
	sent := c.w.history.Now()
	p, err := l.hello(q)
	if err != nil || p.Session == 0 {
		l.fail()
		if err == nil && q.Session != 0 {
			err = errZKOver
		}
		return nil, err
	}
	c.opened(p, sent)
	return l, nil
}

// zkPort is where servers listen.
const zkPort = ":2181"

// opened takes note of a handshake.
func (c *zkClient) opened(p *wire.ConnectResponse, sent time.Duration) {
	c.mu.Lock()
	first := c.id == 0
	c.id, c.password, c.timeout, c.counted = p.Session, p.Password, p.Timeout, max(c.counted, sent)
	c.mu.Unlock()
	if first {
		now := c.w.history.Now()
		c.w.history.Add(check.Record{Kind: check.Opened, Client: c.m.host, Session: p.Session, Begin: now, End: now, Timeout: p.Timeout})
	}
}

// ride uses a connection until it breaks, which it must not while its server is up if
// it is unbroken.
func (c *zkClient) ride(ctx context.Context, l *zkLink, unbroken bool) {
	c.setWatches(l)
	c.swap(l)
	stop := context.AfterFunc(ctx, func() { _ = l.net.Close() })
	broken := make(chan struct{})
	var pings sync.WaitGroup
	pings.Go(func() { c.ping(l, broken) })
	err := l.read()
	close(broken)
	stop()
	c.swap(nil)
	l.fail()
	pings.Wait()
	if ctx.Err() == nil {
		c.lose(l, err, unbroken)
	}
}

// unbroken says whether a schedule has only faults that break no connection to a
// server that is up: to ZooKeeper's clients a leader that changes is a delay.
func unbroken(plan []Step) bool {
	return !slices.ContainsFunc(plan, func(s Step) bool {
		return s.Kind != Kill && s.Kind != Transfer && s.Kind != Transfers && s.Kind != StepClock
	})
}

// swap makes another connection, or none, the one that requests go to.
func (c *zkClient) swap(l *zkLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link = l
	close(c.changed)
	c.changed = make(chan struct{})
}

// lose notes that a connection has broken.
func (c *zkClient) lose(l *zkLink, err error, unbroken bool) {
	c.mu.Lock()
	c.lost++
	closing := c.closing
	c.mu.Unlock()
	if closing {
		return
	}
	c.w.note("%s has lost its connection: %v", c.m.host, err)
	if p := l.peer; unbroken && p != nil && p == p.host.running() {
		c.w.wrong("%s has lost its connection to %s, which is up: %v", c.m.host, p.host.name, err)
	}
}

// ping sends a sign of life each sixth of the timeout.
func (c *zkClient) ping(l *zkLink, broken <-chan struct{}) {
	c.mu.Lock()
	tick := time.NewTicker(c.timeout / 6)
	c.mu.Unlock()
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-broken:
			return
		}
		c.m.awake()
		l.ping()
	}
}

// heard takes note of an answer to what was sent then, which shows a transaction.
func (c *zkClient) heard(sent time.Duration, z zxid.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted = max(c.counted, sent)
	if z < c.last && z != 0 {
		c.broken("the session %s is shown %s behind %s", c.id, z, c.last)
	}
	c.last = max(c.last, z)
}

func (c *zkClient) broken(format string, args ...any) {
	now := c.w.history.Now()
	c.w.history.Add(check.Record{Kind: check.Broken, Client: c.m.host, Begin: now, End: now, Detail: fmt.Sprintf(format, args...)})
}

// deadline is the time up to which the client can count on its session at least.
// A server answers pings at once, and sends the client away when the leader has not
// counted a sign of life for a third of the timeout; another sixth may lie between
// that and the one before.
func (c *zkClient) deadlineLocked() time.Duration { return c.counted + c.timeout*2/5 }

// ended records the end of the session, once.
func (c *zkClient) ended(reason string, begin time.Duration, outcome check.Outcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.over:
		return
	default:
	}
	now := c.w.history.Now()
	c.w.history.Add(check.Record{
		Kind: check.Ended, Client: c.m.host, Session: c.id, Begin: begin, End: now, Outcome: outcome,
		Reason: reason, Deadline: c.deadlineLocked(), Timeout: c.timeout,
	})
	c.disarmLocked()
	close(c.over)
}

// connection waits for one.
func (c *zkClient) connection(ctx context.Context) (*zkLink, error) {
	for {
		c.mu.Lock()
		l, changed := c.link, c.changed
		c.mu.Unlock()
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-c.over:
			return nil, errZKOver
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// call sends requests in one packet and waits for the answers. An error of its own
// is that none was sent; each call has another that says what became of it.
func (c *zkClient) call(ctx context.Context, qs ...wire.Request) ([]*zkCall, error) {
	l, err := c.connection(ctx)
	if err != nil {
		return nil, err
	}
	calls, err := l.submit(qs...)
	if err != nil {
		return nil, err
	}
	for _, k := range calls {
		select {
		case <-k.done:
		case <-ctx.Done():
			return calls, nil
		}
	}
	return calls, nil
}

// outcome is what is known of a request: nil if it was answered, which may be with a
// code.
func (k *zkCall) outcome() error {
	select {
	case <-k.done:
		return k.err
	default:
		return context.DeadlineExceeded
	}
}

// close ends the session.
func (c *zkClient) close(ctx context.Context) {
	begin := c.w.history.Now()
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	calls, err := c.call(ctx, wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	switch {
	case err != nil: // not sent: it ends when it has been silent
		c.leave()
	case calls[0].outcome() == nil:
		c.ended(check.ByClient, begin, check.Done)
	default:
		c.ended(check.ByClient, begin, check.Unknown)
	}
	c.leave()
}

// leave goes without a word.
func (c *zkClient) leave() {
	c.stop()
	c.kept.Wait()
	c.mu.Lock()
	open := c.id != 0
	c.mu.Unlock()
	if open {
		c.ended(check.ByClient, c.w.history.Now(), check.Unknown)
	}
}

// silent records that nothing is heard of the client from now on.
func (c *zkClient) silent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.w.history.Now()
	c.w.history.Add(check.Record{Kind: check.Silent, Client: c.m.host, Session: c.id, Begin: now, End: now, Timeout: c.timeout})
}
