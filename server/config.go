package server

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/wire"
)

// Config says what a server is and what it lets clients do. A zero field has
// the default named beside it.
type Config struct {
	// Cluster is this server's part in the cluster. Its Hook, Info, Timings and
	// TLS are set by New.
	Cluster cluster.Config

	// GRPC is the address clients connect to, "host:port". No default.
	GRPC string
	// HTTP is the address for health and metrics; "" turns it off.
	HTTP string
	// ZooKeeper is the port for clients that speak ZooKeeper's protocol.
	ZooKeeper ZooKeeperPort
	// Advertise has the addresses that others are told; those listened on.
	Advertise struct{ GRPC, HTTP, ZooKeeper string }

	// TLS secures every port. The zero value is plain text, which is refused
	// beyond loopback unless Insecure is set; everybody is admin then.
	TLS tlsfiles.Files
	// ClientAuth says what is asked of clients with TLS; the zero value asks for
	// no certificate.
	ClientAuth tls.ClientAuthType
	Insecure   bool
	// Superusers are the common names of certificates that may do everything.
	Superusers []string
	// SuperDigest is a digest identity "super:<hash>" that passes every ACL and
	// is admin; "" for none.
	SuperDigest string

	// Session bounds the timeouts clients may ask for: 2 s, 10 s, 5 min.
	Session struct{ Min, Default, Max time.Duration }
	Limits  Limits

	// SlowRequest is from when on a request is logged as slow; 0: never.
	SlowRequest time.Duration
	// Reflection serves gRPC reflection; Pprof serves /debug/pprof/ on the HTTP
	// port, to admins.
	Reflection, Pprof bool

	// Logger is slog.Default() if nil.
	Logger  *slog.Logger
	Version string

	// Listener replaces net.Listen for the client ports, for tests.
	Listener func(network, address string) (net.Listener, error)
}

// ZooKeeperPort says how ZooKeeper's clients are served.
type ZooKeeperPort struct {
	Address string // "host:port"; "" turns it off
	// SecureAddress is a second port, where all clients have to speak TLS; "" is
	// none. It needs Address and TLS.
	SecureAddress string
	// Plaintext also takes clients without TLS where the server has TLS.
	Plaintext bool
	// ReadOnly lets a server that has lost the majority show what it knows to
	// clients that have asked for it.
	ReadOnly bool
	// FrameBytes is the longest request that is taken; ZooKeeper's jute.maxbuffer
	// without a value, 1 MiB less one byte.
	FrameBytes int
	// Words are the four-letter words that are answered, or "*" for all. Nil is
	// those that only tell of the server itself.
	Words []string
}

// withDefaults fills the zero fields in.
func (c Config) withDefaults() Config {
	c.Session.Min = cmp.Or(c.Session.Min, 2*time.Second)
	c.Session.Default = cmp.Or(c.Session.Default, max(10*time.Second, c.Session.Min))
	c.Session.Max = cmp.Or(c.Session.Max, max(5*time.Minute, c.Session.Default))
	c.Limits = c.Limits.WithDefaults()
	c.ZooKeeper.FrameBytes = cmp.Or(c.ZooKeeper.FrameBytes, wire.MaxFrameBytes)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Cluster.Logger = cmp.Or(c.Cluster.Logger, c.Logger)
	c.Cluster.ClusterName = cmp.Or(c.Cluster.ClusterName, "coord")
	c.Cluster.SessionMin = c.Session.Min
	if c.Listener == nil {
		c.Listener = net.Listen
	}
	return c
}

// Validate names the first field that cannot be used.
func (c Config) Validate() error {
	c = c.withDefaults()
	for _, check := range []func() error{c.validateSession, c.Limits.Validate, c.ZooKeeper.validate, c.validateTLS, c.validateAddresses, c.Cluster.Validate} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// maxZKFrame is the most that one request may be.
const maxZKFrame = 64 << 20

func (z ZooKeeperPort) validate() error {
	if z.FrameBytes < zkHelloBytes || z.FrameBytes > maxZKFrame {
		return fmt.Errorf("zookeeper.frame_size: %d is not between %d and %d", z.FrameBytes, zkHelloBytes, maxZKFrame)
	}
	return nil
}

func (c Config) validateSession() error {
	s := c.Session
	if s.Min < 100*time.Millisecond || s.Min > s.Default || s.Default > s.Max || s.Max > fsm.MaxTimeout {
		return fmt.Errorf("session: want 100ms <= min <= default <= max <= %s, have %s, %s, %s", fsm.MaxTimeout, s.Min, s.Default, s.Max)
	}
	return nil
}

func (c Config) validateTLS() error {
	if c.ZooKeeper.SecureAddress != "" && (c.TLS.Zero() || c.ZooKeeper.Address == "") {
		return fmt.Errorf("listen.zookeeper_tls: it is a second port beside listen.zookeeper, and needs tls.cert, tls.key and tls.ca")
	}
	if c.TLS.Zero() {
		return nil
	}
	if err := c.TLS.Validate(true); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if c.TLS.CA == "" {
		return fmt.Errorf("tls.ca: the other servers and clients cannot be checked without it")
	}
	return nil
}

// validateAddresses refuses to serve plain text to the world by accident.
func (c Config) validateAddresses() error {
	if c.GRPC == "" {
		return fmt.Errorf("listen.grpc: no address")
	}
	for _, a := range []struct{ name, address string }{
		{"listen.grpc", c.GRPC},
		{"listen.http", c.HTTP},
		{"listen.zookeeper", c.ZooKeeper.Address},
		{"listen.zookeeper_tls", c.ZooKeeper.SecureAddress},
		{"listen.peer", c.peerAddress()},
	} {
		if a.address == "" {
			continue
		}
		host, _, err := net.SplitHostPort(a.address)
		if err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		if c.TLS.Zero() && !c.Insecure && !loopback(host) {
			return fmt.Errorf("%s: %s is open to the network without TLS: set tls.cert, tls.key and tls.ca, or say insecure", a.name, a.address)
		}
	}
	return nil
}

// peerAddress is what the peer port will listen on.
func (c Config) peerAddress() string {
	if c.Cluster.Listen != "" {
		return c.Cluster.Listen
	}
	return c.ownPeer().Address
}

// period is how often something is looked at: as often as every, or twice in the
// time in which Raft notices a dead leader if that is longer.
func (c Config) period(every time.Duration) time.Duration {
	return max(every, c.Cluster.Heartbeat/2)
}

func (c Config) ownPeer() cluster.Peer {
	p, _ := c.Cluster.Self() // checked by its Validate
	return p
}

// loopback says whether a host to listen on can only be reached from this
// machine.
func loopback(host string) bool {
	if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
		return ip.IsLoopback()
	}
	return host == "localhost"
}

// advertised is the address that others are told: the configured one, else the
// one that is listened on, with this server's host in the peer list in place of
// "every address".
func (c Config) advertised(configured string, l net.Listener) string {
	if configured != "" || l == nil {
		return configured
	}
	address := l.Addr().String()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return address
	}
	if peerHost, _, err := net.SplitHostPort(c.ownPeer().Address); err == nil {
		return net.JoinHostPort(peerHost, port)
	}
	return address
}

// hostPart is an address without its port.
func hostPart(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}
