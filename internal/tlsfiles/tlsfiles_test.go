package tlsfiles

import (
	"crypto/tls"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/testcerts"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func testFiles(t *testing.T) testcerts.Files {
	t.Helper()
	return testcerts.In(t.TempDir())
}

func open(t *testing.T, f testcerts.Files, every time.Duration) *Source {
	t.Helper()
	s, err := Open(Files(f), every, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// handshake connects a client to a server of the two configurations, sends a
// byte to it, and returns what the client knows of the connection.
func handshake(t *testing.T, server, client *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- serveOne(l, server) }()
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		return tls.ConnectionState{}, errors.Join(err, <-served)
	}
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 1)) // a refusal, or a ticket, comes first
	return c.ConnectionState(), errors.Join(err, <-served)
}

func serveOne(l net.Listener, cfg *tls.Config) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = tls.Server(c, cfg).Write([]byte("x"))
	return err
}

func servedName(t *testing.T, server, client *tls.Config) string {
	t.Helper()
	state, err := handshake(t, server, client)
	if err != nil {
		t.Fatal(err)
	}
	return state.PeerCertificates[0].Subject.CommonName
}

func TestNewFilesServeNewHandshakes(t *testing.T) {
	f, ca := testFiles(t), testcerts.New(t, "ca")
	ca.Write(t, f, "first", testcerts.Both)
	s := open(t, f, time.Hour)
	server := s.Server(tls.RequireAndVerifyClientCert)
	if got := servedName(t, server, s.Client("127.0.0.1")); got != "first" {
		t.Fatalf("first handshake: %s", got)
	}
	ca.Write(t, f, "second", testcerts.Both)
	s.look([3][]byte{})
	if got := servedName(t, server, s.Client("127.0.0.1")); got != "second" {
		t.Fatalf("after the files changed: %s", got)
	}
}

// TestFilesAreLookedAtInTimeAndOnDemand waits for the Source to find new files
// by itself and when it is told to look.
func TestFilesAreLookedAtInTimeAndOnDemand(t *testing.T) {
	for name, every := range map[string]time.Duration{"in time": 10 * time.Millisecond, "on demand": time.Hour} {
		f, ca := testFiles(t), testcerts.New(t, "ca")
		ca.Write(t, f, "first", testcerts.Both)
		s := open(t, f, every)
		before := s.current.Load()
		ca.Write(t, f, "second", testcerts.Both)
		if every == time.Hour {
			s.Look()
			s.Look() // never waits
		}
		for deadline := time.Now().Add(10 * time.Second); s.current.Load() == before; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the new files are not in use", name)
			}
		}
	}
}

func TestFilesThatDoNotFitLeaveTheOldOnesInUse(t *testing.T) {
	f, ca := testFiles(t), testcerts.New(t, "ca")
	ca.Write(t, f, "good", testcerts.Both)
	s := open(t, f, time.Hour)
	cert, _ := ca.Issue(t, "half-written", testcerts.Both)
	testcerts.Put(t, f.Cert, cert) // new certificate, old key
	refused := s.look([3][]byte{})
	if s.Failures() != 1 {
		t.Fatalf("failures = %d, want 1", s.Failures())
	}
	if s.look(refused); s.Failures() != 1 {
		t.Fatal("the same bad files were reported twice")
	}
	if got := servedName(t, s.Server(tls.NoClientCert), s.Client("127.0.0.1")); got != "good" {
		t.Fatalf("served: %s", got)
	}
}

func TestClientOfAnotherAuthorityIsRefused(t *testing.T) {
	f, ca := testFiles(t), testcerts.New(t, "ca")
	ca.Write(t, f, "server", testcerts.Both)
	s := open(t, f, time.Hour)
	for name, certs := range map[string][]tls.Certificate{
		"another authority": {testcerts.New(t, "ca").Pair(t, "stranger", testcerts.Both)},
		"expired":           {ca.Pair(t, "late", testcerts.Expired)},
		"not for clients":   {ca.Pair(t, "web", testcerts.ServerOnly)},
		"none":              nil,
	} {
		client := &tls.Config{RootCAs: ca.Pool(), Certificates: certs}
		if len(certs) > 0 { // even if the server does not ask for its kind
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certs[0], nil }
		}
		if _, err := handshake(t, s.Server(tls.RequireAndVerifyClientCert), client); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestTrustEndsWithTheNextHandshake lets a client come back with what it kept of
// its last connection after its authority was taken out of the files.
func TestTrustEndsWithTheNextHandshake(t *testing.T) {
	f, old, next := testFiles(t), testcerts.New(t, "old"), testcerts.New(t, "new")
	old.Write(t, f, "server", testcerts.Both)
	s := open(t, f, time.Hour)
	pool := old.Pool()
	pool.AddCert(next.Cert)
	client := &tls.Config{
		RootCAs: pool, Certificates: []tls.Certificate{old.Pair(t, "alice", testcerts.ClientOnly)},
		ClientSessionCache: tls.NewLRUClientSessionCache(1), ServerName: "127.0.0.1",
	}
	server := s.Server(tls.RequireAndVerifyClientCert)
	for range 2 {
		state, err := handshake(t, server, client)
		if err != nil || state.DidResume {
			t.Fatalf("resumed %v, %v", state.DidResume, err)
		}
	}
	next.Write(t, f, "server", testcerts.Both)
	s.look([3][]byte{})
	if _, err := handshake(t, server, client); err == nil {
		t.Error("a client of the old authority is let in")
	}
}

func TestOfferedProtocolsAreThoseOfTheListener(t *testing.T) {
	f, ca := testFiles(t), testcerts.New(t, "ca")
	ca.Write(t, f, "server", testcerts.Both)
	s := open(t, f, time.Hour)
	for _, tc := range []struct {
		speaks []string
		want   string
	}{{[]string{"http/1.1"}, "http/1.1"}, {[]string{"h2"}, "h2"}, {nil, ""}} {
		client := &tls.Config{RootCAs: ca.Pool(), NextProtos: []string{"h2", "http/1.1"}}
		state, err := handshake(t, s.Server(tls.NoClientCert, tc.speaks...), client)
		if err != nil || state.NegotiatedProtocol != tc.want {
			t.Errorf("a listener of %q is spoken to in %q, %v", tc.speaks, state.NegotiatedProtocol, err)
		}
	}
}

func TestExpiryIsThatOfTheCertificateInUse(t *testing.T) {
	f, ca := testFiles(t), testcerts.New(t, "ca")
	ca.Write(t, f, "server", testcerts.Both)
	if got := time.Until(open(t, f, time.Hour).Expiry()); got < time.Hour || got > 4*time.Hour {
		t.Errorf("ends in %s", got)
	}
	f.Cert, f.Key = "", ""
	if got := open(t, f, time.Hour).Expiry(); !got.IsZero() {
		t.Errorf("without a certificate: %s", got)
	}
}

func TestUnusableFilesAreNamed(t *testing.T) {
	f := testFiles(t)
	if _, err := Open(Files(f), time.Hour, quiet); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	testcerts.New(t, "ca").Write(t, f, "server", testcerts.Both)
	testcerts.Put(t, f.CA, []byte("no certificate"))
	if _, err := Open(Files(f), time.Hour, quiet); err == nil || !strings.Contains(err.Error(), f.CA) {
		t.Errorf("a CA file without a certificate: %v", err)
	}
	for _, half := range []Files{{Cert: "x"}, {Key: "x"}} {
		if err := half.Validate(false); err == nil {
			t.Errorf("%+v was accepted", half)
		}
	}
	if (Files{CA: "x"}).Validate(false) != nil || (Files{CA: "x"}).Validate(true) == nil {
		t.Error("only a client may do without a certificate")
	}
}
