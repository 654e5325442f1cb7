package zkimport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/wire"
	"github.com/coordd/coord/zxid"
)

// ErrUnreachable is returned when no server of the ensemble answers.
var ErrUnreachable = errors.New("cannot reach the ensemble")

// ErrAuth is returned when a server refuses the credentials.
var ErrAuth = errors.New("the ensemble refuses the credentials")

// SourceConfig says where an ensemble is and how to talk to it.
type SourceConfig struct {
	Hosts   []string // host:port of its servers, at least one
	Digests []string // user:password of each user to be; often the superuser's alone
	TLS     *tls.Config
	// Timeout bounds how long no server may answer until the ensemble is given
	// up; 0 is 15 s.
	Timeout time.Duration
}

// Source is an ensemble that is read from. It keeps one connection, to whichever
// server answers. When that breaks it goes on at another server, one that is not
// behind what was seen.
type Source struct {
	cfg  SourceConfig
	seen atomic.Int64 // newest transaction that an answer has shown

	mu   sync.Mutex // guards what follows, and is held while connecting
	conn *zkConn
	next int   // host to try next
	lost error // the ensemble was given up
}

// Attempt is one try to reach a server.
type Attempt struct {
	Host string
	Err  error
}

// UnreachableError says what became of each host. It is [ErrUnreachable].
type UnreachableError struct {
	Tried []Attempt // the last of each host
	Took  time.Duration
}

// Error implements error.
func (e *UnreachableError) Error() string {
	var b strings.Builder
	hosts := "1 host"
	if len(e.Tried) > 1 {
		hosts = fmt.Sprintf("%d hosts", len(e.Tried))
	}
	fmt.Fprintf(&b, "%v (%s tried in %.2f s)", ErrUnreachable, hosts, e.Took.Seconds())
	for _, a := range e.Tried {
		fmt.Fprintf(&b, "\n  %s   %v", a.Host, a.Err)
	}
	return b.String()
}

// Unwrap makes the error match ErrUnreachable.
func (e *UnreachableError) Unwrap() error { return ErrUnreachable }

// Open connects. The error is an [*UnreachableError], [ErrAuth] or the context's.
// What was written to the ensemble before Open is seen by all reads.
func Open(ctx context.Context, cfg SourceConfig) (*Source, error) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	s := &Source{cfg: cfg}
	if _, err := s.connection(ctx, nil); err != nil {
		return nil, err
	}
	if _, err := s.do(ctx, wire.Request{Op: wire.Op{Type: wire.Sync, Path: "/"}}); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close ends the connection. It may be called twice.
func (s *Source) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.close()
	}
}

// do asks the ensemble. The error is a wire.Code if a server has answered with
// one.
func (s *Source) do(ctx context.Context, q wire.Request) (*wire.Reply, error) {
	record := q.Append(nil)
	var broken *zkConn
	for {
		c, err := s.connection(ctx, broken)
		if err != nil {
			return nil, err
		}
		call := &call{typ: q.Type, record: record, done: make(chan struct{})}
		c.submit(call)
		select {
		case <-call.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if !call.lost {
			return &call.reply, call.err
		}
		broken = c
	}
}

// connection returns the one in use, or a new one if that is the broken one.
func (s *Source) connection(ctx context.Context, broken *zkConn) (*zkConn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost != nil || s.conn != nil && s.conn != broken {
		return s.conn, s.lost
	}
	if broken != nil {
		broken.wg.Wait()
	}
	c, err := s.connect(ctx)
	if err == nil {
		s.conn = c
	} else if ctx.Err() == nil {
		s.lost = err // the many calls under way need not each find out
	}
	return c, err
}

// connect tries one host after the other until the time is over.
func (s *Source) connect(ctx context.Context) (*zkConn, error) {
	began := time.Now()
	deadline := began.Add(s.cfg.Timeout)
	tried := make([]Attempt, len(s.cfg.Hosts))
	for round := 0; ; round++ {
		for range s.cfg.Hosts {
			at := s.next % len(s.cfg.Hosts)
			s.next++
			c, err := s.connectTo(ctx, s.cfg.Hosts[at])
			if err == nil || errors.Is(err, ErrAuth) || ctx.Err() != nil {
				return c, errors.Join(err, ctx.Err())
			}
			tried[at] = Attempt{s.cfg.Hosts[at], err}
		}
		fresh := s.seen.Load() == 0
		if fresh && round == 0 && refused(tried) || time.Now().After(deadline) {
			return nil, &UnreachableError{Tried: tried, Took: time.Since(began)}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// refused says that nobody listens at any of the hosts: to wait is of no use
// unless they have been there before.
func refused(tried []Attempt) bool {
	for _, a := range tried {
		var op *net.OpError
		if !errors.As(a.Err, &op) || op.Op != "dial" {
			return false
		}
	}
	return true
}

// The first steps at one server are bounded by its share of the time for all.
const minHandshake, maxHandshake = time.Second, 5 * time.Second

func (s *Source) connectTo(ctx context.Context, host string) (*zkConn, error) {
	limit := min(max(s.cfg.Timeout/time.Duration(len(s.cfg.Hosts)), minHandshake), maxHandshake)
	deadline := time.Now().Add(limit)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	nc, err := s.dial(ctx, host)
	if err != nil {
		return nil, err
	}
	c := &zkConn{host: host, nc: nc, reader: bufio.NewReaderSize(nc, 64<<10), last: s.saw}
	_ = nc.SetDeadline(deadline) // a connection that has none fails at its first use
	timeout, err := c.handshake(zxid.ID(s.seen.Load()))
	if err != nil {
		nc.Close()
		return nil, err
	}
	c.start(timeout)
	for _, d := range s.cfg.Digests {
		if err := c.authenticate(ctx, d); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (s *Source) dial(ctx context.Context, host string) (net.Conn, error) {
	if s.cfg.TLS == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", host)
	}
	return (&tls.Dialer{Config: s.cfg.TLS}).DialContext(ctx, "tcp", host)
}

func (c *zkConn) authenticate(ctx context.Context, digest string) error {
	q := wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: "digest", Secret: []byte(digest)}
	call := &call{typ: wire.Auth, record: q.Append(nil), done: make(chan struct{})}
	c.submit(call)
	select {
	case <-call.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if call.err != nil && !call.lost {
		return fmt.Errorf("%w: %w", ErrAuth, call.err)
	}
	return call.err
}

// saw notes the newest transaction seen.
func (s *Source) saw(z zxid.ID) {
	for {
		old := s.seen.Load()
		if int64(z) <= old || s.seen.CompareAndSwap(old, int64(z)) {
			return
		}
	}
}
