package tlsfiles

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// authority signs leaf certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test-ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) issue(t *testing.T, f Files, cn string, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: cn},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, f.CA, "CERTIFICATE", a.cert.Raw)
	write(t, f.Key, "EC PRIVATE KEY", keyDER)
	write(t, f.Cert, "CERTIFICATE", der)
}

func write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func testFiles(t *testing.T) Files {
	dir := t.TempDir()
	return Files{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
}

// handshake connects a client to a server of the two sources and returns the
// server's certificate.
func handshake(t *testing.T, server, client *tls.Config) (*x509.Certificate, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		served <- tls.Server(c, server).Handshake()
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		<-served
		return nil, err
	}
	defer c.Close()
	if err := <-served; err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestNewFilesServeNewHandshakes(t *testing.T) {
	f, ca := testFiles(t), newAuthority(t)
	ca.issue(t, f, "first", 2)
	s, err := Open(f, time.Hour, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	server := s.Server(tls.RequireAndVerifyClientCert)
	got, err := handshake(t, server, s.Client("127.0.0.1"))
	if err != nil || got.Subject.CommonName != "first" {
		t.Fatalf("first handshake: %v, %v", got, err)
	}
	ca.issue(t, f, "second", 3)
	s.look([3][]byte{})
	got, err = handshake(t, server, s.Client("127.0.0.1"))
	if err != nil || got.Subject.CommonName != "second" {
		t.Fatalf("after the files changed: %v, %v", got, err)
	}
}

func TestFilesThatDoNotFitLeaveTheOldOnesInUse(t *testing.T) {
	f, ca := testFiles(t), newAuthority(t)
	ca.issue(t, f, "good", 2)
	s, err := Open(f, time.Hour, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	other := Files{CA: f.CA + "2", Cert: f.Cert, Key: f.Key + "2"}
	ca.issue(t, other, "half-written", 3) // new certificate, old key
	refused := s.look([3][]byte{})
	if s.Failures() != 1 {
		t.Fatalf("failures = %d, want 1", s.Failures())
	}
	if s.look(refused); s.Failures() != 1 {
		t.Fatal("the same bad files were reported twice")
	}
	got, err := handshake(t, s.Server(tls.NoClientCert), s.Client("127.0.0.1"))
	if err != nil || got.Subject.CommonName != "good" {
		t.Fatalf("handshake: %v, %v", got, err)
	}
}

func TestClientOfAnotherAuthorityIsRefused(t *testing.T) {
	f, g := testFiles(t), testFiles(t)
	newAuthority(t).issue(t, f, "server", 2)
	newAuthority(t).issue(t, g, "stranger", 2)
	s, err := Open(f, time.Hour, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := Open(g, time.Hour, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cfg := c.Client("127.0.0.1")
	cfg.RootCAs = s.current.Load().pool
	if _, err := handshake(t, s.Server(tls.RequireAndVerifyClientCert), cfg); err == nil {
		t.Fatal("a stranger's certificate was accepted")
	}
}

func TestMissingFileIsNamed(t *testing.T) {
	f := testFiles(t)
	if _, err := Open(f, time.Hour, quiet); err == nil || !os.IsNotExist(unwrapAll(err)) {
		t.Fatalf("err = %v, want one that names the missing file", err)
	}
	if err := (Files{Cert: "x"}).Validate(false); err == nil {
		t.Fatal("a certificate without its key was accepted")
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		if _, isPath := err.(*os.PathError); isPath {
			return err
		}
		err = u.Unwrap()
	}
}
