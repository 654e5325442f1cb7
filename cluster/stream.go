package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// handshakeTimeout bounds the dialling and the handshake of a peer
	// connection, each.
	handshakeTimeout = 2 * time.Second
	// maxHalfOpen is how many connections may be in their handshake. One more
	// closes the oldest: a real handshake takes milliseconds, so the oldest is
	// the one that says nothing.
	maxHalfOpen = 64
	// maxPeerConns bounds the accepted connections, maxGuestConns those of guests.
	maxPeerConns  = 512
	maxGuestConns = 64
	// acceptWait is how long an accepted connection waits for its consumer.
	acceptWait = 5 * time.Second
)

// peerNetConfig says how a server reaches its peers and is reached.
type peerNetConfig struct {
	self     serverID
	cluster  func() string // the cluster id of the moment, empty as long as there is none
	listener net.Listener  // owned by the peerNet from then on
	// dial opens a connection to a network address. It must heed its context.
	dial func(ctx context.Context, addr string) (net.Conn, error)
	// resolve finds the network address of a server by the current peer list.
	resolve func(serverID) (string, error)
	// dialed hears how dialling a server ended; nil: nobody does. It must not block.
	dialed func(to serverID, addr string, err error)
	// serverTLS and clientTLS are asked for each connection, so that files can
	// be read again; nil functions, or nil from them, mean no TLS. clientTLS is
	// given the host of the peer's address, which is also the server name to
	// verify unless the configuration has one.
	serverTLS func() *tls.Config
	clientTLS func(host string) *tls.Config
	// admit may refuse a peer that has passed every other check; nil admits all.
	// The error's text goes to the peer. It must not block.
	admit func(peerInfo) error
	// ended is called when the last Raft connection that a server has made to us
	// has ended; nil: nobody is told. It must not block.
	ended func(serverID)
	log   *slog.Logger
}

// peerNet is the peer port of a server: one listener, and the dialling, for
// Raft's messages and for our own gRPC among servers. Each connection begins with
// a handshake, so that an address never stands for two servers. It works over
// any net.Listener, and takes its time from package time only, so that it runs in
// fake time over a memory network.
//
// It is safe for concurrent use.
type peerNet struct {
	cfg  peerNetConfig
	raft *connQueue
	rpc  *connQueue // of members
	hall *connQueue // RPC of guests
	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	conns    map[*peerConn]struct{}
	halfOpen []net.Conn // oldest first
	guests   int
	inbound  int
	raftFrom map[serverID]int // Raft connections that a server has made to us
}

// newPeerNet begins to accept. Call close at the end.
func newPeerNet(cfg peerNetConfig) *peerNet {
	n := &peerNet{cfg: cfg, done: make(chan struct{}), conns: make(map[*peerConn]struct{}), raftFrom: make(map[serverID]int)}
	n.raft, n.rpc, n.hall = newConnQueue(n, connRaft), newConnQueue(n, connRPC), newConnQueue(n, connRPC)
	n.wg.Go(n.acceptAll)
	return n
}

// rpcListener is where a grpc.Server serves members, with peerCredentials.
func (n *peerNet) rpcListener() net.Listener { return n.rpc }

// guestListener is where another one serves guests.
func (n *peerNet) guestListener() net.Listener { return n.hall }

// raftStream is where raft.NetworkTransport listens and dials.
func (n *peerNet) raftStream() raft.StreamLayer { return raftStream{n.raft} }

// dialRPC is for grpc.WithContextDialer. A target that is a server id is
// resolved, and only that very server will do. Any other target is a network
// address at which this server is a guest.
func (n *peerNet) dialRPC(ctx context.Context, target string) (net.Conn, error) {
	to, err := parseServerID(target)
	if err != nil {
		return n.connect(ctx, target, hello{kind: connRPC})
	}
	return n.dialServer(ctx, connRPC, to)
}

func (n *peerNet) dialServer(ctx context.Context, kind connKind, to serverID) (net.Conn, error) {
	addr, err := n.cfg.resolve(to)
	if err != nil {
		return nil, fmt.Errorf("find %s: %w", to, err)
	}
	c, err := n.connect(ctx, addr, hello{kind: kind, to: to})
	if n.cfg.dialed != nil {
		n.cfg.dialed(to, addr, err)
	}
	return c, err
}

// connect dials addr and shakes hands. The context bounds both, and so do
// handshakeTimeout and the end of this kind of connection here.
func (n *peerNet) connect(ctx context.Context, addr string, h hello) (net.Conn, error) {
	h.from, h.cluster = n.cfg.self, n.cfg.cluster()
	if h.kind == connRaft && h.cluster == "" {
		return nil, fmt.Errorf("dial %s: %w", h.to, errNoCluster)
	}
	queue := n.queue(h.kind)
	if queue.isClosed() {
		return nil, net.ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(queue.life, func() { cancel(net.ErrClosed) })()
	dialCtx, stop := context.WithTimeout(ctx, handshakeTimeout)
	raw, err := n.cfg.dial(dialCtx, addr)
	stop()
	if queue.isClosed() && err != nil {
		return nil, net.ErrClosed
	}
	if err != nil {
		return nil, err
	}
	c, err := n.greet(ctx, raw, addr, h)
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("peer at %s: %w", addr, err)
	}
	if err := n.keep(c); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

func (n *peerNet) queue(kind connKind) *connQueue {
	if kind == connRaft {
		return n.raft
	}
	return n.rpc
}

// greet is the dialer's side of the handshake.
func (n *peerNet) greet(ctx context.Context, raw net.Conn, addr string, h hello) (*peerConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, state, err := n.clientTLS(ctx, raw, addr)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Write(h.encode()); err != nil {
		return nil, cause(ctx, err)
	}
	a, err := readAnswer(conn)
	if err != nil {
		return nil, cause(ctx, fmt.Errorf("handshake (is TLS on at one side only?): %w", err))
	}
	if err := checkAnswer(a, h); err != nil {
		return nil, err
	}
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return &peerConn{Conn: conn, gone: n.forget, info: peerInfo{
		kind: h.kind, server: a.id, cluster: a.cluster, guest: h.to == "" || h.cluster == "" || a.cluster == "",
		addr: raw.RemoteAddr(), tls: state,
	}}, nil
}

// cause prefers the end of the context to the timeout it caused.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("handshake: %w", context.Cause(ctx))
	}
	return err
}

// checkAnswer does not rely on the other side's verdict alone: who answers must
// be who was meant, also if it thinks otherwise.
func checkAnswer(a answer, h hello) error {
	if a.verdict != verdictOK {
		return &refusedError{meaning: verdictErrors[a.verdict], reason: a.reason, server: a.id, cluster: a.cluster}
	}
	if a.id == "" || h.to != "" && a.id != h.to {
		return fmt.Errorf("%w: %s, not %s", errWrongPeer, a.id, h.to)
	}
	if h.cluster != "" && a.cluster != "" && a.cluster != h.cluster {
		return fmt.Errorf("%w: %s, not %s", errWrongCluster, a.cluster, h.cluster)
	}
	if h.kind == connRaft && a.cluster != h.cluster {
		return fmt.Errorf("%s: %w", a.id, errNoCluster)
	}
	return nil
}

func (n *peerNet) clientTLS(ctx context.Context, raw net.Conn, addr string) (net.Conn, *tls.ConnectionState, error) {
	if n.cfg.clientTLS == nil {
		return raw, nil, nil
	}
	host := hostOf(addr)
	cfg := n.cfg.clientTLS(host)
	if cfg == nil {
		return raw, nil, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = host
	}
	return shakeTLS(ctx, tls.Client(raw, cfg))
}

func shakeTLS(ctx context.Context, c *tls.Conn) (net.Conn, *tls.ConnectionState, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("TLS: %w", err)
	}
	state := c.ConnectionState()
	return c, &state, nil
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}

// keep registers a connection so that close ends it.
func (n *peerNet) keep(c *peerConn) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.queue(c.info.kind).isClosed() {
		return net.ErrClosed
	}
	if c.inbound {
		if n.inbound >= maxPeerConns || c.info.guest && n.guests >= maxGuestConns {
			return errPeerBusy
		}
		n.inbound++
		if c.info.guest {
			n.guests++
		}
		if c.info.kind == connRaft {
			n.raftFrom[c.info.server]++
		}
	}
	n.conns[c] = struct{}{}
	return nil
}

func (n *peerNet) forget(c *peerConn) {
	if n.forgot(c) && n.cfg.ended != nil {
		n.cfg.ended(c.info.server)
	}
}

// forgot is forget, and says whether it was the last Raft connection from its
// server.
func (n *peerNet) forgot(c *peerConn) (last bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.conns[c]; !ok {
		return false
	}
	delete(n.conns, c)
	if !c.inbound {
		return false
	}
	n.inbound--
	if c.info.guest {
		n.guests--
	}
	if c.info.kind != connRaft {
		return false
	}
	if n.raftFrom[c.info.server]--; n.raftFrom[c.info.server] > 0 {
		return false
	}
	delete(n.raftFrom, c.info.server)
	return true
}

// raftConnsFrom is how many Raft connections a server has to us.
func (n *peerNet) raftConnsFrom(server serverID) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raftFrom[server]
}

func (n *peerNet) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// closeConns closes the registered connections that match.
func (n *peerNet) closeConns(match func(*peerConn) bool) {
	n.mu.Lock()
	var hit []*peerConn
	for c := range n.conns {
		if match(c) {
			hit = append(hit, c)
		}
	}
	n.mu.Unlock()
	for _, c := range hit {
		_ = c.Close()
	}
}

// closeRaftFrom closes the Raft connections that server has made to us.
func (n *peerNet) closeRaftFrom(server serverID) {
	n.closeConns(func(c *peerConn) bool {
		return c.inbound && c.info.kind == connRaft && c.info.server == server
	})
}

// cut closes the port and every connection at once, and makes dialling fail. It
// does not wait. It may be called twice.
func (n *peerNet) cut() error {
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	half := n.halfOpen
	n.halfOpen = nil
	n.mu.Unlock()
	if !first {
		return nil
	}
	close(n.done)
	n.raft.shut()
	n.rpc.shut()
	n.hall.shut()
	err := n.cfg.listener.Close()
	for _, c := range half {
		_ = c.Close()
	}
	n.closeConns(func(*peerConn) bool { return true })
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// close cuts, and waits until every goroutine has ended.
func (n *peerNet) close() error {
	err := n.cut()
	n.wg.Wait()
	return err
}
