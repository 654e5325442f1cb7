package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// acceptAll accepts until the listener is closed. An error that may pass, such
// as too many open files, is waited out.
func (n *peerNet) acceptAll() {
	const first, longest = 5 * time.Millisecond, time.Second
	wait := first
	for {
		raw, err := n.cfg.listener.Accept()
		if err == nil {
			wait = first
			n.admitRaw(raw)
			continue
		}
		if n.isClosed() || errors.Is(err, net.ErrClosed) {
			return
		}
		n.cfg.log.Warn("cannot accept a peer connection", "err", err)
		select {
		case <-time.After(wait):
			wait = min(2*wait, longest)
		case <-n.done:
			return
		}
	}
}

// admitRaw begins the handshake of a connection that was just accepted.
func (n *peerNet) admitRaw(raw net.Conn) {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		_ = raw.Close()
		return
	}
	var oldest net.Conn
	if len(n.halfOpen) >= maxHalfOpen {
		oldest, n.halfOpen = n.halfOpen[0], slices.Delete(n.halfOpen, 0, 1)
	}
	n.halfOpen = append(n.halfOpen, raw)
	n.wg.Go(func() { n.receive(raw) }) // under the lock: close waits only after closed is set
	n.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
}

// receive is the acceptor's side of one connection up to its consumer.
func (n *peerNet) receive(raw net.Conn) {
	c, err := n.welcome(raw)
	n.mu.Lock()
	if i := slices.Index(n.halfOpen, raw); i >= 0 {
		n.halfOpen = slices.Delete(n.halfOpen, i, i+1)
	}
	n.mu.Unlock()
	if err != nil {
		_ = raw.Close()
		if !errors.Is(err, io.EOF) && !n.isClosed() {
			n.cfg.log.Debug("peer connection refused", "peer", raw.RemoteAddr().String(), "err", err)
		}
		return
	}
	switch {
	case c.info.kind == connRaft:
		n.raft.deliver(c)
	case c.info.guest:
		n.hall.deliver(c)
	default:
		n.rpc.deliver(c)
	}
}

// welcome answers the hello on raw. Garbage gets no answer; a hello that is
// refused gets the reason.
func (n *peerNet) welcome(raw net.Conn) (*peerConn, error) {
	deadline := time.Now().Add(handshakeTimeout)
	if err := raw.SetDeadline(deadline); err != nil {
		return nil, err
	}
	conn, state, err := n.serverTLS(raw, deadline)
	if err != nil {
		return nil, err
	}
	h, err := readHello(conn)
	if err != nil {
		if errors.Is(err, errPeerVersion) || errors.Is(err, errBadServerID) || errors.Is(err, errBadClusterID) {
			_ = n.reply(conn, err) // the first error says more
		}
		return nil, err
	}
	c, err := n.consider(conn, raw, h, state)
	if err == nil {
		err = n.keep(c)
	}
	if err != nil {
		_ = n.reply(conn, err) // the first error says more
		return nil, err
	}
	if err := n.reply(conn, nil); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, raw.SetDeadline(time.Time{})
}

func (n *peerNet) consider(conn, raw net.Conn, h hello, state *tls.ConnectionState) (*peerConn, error) {
	guest, err := judge(h, n.cfg.self, n.cfg.cluster())
	if err != nil {
		return nil, err
	}
	c := &peerConn{Conn: conn, inbound: true, gone: n.forget, info: peerInfo{
		kind: h.kind, server: h.from, cluster: h.cluster, guest: guest, addr: raw.RemoteAddr(), tls: state,
	}}
	if n.cfg.admit == nil {
		return c, nil
	}
	if err := n.cfg.admit(c.info); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAdmitted, err)
	}
	return c, nil
}

// reply sends the verdict on err.
func (n *peerNet) reply(conn net.Conn, err error) error {
	a := answer{cluster: n.cfg.cluster(), id: n.cfg.self}
	if err != nil {
		a.verdict, a.reason = verdictOf(err), err.Error()
	}
	_, werr := conn.Write(a.encode())
	return werr
}

func (n *peerNet) serverTLS(raw net.Conn, deadline time.Time) (net.Conn, *tls.ConnectionState, error) {
	if n.cfg.serverTLS == nil {
		return raw, nil, nil
	}
	cfg := n.cfg.serverTLS()
	if cfg == nil {
		return raw, nil, nil
	}
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	return shakeTLS(ctx, tls.Server(raw, cfg))
}

// connQueue hands accepted connections of one kind to their consumer. It is a
// net.Listener.
type connQueue struct {
	net  *peerNet
	kind connKind
	ch   chan net.Conn // unbuffered: a consumer that does not accept leaves the peer waiting

	life context.Context // ends with shut; kept here because it bounds dials that come with contexts of their own
	shut context.CancelFunc
}

func newConnQueue(n *peerNet, kind connKind) *connQueue {
	q := &connQueue{net: n, kind: kind, ch: make(chan net.Conn)}
	q.life, q.shut = context.WithCancel(context.Background())
	return q
}

// deliver waits for the consumer, but not for ever: then the peer dials again.
func (q *connQueue) deliver(c *peerConn) {
	t := time.NewTimer(acceptWait)
	defer t.Stop()
	select {
	case q.ch <- c:
	case <-q.life.Done():
		_ = c.Close()
	case <-t.C:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case <-q.life.Done():
		return nil, net.ErrClosed
	case c := <-q.ch:
		return c, nil
	}
}

// Addr implements net.Listener: it is the server id, not a network address, as
// that is what Raft knows servers by.
func (q *connQueue) Addr() net.Addr { return idAddr(q.net.cfg.self) }

// Close implements net.Listener: no more connections of this kind come or are
// made, and those that are there end. The port stays open for the other kind.
func (q *connQueue) Close() error {
	q.shut()
	q.net.closeConns(func(c *peerConn) bool { return c.info.kind == q.kind })
	return nil
}

func (q *connQueue) isClosed() bool { return q.life.Err() != nil }

// idAddr is a server id as a net.Addr.
type idAddr serverID

// Network implements net.Addr.
func (idAddr) Network() string { return "coord" }

// String implements net.Addr.
func (a idAddr) String() string { return string(a) }

// raftStream is the raft.StreamLayer of a peerNet.
type raftStream struct{ *connQueue }

// Dial implements raft.StreamLayer. The address is a server id.
func (s raftStream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	if s.isClosed() {
		return nil, net.ErrClosed
	}
	to, err := parseServerID(string(address))
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(timeout, handshakeTimeout))
	defer cancel()
	return s.net.dialServer(ctx, connRaft, to)
}
