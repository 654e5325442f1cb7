package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// whoService answers with the id of the caller, or refuses a guest.
var whoService = grpc.ServiceDesc{
	ServiceName: "test.Who", HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "AmI", Handler: func(_ any, ctx context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := dec(&emptypb.Empty{}); err != nil {
			return nil, err
		}
		p, ok := peerFromContext(ctx)
		if !ok {
			return nil, status.Error(codes.Internal, "no peer")
		}
		return nil, status.Errorf(codes.FailedPrecondition, "%s of %q guest=%v tls=%v", p.server, p.cluster, p.guest, p.tls != nil)
	}}},
}

func askWho(t *testing.T, n *peerNet, target string) string {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(peerCredentials{}), grpc.WithContextDialer(n.dialRPC))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err = cc.Invoke(ctx, "/test.Who/AmI", &emptypb.Empty{}, &emptypb.Empty{})
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("call to %s: %v", target, err)
	}
	return status.Convert(err).Message()
}

func serveWho(t *testing.T, n *peerNet) {
	s := grpc.NewServer(grpc.Creds(peerCredentials{}))
	s.RegisterService(&whoService, nil)
	go func() { _ = s.Serve(n.rpcListener()) }()
	go func() { _ = s.Serve(n.guestListener()) }()
	t.Cleanup(s.Stop)
}

func TestHandlerKnowsWhoCalls(t *testing.T) {
	mem := newMemNet()
	a, b := netOf(t, mem, idA, "n1", clusterX), netOf(t, mem, idB, "n2", clusterX)
	stranger := netOf(t, mem, "n3~0000000000000003", "n3", "")
	serveWho(t, b)
	if got, want := askWho(t, a, string(idB)), string(idA)+` of "`+clusterX+`" guest=false tls=false`; got != want {
		t.Errorf("member: %s; want %s", got, want)
	}
	if got, want := askWho(t, stranger, "n2"), `n3~0000000000000003 of "" guest=true tls=false`; got != want {
		t.Errorf("stranger: %s; want %s", got, want)
	}
	if _, _, err := (peerCredentials{}).ServerHandshake(rawDial(t, mem, "n2")); !errors.Is(err, errNotPeerConn) {
		t.Errorf("a connection without a handshake: %v", err)
	}
	if _, ok := peerFromContext(t.Context()); ok {
		t.Error("a peer outside of a call")
	}
}

// testCert signs a certificate for host with the authority, or makes one.
func testCert(t *testing.T, ca *tls.Certificate, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: ca == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := tpl, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, tpl, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func withTLS(cert tls.Certificate, ca tls.Certificate) func(*peerNetConfig) {
	pool := x509.NewCertPool()
	pool.AddCert(ca.Leaf)
	return func(c *peerNetConfig) {
		c.serverTLS = func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
		}
		c.clientTLS = func(string) *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool}
		}
	}
}

func TestPeersSpeakMutualTLS(t *testing.T) {
	mem := newMemNet()
	ca, otherCA := testCert(t, nil, "ca"), testCert(t, nil, "other")
	a := netOf(t, mem, idA, "n1", clusterX, withTLS(testCert(t, &ca, "n1"), ca))
	b := netOf(t, mem, idB, "n2", clusterX, withTLS(testCert(t, &ca, "n2"), ca))
	serveWho(t, b)
	if got := askWho(t, a, string(idB)); !strings.HasSuffix(got, "guest=false tls=true") {
		t.Errorf("over TLS the caller is %s", got)
	}
	plain := netOf(t, mem, idA, "n1", clusterX)
	if _, err := plain.dialRPC(t.Context(), string(idB)); err == nil || !strings.Contains(err.Error(), "TLS") {
		t.Errorf("without TLS: %v", err)
	}
	stranger := netOf(t, mem, idA, "n1", clusterX, withTLS(testCert(t, &otherCA, "n1"), ca))
	if _, err := stranger.dialRPC(t.Context(), string(idB)); err == nil {
		t.Error("a certificate of another authority was let in")
	}
	wrongHost := netOf(t, mem, idC, "n2", clusterX, withTLS(testCert(t, &ca, "n7"), ca))
	serveWho(t, wrongHost)
	if _, err := a.dialRPC(t.Context(), string(idC)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a server with the certificate of another host: %v", err)
	}
}
