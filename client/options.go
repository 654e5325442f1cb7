package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/znode"
)

// Option changes what [Dial] and [Client.NewSession] do. For NewSession only
// the options about a session have a meaning: timeout, name, identity and state
// listener.
type Option func(*options)

type options struct {
	tlsConfig *tls.Config
	tlsFiles  tlsfiles.Files
	serverTLS bool   // the URL said coords://
	tlsName   string // expected server name, "" = the endpoint's host
	auth      []credential
	timeout   time.Duration
	name      string
	identity  string
	chroot    string
	log       *slog.Logger
	retry     Backoff
	reads     ReadMode
	sessionless,
	failFast bool
	listener func(State)
	grpc     []grpc.DialOption
	now      func() time.Duration
}

type credential struct {
	scheme string
	secret []byte
}

// WithTLS makes all connections use TLS with this configuration. It is cloned
// for each connection, and ServerName is filled in from the endpoint if empty.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tlsConfig = c } }

// WithTLSFiles makes all connections use TLS with PEM files that are read again
// when they change: ca to check the servers, cert and key to show to them
// (both may be empty).
func WithTLSFiles(ca, cert, key string) Option {
	return func(o *options) { o.tlsFiles = tlsfiles.Files{CA: ca, Cert: cert, Key: key} }
}

// WithServerName is the name that the servers' certificates must have, when it
// is not the host of the endpoint.
func WithServerName(name string) Option { return func(o *options) { o.tlsName = name } }

// WithAuth proves an identity to the servers, on every connection. It may be
// given several times.
func WithAuth(scheme string, secret []byte) Option {
	return func(o *options) { o.auth = append(o.auth, credential{scheme, append([]byte(nil), secret...)}) }
}

// WithSessionTimeout asks for a session timeout; [Session.Timeout] says what was
// granted. Zero leaves it to the cluster.
func WithSessionTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithSessionName is what operators see. The default is program@host:pid.
func WithSessionName(name string) Option { return func(o *options) { o.name = name } }

// WithIdentity gives the session a stable identity: opening it ends the previous
// session of that identity, so that a restarted program need not wait for its
// predecessor's session to expire.
func WithIdentity(id string) Option { return func(o *options) { o.identity = id } }

// WithChroot makes every path of the client relative to path: those it sends,
// those that come back, and those of events.
func WithChroot(path string) Option { return func(o *options) { o.chroot = path } }

// WithLogger says where to log. The default is slog.Default, silent below Warn.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithRetry sets the pauses between rounds of connecting.
func WithRetry(b Backoff) Option { return func(o *options) { o.retry = b } }

// WithReads sets the mode of reads that do not say one; Linearizable is the
// default.
func WithReads(m ReadMode) Option { return func(o *options) { o.reads = m } }

// WithoutSession makes a client for plain reads, watches and writes. It cannot
// own ephemeral znodes. A write is sent once: when its answer is lost the error
// matches ErrUnknownOutcome, unless the write carries a request id
// ([WithRequestID]).
func WithoutSession() Option { return func(o *options) { o.sessionless = true } }

// FailFast makes Dial give up after one round in which each endpoint could not be
// reached or has refused, for the moment or for good, instead of trying until its
// context ends. While some server was reached and only owes its answer, Dial
// waits for it all the same. A write outside of a session is given up after a
// round in which no server was reached.
func FailFast() Option { return func(o *options) { o.failFast = true } }

// WithStateListener is told each new state of the session, in order, by one
// goroutine. f must not block; it may call Close.
func WithStateListener(f func(State)) Option { return func(o *options) { o.listener = f } }

// WithGRPCOptions adds dial options: tracing, proxies, custom dialers.
func WithGRPCOptions(opts ...grpc.DialOption) Option {
	return func(o *options) { o.grpc = append(o.grpc, opts...) }
}

// WithClock replaces the clock that deadlines are measured on: the time since
// some fixed moment. It is for tests in fake time; the default goes on while the
// machine sleeps, where the system has such a clock.
func WithClock(now func() time.Duration) Option { return func(o *options) { o.now = now } }

// Backoff is how long to wait between rounds over all endpoints: Min after the
// first failed one, then longer by Factor each time, up to Max, each shortened
// by a random part of up to a half. Zero fields take the defaults 50 ms, 2 s, 2.
type Backoff struct {
	Min, Max time.Duration
	Factor   float64
}

func (b Backoff) withDefaults() Backoff {
	if b.Min <= 0 {
		b.Min = 50 * time.Millisecond
	}
	if b.Max < b.Min {
		b.Max = max(2*time.Second, b.Min)
	}
	if b.Factor < 1 {
		b.Factor = 2
	}
	return b
}

// wait is the pause after the given number of failed rounds, from 1.
func (b Backoff) wait(failures int) time.Duration {
	d := float64(b.Min)
	for i := 1; i < failures && d < float64(b.Max); i++ {
		d *= b.Factor
	}
	d = min(d, float64(b.Max))
	return time.Duration(d * (0.5 + rand.Float64()/2))
}

func newOptions(opts []Option) (*options, error) {
	o := &options{now: bootTime}
	for _, opt := range opts {
		opt(o)
	}
	o.retry = o.retry.withDefaults()
	if o.reads == ReadDefault {
		o.reads = Linearizable
	}
	if o.name == "" {
		o.name = processName()
	}
	if o.log == nil {
		o.log = quietLogger()
	}
	if o.chroot == "/" {
		o.chroot = ""
	}
	return o, o.validate()
}

func (o *options) validate() error {
	switch {
	case o.timeout < 0:
		return errors.New("session timeout is negative")
	case o.timeout > 0 && o.timeout < time.Millisecond:
		return fmt.Errorf("session timeout %s is below 1ms", o.timeout)
	case o.sessionless && o.identity != "":
		return errors.New("an identity needs a session")
	case o.tlsConfig != nil && !o.tlsFiles.Zero():
		return errors.New("WithTLS and WithTLSFiles exclude each other")
	case o.reads > ReadStale:
		return fmt.Errorf("unknown read mode %d", o.reads)
	}
	if o.chroot != "" {
		if err := znode.ValidatePath(o.chroot); err != nil {
			return fmt.Errorf("chroot %q: %w", o.chroot, err)
		}
	}
	return o.tlsFiles.Validate(false)
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	host, _, _ = strings.Cut(host, ".")
	return fmt.Sprintf("%s@%s:%d", filepath.Base(os.Args[0]), host, os.Getpid())
}
