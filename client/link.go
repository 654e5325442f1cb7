package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/internal/pooledread"
)

const (
	// maxReplyBytes bounds one message of a server: a page of children or of a
	// walk is the largest there is.
	maxReplyBytes = 64 << 20
	// windowBytes is the flow control window of a connection and of a stream:
	// enough for a round trip's worth of small replies on a fast network.
	windowBytes = 1 << 20
)

// link is one gRPC connection to one endpoint. It never moves to another
// address: which server to talk to is the session's decision.
type link struct {
	endpoint string
	made     time.Time
	cc       *grpc.ClientConn
	users    int // streams of sessions on it; guarded by linkPool.mu

	// mu guards err, the newest reason why dialing or the handshake failed:
	// gRPC tells it only as text.
	mu  sync.Mutex
	err error
}

// newLink makes a connection that is dialed at its first use.
func (c *core) newLink(endpoint string) (*link, error) {
	l := &link{endpoint: endpoint, made: time.Now()}
	dialer := new(net.Dialer)
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(c.credentials(l)),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, "tcp", addr)
			l.failed(err)
			if err != nil {
				return nil, err
			}
			return l.listen(conn, closedAtOnce), nil
		}),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
	}, c.opts.grpc...)
	cc, err := grpc.NewClient("passthrough:///"+endpoint, opts...)
	if err != nil {
		return nil, err
	}
	l.cc = cc
	return l, nil
}

func (l *link) close() { _ = l.cc.Close() } // an error says that it was closed before

func (l *link) failed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// ready dials and returns nil once the connection stands, or the reason why it
// does not.
func (l *link) ready(ctx context.Context) error {
	for {
		l.cc.Connect()
		switch s := l.cc.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			return l.reason(errors.New("connection failed"))
		default:
			if !l.cc.WaitForStateChange(ctx, s) {
				return l.reason(context.Cause(ctx))
			}
		}
	}
}

// reason prefers what the dialer or the handshake said to err.
func (l *link) reason(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return err
}

// credentials are what the options ask for.
func (c *core) credentials(l *link) credentials.TransportCredentials {
	o := c.opts
	var config func() *tls.Config
	switch {
	case c.tls != nil:
		config = func() *tls.Config { return c.tls.Client(o.tlsName) }
	case o.tlsConfig != nil:
		config = func() *tls.Config { return o.tlsConfig.Clone() }
	case o.serverTLS || o.tlsName != "":
		config = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	default:
		return insecure.NewCredentials()
	}
	named := func() *tls.Config {
		cfg := config()
		if cfg.ServerName == "" {
			cfg.ServerName = o.tlsName
		}
		return cfg
	}
	return &freshTLS{TransportCredentials: credentials.NewTLS(named()), config: named, link: l}
}

// freshTLS asks for the configuration at each handshake, so that renewed
// certificates are used without a restart.
type freshTLS struct {
	credentials.TransportCredentials
	config func() *tls.Config
	link   *link
}

func (f *freshTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := credentials.NewTLS(f.config()).ClientHandshake(ctx, authority, raw)
	if err != nil {
		err = &tlsError{err}
		f.link.failed(err)
		return nil, nil, err
	}
	// What a server thinks of our certificate comes after the handshake.
	return f.link.listen(conn, func(err error) error { return &tlsError{err} }), info, nil
}

func (f *freshTLS) Clone() credentials.TransportCredentials {
	return &freshTLS{TransportCredentials: f.TransportCredentials.Clone(), config: f.config, link: f.link}
}

// unheard is a connection on which a server has not said anything yet. If it
// ends like that its link hears why: gRPC keeps that to itself.
type unheard struct {
	net.Conn
	reads  *pooledread.Reader
	link   *link
	reason func(error) error
	heard  atomic.Bool
}

// listen wraps a connection. If it ends without a word from the server, reason
// turns its error into what the link hears.
func (l *link) listen(conn net.Conn, reason func(error) error) net.Conn {
	return &unheard{Conn: conn, reads: pooledread.New(conn), link: l, reason: reason}
}

// Read implements net.Conn.
func (u *unheard) Read(p []byte) (int, error) {
	n, err := u.Conn.Read(p)
	u.came(n, err)
	return n, err
}

// ReadOnReady keeps gRPC from holding a read buffer for each connection.
func (u *unheard) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	buf, n, err := u.reads.ReadOnReady(size, pool)
	u.came(n, err)
	return buf, n, err
}

func (u *unheard) came(n int, err error) {
	if n > 0 && !u.heard.Load() {
		u.heard.Store(true)
	}
	if err != nil {
		u.ended(err)
	}
}

// Write implements net.Conn. When the server has closed the connection its last
// words may still be there to be read.
func (u *unheard) Write(p []byte) (int, error) {
	n, err := u.Conn.Write(p)
	if err != nil && !u.heard.Load() && u.SetReadDeadline(time.Now().Add(lastWordsWait)) == nil {
		_, rerr := u.Conn.Read(make([]byte, 1))
		u.ended(cmp.Or(rerr, err))
	}
	return n, err
}

func (u *unheard) ended(err error) {
	if !u.heard.Load() && !errors.Is(err, net.ErrClosed) {
		u.link.failed(u.reason(err))
	}
}

// closedAtOnce is the error of a connection without TLS that has ended without
// a word.
func closedAtOnce(err error) error {
	return fmt.Errorf("the server closes the connection at once (has it TLS, or a limit on connections?): %w", err)
}

// tlsError is a failed handshake: trying again does not help unless somebody
// changes a certificate.
type tlsError struct{ err error }

func (e *tlsError) Error() string {
	s := e.err.Error()
	if !strings.HasPrefix(s, "tls: ") {
		return "tls: " + s
	}
	return s
}
func (e *tlsError) Unwrap() error { return e.err }

// hopeless says that no repetition can cure err at this endpoint.
func hopeless(err error) bool {
	var t *tlsError
	if errors.As(err, &t) {
		var refused *net.OpError
		if errors.As(t.err, &refused) && refused.Op == "remote error" {
			return true // the server says that it does not want our certificate
		}
		// A connection that broke in the middle of a handshake proves nothing.
		var n net.Error
		return !errors.As(t.err, &n) && !strings.Contains(t.err.Error(), "EOF")
	}
	return status.Code(err) == codes.Unimplemented
}

// plain takes gRPC's wrapping off an error that is shown to people.
func plain(err error) error {
	st, ok := status.FromError(err)
	if !ok || err == nil {
		return err
	}
	msg := st.Message()
	if _, after, found := strings.Cut(msg, `desc = "`); found {
		msg = strings.TrimSuffix(after, `"`)
	}
	if st.Code() == codes.Unimplemented {
		return &statusError{st, "not a coordd server, or one of another version (" + msg + ")"}
	}
	return &statusError{st, msg}
}

// statusError is a gRPC status that reads well. status.Code still finds the code.
type statusError struct {
	st  *status.Status
	msg string
}

func (e *statusError) Error() string              { return e.msg }
func (e *statusError) GRPCStatus() *status.Status { return e.st }

// links keeps one connection for each endpoint for calls outside of streams.
type links struct {
	core *core

	// mu guards open and closed.
	mu     sync.Mutex
	open   map[string]*link
	closed bool
}

func newLinks(c *core) *links { return &links{core: c, open: map[string]*link{}} }

// get returns the connection to an endpoint and makes it if there is none.
func (ls *links) get(endpoint string) (*link, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil, ErrClosed
	}
	if l := ls.open[endpoint]; l != nil {
		return l, nil
	}
	l, err := ls.core.newLink(endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	ls.open[endpoint] = l
	return l, nil
}

func (ls *links) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, l := range ls.open {
		l.close()
	}
	clear(ls.open)
}

// connectTimeout bounds the way to a standing connection: shorter where there is
// another endpoint to try, longer the more often all have failed.
func connectTimeout(failedRounds int) time.Duration {
	return min(time.Second<<min(failedRounds, 4), 10*time.Second)
}
