package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// peerInfo says who is at the other end of a peer connection, as the handshake
// found it.
type peerInfo struct {
	kind    connKind
	server  serverID // empty: a guest that did not say
	cluster string   // empty: the peer does not belong to one
	// guest: the caller did not prove that it knows this cluster and this
	// server. It may ask only to discover and to join.
	guest bool
	addr  net.Addr             // of the network
	tls   *tls.ConnectionState // nil without TLS
}

// peerAddr is the RemoteAddr of a peer connection: it prints the server and the
// network address.
type peerAddr struct{ info peerInfo }

// Network implements net.Addr.
func (a peerAddr) Network() string { return a.info.addr.Network() }

// String implements net.Addr.
func (a peerAddr) String() string {
	if a.info.server == "" {
		return "guest at " + a.info.addr.String()
	}
	return string(a.info.server) + " at " + a.info.addr.String()
}

// peerConn is a connection behind its handshake.
type peerConn struct {
	net.Conn
	info    peerInfo
	inbound bool

	closing sync.Once
	gone    func(*peerConn)
	err     error
}

// RemoteAddr implements net.Conn.
func (c *peerConn) RemoteAddr() net.Addr { return peerAddr{c.info} }

// Close implements net.Conn; it may be called twice.
func (c *peerConn) Close() error {
	c.closing.Do(func() {
		c.err = c.Conn.Close()
		c.gone(c)
	})
	return c.err
}

// errNotPeerConn is returned when gRPC is given a connection that did not come
// from a peerNet.
var errNotPeerConn = errors.New("not a peer connection")

// peerCredentials hand the peerInfo of a connection to gRPC. The handshake has
// taken place before gRPC sees the connection, and TLS, if any, is inside of it;
// so they do nothing else. Use them on both sides:
//
//	grpc.NewServer(grpc.Creds(peerCredentials{}))
//	grpc.NewClient("passthrough:///"+id, grpc.WithTransportCredentials(peerCredentials{}), grpc.WithContextDialer(net.dialRPC))
type peerCredentials struct{}

// peerAuth is the AuthInfo of a peer connection.
type peerAuth struct {
	credentials.CommonAuthInfo
	info peerInfo
}

// AuthType implements credentials.AuthInfo.
func (peerAuth) AuthType() string { return "coord-peer" }

// ValidateAuthority lets gRPC use any :authority: the handshake has already
// settled who answers.
func (peerAuth) ValidateAuthority(string) error { return nil }

// ClientHandshake implements credentials.TransportCredentials.
func (peerCredentials) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return authenticated(c)
}

// ServerHandshake implements credentials.TransportCredentials.
func (peerCredentials) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return authenticated(c)
}

func authenticated(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	p, ok := c.(*peerConn)
	if !ok {
		return nil, nil, errNotPeerConn
	}
	level := credentials.NoSecurity
	if p.info.tls != nil {
		level = credentials.PrivacyAndIntegrity
	}
	return c, peerAuth{credentials.CommonAuthInfo{SecurityLevel: level}, p.info}, nil
}

// Info implements credentials.TransportCredentials.
func (peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "coord-peer"}
}

// Clone implements credentials.TransportCredentials.
func (c peerCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (peerCredentials) OverrideServerName(string) error { return nil }

// peerFromContext returns who made the gRPC call; false outside of a call over a
// peer connection.
func peerFromContext(ctx context.Context) (peerInfo, bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return peerInfo{}, false
	}
	auth, ok := p.AuthInfo.(peerAuth)
	return auth.info, ok
}
