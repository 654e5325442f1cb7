package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/coordd/coord/cluster/peerpb"
)

const (
	// maxPeerMessage bounds a message between servers. It is far above the
	// largest command and the largest batch of a forward stream.
	maxPeerMessage = 64 << 20
	// A peer that was down must be used again at once when it is back, so
	// dialling is repeated quickly.
	dialFirstPause = 20 * time.Millisecond
	dialMaxPause   = 300 * time.Millisecond
	peerBuffer     = 128 << 10
	peerWindow     = 4 << 20
	// A guest has proved nothing: what it may make a server hold is little, and
	// not for long.
	maxGuestMessage = 64 << 10
	maxGuestStreams = 8
	guestIdle       = 3 * time.Second // without a call
	guestVisit      = 30 * time.Second
)

// peers are the gRPC connections to other servers, one for each, made when
// first used. It is safe for concurrent use.
//
// Bound: one connection for each member of the cluster; prune closes others.
type peers struct {
	dial func(ctx context.Context, target string) (net.Conn, error)

	mu     sync.Mutex
	conns  map[serverID]*grpc.ClientConn
	closed bool
}

func newPeers(dial func(context.Context, string) (net.Conn, error)) *peers {
	return &peers{dial: dial, conns: make(map[serverID]*grpc.ClientConn)}
}

// client returns the stub for a server, whether or not that can be reached.
func (p *peers) client(id serverID) (peerpb.PeerClient, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrStopped
	}
	c := p.conns[id]
	if c == nil {
		var err error
		if c, err = p.open(string(id)); err != nil {
			return nil, err
		}
		p.conns[id] = c
	}
	return peerpb.NewPeerClient(c), nil
}

// guest calls f with a stub for whoever is at a network address. Only Discover
// and Join are answered.
func (p *peers) guest(address string, f func(peerpb.PeerClient) error) error {
	c, err := p.open(address)
	if err != nil {
		return err
	}
	return errors.Join(f(peerpb.NewPeerClient(c)), c.Close())
}

func (p *peers) open(target string) (*grpc.ClientConn, error) {
	c, err := grpc.NewClient("passthrough:///"+target,
		grpc.WithTransportCredentials(peerCredentials{}),
		grpc.WithContextDialer(p.dial),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(peerBuffer), grpc.WithWriteBufferSize(peerBuffer),
		grpc.WithInitialWindowSize(peerWindow), grpc.WithInitialConnWindowSize(peerWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxPeerMessage), grpc.MaxCallSendMsgSize(maxPeerMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: dialFirstPause, Multiplier: 2, Jitter: 0.2, MaxDelay: dialMaxPause,
			},
			MinConnectTimeout: 2 * handshakeTimeout,
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", target, err)
	}
	return c, nil
}

// prune closes the connections to servers that keep does not want.
func (p *peers) prune(keep func(serverID) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.conns {
		if !keep(id) {
			_ = c.Close() // nothing waits for it
			delete(p.conns, id)
		}
	}
}

// close ends all connections and whatever is under way on them.
func (p *peers) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.prune(func(serverID) bool { return false })
}

// newMemberServer returns the gRPC server for the members of the cluster.
func newMemberServer() *grpc.Server {
	return newPeerServer(
		grpc.MaxRecvMsgSize(maxPeerMessage), grpc.MaxSendMsgSize(maxPeerMessage),
		grpc.ReadBufferSize(peerBuffer), grpc.WriteBufferSize(peerBuffer),
		grpc.InitialWindowSize(peerWindow), grpc.InitialConnWindowSize(peerWindow),
	)
}

// newGuestServer returns the gRPC server for everybody else. It is one of its
// own because gRPC reads a message before anybody can say who may send it.
func newGuestServer() *grpc.Server {
	return newPeerServer(
		grpc.MaxRecvMsgSize(maxGuestMessage), grpc.MaxConcurrentStreams(maxGuestStreams),
		grpc.ConnectionTimeout(guestIdle),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: guestIdle, MaxConnectionAge: guestVisit, MaxConnectionAgeGrace: guestIdle,
		}),
	)
}

func newPeerServer(opts ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(opts,
		grpc.Creds(peerCredentials{}), grpc.WaitForHandlers(true),
		grpc.ChainUnaryInterceptor(guardUnary), grpc.ChainStreamInterceptor(guardStream),
	)...)
}
