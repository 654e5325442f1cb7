package coordtest

import (
	"log/slog"
	"time"

	"github.com/coordd/coord/server"
)

// Option changes what Start and StartCluster start.
type Option func(*options)

type options struct {
	timeout time.Duration
	log     *slog.Logger
	dir     string
	latency time.Duration
}

// SessionTimeout is what sessions get that do not ask for another timeout; 10 s.
// In real time a short one makes tests quick: half a second is enough on a machine
// that is not overloaded. It must be at least 100 ms.
func SessionTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// Logger hears what servers and clients log; by default nobody does.
func Logger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// Latency is how long everything takes from one host to another, one way; nothing
// by default. In fake time it brings the events of a test into an order.
func Latency(d time.Duration) Option { return func(o *options) { o.latency = d } }

// Dir is where the servers keep their data, for tests that want it to be on a
// certain disk. By default it is in memory, if the system has such a place, else
// in the test's temporary directory.
func Dir(path string) Option { return func(o *options) { o.dir = path } }

func newOptions(opts []Option) options {
	o := options{timeout: 10 * time.Second, log: slog.New(slog.DiscardHandler)}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// sessions are the bounds of session timeouts.
func (o *options) sessions(cfg *server.Config) {
	cfg.Session.Default = o.timeout
	cfg.Session.Min = min(2*time.Second, o.timeout)
	cfg.Session.Max = max(5*time.Minute, o.timeout)
}
