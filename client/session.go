package client

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// Session is the unit of liveness: its ephemeral znodes live as long as it does.
// It is safe for concurrent use.
//
// The session of a client made with [WithoutSession] has no id, no deadline and
// never expires.
type Session struct {
	core     *core
	open     openOptions
	plain    bool // WithoutSession
	ctx      context.Context
	cancel   context.CancelCauseFunc // of ctx
	stop     context.CancelFunc      // of the session's own goroutines
	ready    chan struct{}           // closed when the cluster has accepted the session
	finished chan struct{}           // closed when it is over
	wg       sync.WaitGroup
	states   stateQueue

	// deadline on core.opts.now; 0 = none yet. Only raised, except when a
	// server grants a shorter timeout.
	deadline atomic.Int64

	// mu guards everything below. Never held over I/O or a callback.
	mu          sync.Mutex
	id          SessionID
	secret      []byte
	nonce       []byte
	nonceSent   time.Duration // when the nonce was first sent; 0 = never
	takeOver    uint64
	connection  uint64 // newest connection number used
	unapplied   uint64 // of an ended session, the first write number that was not done; 0: not known
	timeout     time.Duration
	limits      *coordpb.Limits
	established bool
	state       State
	closing     bool
	told        bool          // the cluster itself said that it is over
	end         *SessionError // not nil once it is over
	failure     error         // why Dial fails, if it was never established
	authLost    bool          // the newest answer refused our credentials

	conn    *conn
	line    line
	outbox  []*call          // reads and watches to send
	calls   map[uint64]*call // reads and watches without answer, sent or not
	watches map[uint64]*watcher
	all     map[*watcher]struct{}
	held    []*call   // refused for a passing reason, to be sent again
	heldTil time.Time // not before this
	lastID  uint64
	dropped int  // calls abandoned since the queues were swept
	idle    bool // nothing was sent since the supervisor went to rest
	beats   beats
	lastAck time.Time
	stalled time.Duration
	tried   map[string]Attempt
}

// openOptions are the options that each session has for itself.
type openOptions struct {
	timeout  time.Duration
	name     string
	identity string
	listener func(State)
}

func (o *options) session() openOptions {
	return openOptions{o.timeout, o.name, o.identity, o.listener}
}

// newSession starts the goroutines of a session; whoever calls it waits for
// ready or finished.
func newSession(c *core, o openOptions, plain bool) (*Session, error) {
	s := &Session{
		core: c, open: o, plain: plain,
		ready: make(chan struct{}), finished: make(chan struct{}),
		line: newLine(), calls: map[uint64]*call{}, watches: map[uint64]*watcher{},
		all: map[*watcher]struct{}{}, tried: map[string]Attempt{}, idle: true,
	}
	if err := c.add(s); err != nil {
		return nil, err
	}
	s.nonce = newNonce()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	own, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.states.start(o.listener)
	s.wg.Go(func() { s.maintain(own) })
	if !plain {
		s.wg.Go(func() { s.watchDeadline(own) })
	}
	return s, nil
}

func newNonce() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it does not fail
	return b
}

// ID names the session for ever. It is the zxid of the transaction that opened
// it, so a later session has a larger one.
func (s *Session) ID() SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout is what the cluster has granted.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Name is what operators see.
func (s *Session) Name() string { return s.open.name }

// State says where the session stands now.
func (s *Session) State() State {
	s.checkDeadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Server is the name of the server that serves the session, "" while none does.
func (s *Session) Server() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return ""
	}
	return s.conn.server
}

// Now is the clock that deadlines are measured on: the time since some fixed
// moment, machine sleep included where the system can tell.
func (s *Session) Now() time.Duration { return s.core.opts.now() }

// DeadlineAt is the deadline on the clock of [Session.Now]; 0 for a session
// without one.
func (s *Session) DeadlineAt() time.Duration { return time.Duration(s.deadline.Load()) }

// Deadline is the moment until which no server can have expired the session for
// silence: the newest answered heartbeat was sent one timeout before it. It
// moves on while the session lives. Deliberate ends (Close, an administrator, a
// take-over, a restore) may come earlier. It is zero for a client without a
// session.
func (s *Session) Deadline() time.Time {
	d := s.DeadlineAt()
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d - s.Now())
}

// Context is done when the session has expired or was closed;
// context.Cause is then a *SessionError. Its Err and Done look at the deadline
// themselves, so that they are right at once after a pause of the process.
func (s *Session) Context() context.Context { return sessionContext{s.ctx, s} }

type sessionContext struct {
	context.Context
	s *Session
}

func (c sessionContext) Err() error {
	c.s.checkDeadline()
	return c.Context.Err()
}

func (c sessionContext) Done() <-chan struct{} {
	c.s.checkDeadline()
	return c.Context.Done()
}

// Client returns a client whose calls run in this session. Closing it closes
// this session only.
func (s *Session) Client() *Client { return &Client{core: s.core, session: s, view: true} }
