package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/tlsfiles"
	"github.com/coordd/coord/session"
)

// node is what serving clients needs of a cluster.Node.
type node interface {
	linearizer
	proposer
	pulse
	// Formed is nil once the cluster may promise anything to a client.
	Formed() error
}

// pulse is the part of a node that sessions live by.
type pulse interface {
	Heard(id session.ID, generation uint64)
	Beat(id session.ID, generation uint64, done func(error))
	Acknowledge(id session.ID, seq uint64)
}

// Server is one server process of a cluster: it owns the node and the client
// ports. New makes it, Run runs it. Its methods may be called from any
// goroutine.
type Server struct {
	cfg     Config
	limits  Limits
	log     *slog.Logger
	clock   stopwatch
	started time.Time

	cluster  *cluster.Node // nil in tests of single parts
	node     node
	machine  *fsm.Machine
	serverID string // name~incarnation
	boot     uint64

	auth    *authenticator
	hub     *hub
	queues  *queues
	reader  *reader
	metrics *metrics
	stalls  stallMeter
	faults  *faults
	room    *diskRefusals
	giving  *rate.Limiter // of calls without a session, see withheld
	health  *health.Server
	ready   atomic.Pointer[readiness]

	tls          *tlsfiles.Source // nil without TLS
	grpcListener *connCounter
	httpListener net.Listener // nil without HTTP
	zkListener   *connCounter // nil without a ZooKeeper port
	zkSecure     *connCounter // nil without a second one that is for TLS
	arriving     arrivals
	words        *words
	members      atomic.Pointer[cluster.Members] // as the leader saw them last; empty elsewhere
	grpc         *grpc.Server
	http         *http.Server

	backups  atomic.Int64   // that are being made
	unary    atomic.Int64   // calls outside sessions that are being served
	streams  gate           // handlers of streams
	workers  sync.WaitGroup // their goroutines
	restored chan struct{}  // has room for one: a snapshot replaced the state
	stopping chan struct{}  // closed when streams are to end
	stopped  chan struct{}  // closed when nothing is answered any more
	ran      atomic.Bool
}

// New opens the node and the ports of a server. Nothing is served before Run.
// Run or Close must follow.
func New(cfg Config) (_ *Server, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := newParts(cfg)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.openTLS(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, err
	}
	if err := s.openNode(); err != nil {
		return nil, err
	}
	s.grpc = s.newGRPC(s.clientTLS("h2"))
	s.http = s.newHTTP(s.clientTLS("http/1.1"))
	return s, nil
}

// newParts makes what needs no resources.
func newParts(cfg Config) *Server {
	s := &Server{
		cfg: cfg, limits: cfg.Limits, log: cfg.Logger, clock: newStopwatch(), started: time.Now(),
		auth: &authenticator{everybodyAdmin: cfg.TLS.Zero(), superusers: cfg.Superusers, superDigest: cfg.SuperDigest},

		metrics:  newMetrics(cfg.SlowRequest, cfg.Logger),
		faults:   &faults{log: cfg.Logger},
		room:     newDiskRefusals(),
		giving:   newGiving(),
		health:   health.NewServer(),
		restored: make(chan struct{}, 1),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
	}
	s.stalls.now = s.clock.now
	s.hub, s.queues = newHub(s), newQueues(s.clock)
	s.reader = newReader(s)
	s.ready.Store(&readiness{})
	s.words = newWords(s, cfg.ZooKeeper.Words)
	s.members.Store(&cluster.Members{})
	return s
}

// openTLS reads the certificates, if there are any, and secures the peer port.
func (s *Server) openTLS() error {
	if s.cfg.TLS.Zero() {
		return nil
	}
	src, err := tlsfiles.Open(s.cfg.TLS, 0, s.log)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	s.tls = src
	s.cfg.Cluster.TLS = cluster.PeerTLS{Server: src.Server(tls.RequireAndVerifyClientCert), Client: src.Client}
	return nil
}

// clientTLS is for a port of clients that speaks these protocols; nil without TLS.
func (s *Server) clientTLS(protos ...string) *tls.Config {
	if s.tls == nil {
		return nil
	}
	return s.tls.Server(s.cfg.ClientAuth, protos...)
}

// ReloadTLS looks at the certificate files now instead of at the next interval.
func (s *Server) ReloadTLS() {
	if s.tls != nil {
		s.tls.Look()
	}
}

func (s *Server) listen() error {
	l, err := s.cfg.Listener("tcp", s.cfg.GRPC)
	if err != nil {
		return fmt.Errorf("listen.grpc: %w", err)
	}
	s.grpcListener = newConnCounter(l, s.limits)
	if err := s.listenZooKeeper(); err != nil {
		return err
	}
	if s.cfg.HTTP == "" {
		return nil
	}
	if s.httpListener, err = s.cfg.Listener("tcp", s.cfg.HTTP); err != nil {
		return fmt.Errorf("listen.http: %w", err)
	}
	return nil
}

func (s *Server) openNode() error {
	s.cfg.Advertise.GRPC = s.cfg.advertised(s.cfg.Advertise.GRPC, s.grpcListener)
	s.cfg.Advertise.HTTP = s.cfg.advertised(s.cfg.Advertise.HTTP, s.httpListener)
	s.cfg.Advertise.ZooKeeper = s.advertisedZooKeeper()
	c := s.cfg.Cluster
	c.Hook, c.Info = s.hub, s.info
	c.Timings = cluster.Timings{
		Fsync:  func(d time.Duration) { s.metrics.fsync.observe(d) },
		Commit: func(d time.Duration) { s.metrics.commit.observe(d) },
		Apply:  func(d time.Duration) { s.metrics.apply.observe(d) },

		Snapshot: func(d time.Duration) { s.metrics.snapshot.observe(d) },
	}
	n, err := cluster.Open(c)
	if err != nil {
		return err
	}
	s.cluster, s.node, s.machine = n, n, n.Machine()
	s.serverID, s.boot = n.ServerID(), n.Boot()
	return nil
}

// info is what the other servers are told of this one.
func (s *Server) info() cluster.Info {
	r := s.ready.Load()
	return cluster.Info{
		GRPCAddress: s.cfg.Advertise.GRPC, HTTPAddress: s.cfg.Advertise.HTTP, ZooKeeperAddress: s.cfg.Advertise.ZooKeeper,
		Version: s.cfg.Version, Ready: r.ready, Detail: r.detail, Sessions: s.hub.attached.Load(),
	}
}

// Node is this server's part of the cluster.
func (s *Server) Node() *cluster.Node { return s.cluster }

// Addresses are where the ports of a server really listen.
type Addresses struct {
	GRPC, Peer net.Addr
	HTTP       net.Addr // nil without HTTP
	ZooKeeper  net.Addr // nil without a ZooKeeper port
}

// Addrs are the addresses that were really bound.
func (s *Server) Addrs() Addresses {
	a := Addresses{GRPC: s.grpcListener.Addr(), Peer: s.cluster.PeerAddr()}
	if s.httpListener != nil {
		a.HTTP = s.httpListener.Addr()
	}
	if s.zkListener != nil {
		a.ZooKeeper = s.zkListener.Addr()
	}
	return a
}

// Close gives back what New has taken, for a server that does not run. It may
// be called twice, and after Run.
func (s *Server) Close() error {
	var errs []error
	if s.grpcListener != nil {
		errs = append(errs, notClosed(s.grpcListener.Close()))
	}
	if s.httpListener != nil {
		errs = append(errs, notClosed(s.httpListener.Close()))
	}
	errs = append(errs, s.closeZooKeeper())
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close())
	}
	if s.tls != nil {
		s.tls.Close()
	}
	return errors.Join(errs...)
}

func notClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// formed refuses until the cluster exists.
func (s *Server) formed() error { return s.node.Formed() }

// clusterID names the cluster.
func (s *Server) clusterID() string {
	if s.cluster == nil {
		return ""
	}
	return s.cluster.ClusterID()
}

// Run serves until ctx ends or a part fails. When ctx ends leadership is handed
// over, clients are told to move, and Run returns nil within about 5 s. No
// goroutine outlives it. It may be called once; the server is closed afterwards.
func (s *Server) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("server was started before")
	}
	defer func() { _ = s.Close() }() // what is closed is not needed any more
	nodeCtx, stopNode := context.WithCancel(context.WithoutCancel(ctx))
	defer stopNode()
	life, endLife := context.WithCancel(context.WithoutCancel(ctx))
	defer endLife()

	g, failed := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runNode(nodeCtx) })
	g.Go(func() error { return s.serveGRPC() })
	g.Go(func() error { return s.serveHTTP() })
	g.Go(func() error { return s.serveZooKeeper(s.zkListener, false) })
	g.Go(func() error { return s.serveZooKeeper(s.zkSecure, true) })
	g.Go(func() error { s.reader.run(life); return nil })
	g.Go(func() error { s.watchHealth(life); return nil })
	g.Go(func() error { s.sweep(life); return nil })
	g.Go(func() error { s.sweepZK(life); return nil })
	g.Go(func() error { s.keepZKConfig(life); return nil })
	g.Go(func() error { s.stalls.run(life, s.cfg.period(stallTick)); return nil })
	s.log.Info("serving", "event", "serving", "grpc", s.cfg.Advertise.GRPC, "http", s.cfg.Advertise.HTTP)

	<-failed.Done()
	s.stop(stopNode)
	endLife()
	err := g.Wait()
	s.log.Info("stopped", "event", "stopped")
	return err
}

func (s *Server) runNode(ctx context.Context) error {
	err := s.cluster.Run(ctx)
	if err == nil && ctx.Err() == nil {
		return errors.New("the node ended by itself")
	}
	return err
}

func (s *Server) serveGRPC() error {
	if err := s.grpc.Serve(s.grpcListener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("gRPC port: %w", err)
	}
	return nil
}

const (
	// handOver bounds the wait for leadership to move before clients are told to.
	handOver = 2 * time.Second
	// drainTime bounds the wait for streams to say goodbye.
	drainTime = time.Second
)

// stop ends everything in the order in which clients feel it least: no new
// streams, leadership to another server, goodbye to the streams that are there,
// and the ports.
func (s *Server) stop(stopNode context.CancelFunc) {
	s.health.Shutdown()
	s.streams.close()
	stopNode()
	for deadline := time.Now().Add(handOver); s.cluster.Status().Leading && time.Now().Before(deadline); {
		time.Sleep(2 * time.Millisecond)
	}
	close(s.stopping)
	for _, c := range s.hub.streams() {
		c.end(fsm.ErrShuttingDown)
	}
	_ = s.closeZooKeeper() // Close says it again
	s.within(drainTime, s.streams.wait)
	close(s.stopped) // calls that are being served end now
	s.within(drainTime, s.grpc.GracefulStop)
	s.grpc.Stop()
	s.stopHTTP()
	s.workers.Wait()
}

// within waits for f for at most d. f goes on until what follows makes it end.
func (s *Server) within(d time.Duration, f func()) {
	done := make(chan struct{})
	s.workers.Go(func() { defer close(done); f() })
	select {
	case <-done:
	case <-time.After(d):
	}
}

// sweepEvery is how often what waits is looked at.
const sweepEvery = time.Second

// sweep does what has to be done now and then.
func (s *Server) sweep(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	marked := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.restored:
			s.machine.View(s.hub.reconcile)
		case now := <-tick.C:
			s.reader.sweep()
			s.queues.sweep()
			if now.Sub(marked) >= progressEvery {
				marked = now
				s.hub.markProgress()
			}
		}
	}
}
