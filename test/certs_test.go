package test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/testcerts"
)

// superuser is the common name of the operator's certificate.
const superuser = "root"

// secured is a cluster of real servers with mutual TLS on every port.
type secured struct {
	*processes
	ca    *testcerts.Authority // of the certificates in use
	next  *testcerts.Authority // to come; its certificates are trusted by clients already
	files map[*process]testcerts.Files
}

// newSecured makes the servers' certificates and starts nothing yet.
func newSecured(t testing.TB, n int, extra string) *secured {
	t.Helper()
	s := &secured{
		processes: newProcesses(t, n, "auth: {superusers: ["+superuser+"]}\n"+extra),
		ca:        testcerts.New(t, "first authority"),
		next:      testcerts.New(t, "second authority"),
		files:     map[*process]testcerts.Files{},
	}
	s.creds = credentials.NewTLS(s.as(superuser))
	for _, p := range s.nodes {
		dir := filepath.Join(s.dir, p.name+"-certs")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s.files[p] = testcerts.In(dir)
		s.ca.Write(t, s.files[p], p.name, testcerts.Both)
		p.extraEnv = append(p.extraEnv, tlsEnv(s.files[p])...)
	}
	return s
}

func startSecured(t testing.TB, n int, extra string) *secured {
	t.Helper()
	s := newSecured(t, n, extra)
	for _, p := range s.nodes {
		p.start()
	}
	s.waitReady(30 * time.Second)
	return s
}

func tlsEnv(f testcerts.Files) []string {
	return []string{"COORDD_TLS_CA=" + f.CA, "COORDD_TLS_CERT=" + f.Cert, "COORDD_TLS_KEY=" + f.Key}
}

// as is the TLS configuration of a client with a certificate of that name; ""
// for none.
func (s *secured) as(name string) *tls.Config {
	s.t.Helper()
	cfg := &tls.Config{RootCAs: s.roots(), MinVersion: tls.VersionTLS12}
	if name != "" {
		cfg.Certificates = []tls.Certificate{s.ca.Pair(s.t, name, testcerts.ClientOnly)}
	}
	return cfg
}

func (s *secured) roots() *x509.CertPool {
	p := s.ca.Pool()
	p.AddCert(s.next.Cert)
	return p
}

// showing is a configuration that shows a certificate whether or not the server
// asks for one of its kind.
func (s *secured) showing(pair tls.Certificate) *tls.Config {
	return &tls.Config{
		RootCAs: s.roots(), MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
	}
}

// dial opens a session as that name.
func (s *secured) dial(name string, opts ...client.Option) *client.Client {
	s.t.Helper()
	return dial(s.t, s.endpoints(), append([]client.Option{client.WithTLS(s.as(name))}, opts...)...)
}

// admin is the admin service of one server, for who has that configuration.
func (p *process) admin(t testing.TB, cfg *tls.Config) coordpb.AdminClient {
	t.Helper()
	conn, err := grpc.NewClient(p.grpc(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return coordpb.NewAdminClient(conn)
}

// fetch gets a page of the HTTP port, with a connection of its own.
func (p *process) fetch(cfg *tls.Config, path string) (code int, body string, err error) {
	tr := &http.Transport{TLSClientConfig: cfg, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	h := &http.Client{Transport: tr, Timeout: 10 * time.Second}
	resp, err := h.Get("https://" + p.http() + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// served is the certificate that a port shows.
func served(ctx context.Context, address string, cfg *tls.Config) (*x509.Certificate, error) {
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// reload tells the server that its files are new.
func (p *process) reload() { p.signal(syscall.SIGHUP) }

// metric reads one metric without labels.
func (s *secured) metric(p *process, name string) (string, error) {
	code, body, err := p.fetch(s.as(superuser), "/metrics")
	if err != nil || code != http.StatusOK {
		return "", errors.Join(err, errors.New(http.StatusText(code)))
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", errors.New("no metric " + name)
}
