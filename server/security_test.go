package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/internal/tlsfiles"
)

// certs makes an authority and writes certificates of it.
type certs struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCerts(t testing.TB) *certs {
	t.Helper()
	c := &certs{t: t, dir: t.TempDir()}
	var err error
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	if c.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	c.write("ca.pem", "CERTIFICATE", der)
	return c
}

func (c *certs) write(name, kind string, der []byte) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// issue makes the files of a party with a common name.
func (c *certs) issue(name string) tlsfiles.Files {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, Organization: []string{"tests"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, c.cert, &key.PublicKey, c.key)
	if err != nil {
		c.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	return tlsfiles.Files{
		CA:   filepath.Join(c.dir, "ca.pem"),
		Cert: c.write(name+".pem", "CERTIFICATE", der), Key: c.write(name+"-key.pem", "EC PRIVATE KEY", keyDER),
	}
}

// client is a TLS configuration with the certificate of a party; "" for none.
func (c *certs) client(name string) *tls.Config {
	c.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	cfg := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		f := c.issue(name)
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			c.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg
}

func (r *running) secure(cfg *tls.Config) *running {
	r.t.Helper()
	conn, err := grpc.NewClient(r.Addrs().GRPC.String(), grpc.WithTransportCredentials(credentials.NewTLS(cfg)))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	other := *r
	other.conn = conn
	return &other
}

// TestTLSPortsAndIdentities serves every port with TLS: clients are who their
// certificate says, and only superusers are admins.
func TestTLSPortsAndIdentities(t *testing.T) {
	c := newCerts(t)
	cfg := oneServer(t)
	cfg.TLS, cfg.ClientAuth = c.issue("n1"), tls.VerifyClientCertIfGiven
	cfg.Superusers, cfg.SuperDigest, cfg.Pprof = []string{"root"}, digestIdentity([]byte("super:secret")), true
	r := start(t, cfg)
	alice, nobody, root := r.secure(c.client("alice")), r.secure(c.client("")), r.secure(c.client("root"))

	s := alice.open()
	private := create("/private", "hers")
	private.Acl = []*coordpb.ACL{{Perms: 31, Scheme: "x509", Id: "alice"}}
	s.must(private)
	if got := s.read(get("/private")); string(got.GetRead().GetData()) != "hers" {
		t.Errorf("alice reads %v", got)
	}
	wantCode(t, nobody.open().read(get("/private")).GetError(), coordpb.Code_CODE_NO_AUTH)
	wantCode(t, nobody.open().write(set("/private", "x")).GetError(), coordpb.Code_CODE_NO_AUTH)
	if got := root.open().read(get("/private")); got.GetError() != nil {
		t.Errorf("a superuser reads %v", got)
	}

	for name, client := range map[string]*running{"alice": alice, "nobody": nobody} {
		_, err := coordpb.NewAdminClient(client.conn).Status(t.Context(), &coordpb.StatusRequest{})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s as admin: %v", name, err)
		}
	}
	if _, err := coordpb.NewAdminClient(root.conn).Status(t.Context(), &coordpb.StatusRequest{}); err != nil {
		t.Errorf("root as admin: %v", err)
	}
	super := metadata.AppendToOutgoingContext(t.Context(), authMetadata, "digest super:secret")
	if _, err := coordpb.NewAdminClient(nobody.conn).Status(super, &coordpb.StatusRequest{}); err != nil {
		t.Errorf("the super digest as admin: %v", err)
	}
	r.checkHTTPS(c)
	r.checkPlainTextIsRefused()
}

func (r *running) checkHTTPS(c *certs) {
	r.t.Helper()
	for name, want := range map[string]int{"": http.StatusForbidden, "root": http.StatusOK} {
		h := &http.Client{Transport: &http.Transport{TLSClientConfig: c.client(name)}}
		for path, code := range map[string]int{"/livez": 200, "/metrics": 200, "/debug/pprof/": want} {
			resp, err := h.Get("https://" + r.Addrs().HTTP.String() + path)
			if err != nil {
				r.t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != code {
				r.t.Errorf("%s as %q: %d, want %d", path, name, resp.StatusCode, code)
			}
		}
		h.CloseIdleConnections()
	}
}

func (r *running) checkPlainTextIsRefused() {
	r.t.Helper()
	conn, err := grpc.NewClient(r.Addrs().GRPC.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	if _, err := coordpb.NewCoordClient(conn).Read(ctx, &coordpb.ReadRequest{Read: get("/")}); err == nil {
		r.t.Error("plain text is served")
	}
}

func TestDigestIdentityIsZooKeepers(t *testing.T) {
	// printf super:secret | openssl sha1 -binary | base64
	if got := digestIdentity([]byte("super:secret")); got != "super:lK75jTNcA+U9vtVEw5vB51mj/w4=" {
		t.Errorf("digest %s", got)
	}
	r := start(t, oneServer(t))
	as := func(credential string) *tester {
		return r.open(func(h *coordpb.Hello) {
			h.Auth = []*coordpb.Auth{{Scheme: "digest", Credential: []byte(credential)}}
		})
	}
	alice, mallory := as("alice:a"), as("alice:b")
	mine := create("/mine", "x")
	mine.Acl = []*coordpb.ACL{{Perms: 31, Scheme: "auth"}}
	alice.must(mine)
	if got := alice.read(get("/mine")); got.GetError() != nil {
		t.Error(got)
	}
	wantCode(t, mallory.read(get("/mine")).GetError(), coordpb.Code_CODE_NO_AUTH)
	acl := alice.read(&coordpb.Read{Kind: coordpb.Read_KIND_ACL, Path: "/mine"}).GetRead().GetAcl()
	if len(acl) != 1 || acl[0].GetScheme() != "digest" || acl[0].GetId() != digestIdentity([]byte("alice:a")) {
		t.Errorf("stored %v", acl)
	}
}

// TestWatchShowsDataOnlyToThoseWhoMayRead: events come to everybody, as in
// ZooKeeper; data in them does not.
func TestWatchShowsDataOnlyToThoseWhoMayRead(t *testing.T) {
	r := start(t, oneServer(t))
	as := func(credential string) *tester {
		return r.open(func(h *coordpb.Hello) {
			h.Auth = []*coordpb.Auth{{Scheme: "digest", Credential: []byte(credential)}}
		})
	}
	alice, bob := as("alice:a"), as("bob:b")
	for _, c := range []*tester{alice, bob} {
		c.watch(&coordpb.Watch{Path: "/mine", Kind: coordpb.Watch_KIND_NODE, WithData: true})
	}
	mine := create("/mine", "secret")
	mine.Acl = []*coordpb.ACL{{Perms: 31, Scheme: "auth"}}
	alice.must(mine)
	alice.wait("event", func() bool { return len(alice.events) == 1 })
	bob.wait("event", func() bool { return len(bob.events) == 1 })
	if e := alice.seen()[0]; string(e.GetData()) != "secret" || e.GetDataDropped() {
		t.Errorf("alice: %v", e)
	}
	if e := bob.seen()[0]; e.GetData() != nil || !e.GetDataDropped() {
		t.Errorf("bob: %v", e)
	}
	_, reply := bob.watch(&coordpb.Watch{Path: "/mine", Kind: coordpb.Watch_KIND_NODE, WithData: true, Initial: true})
	wantCode(t, reply.GetError(), coordpb.Code_CODE_NO_AUTH)
}

// TestDataOfWhatHasGoneIsStillTold to those who might read it then, and to nobody
// else: changes may follow each other closely, or be told when a watch resumes.
func TestDataOfWhatHasGoneIsStillTold(t *testing.T) {
	r := start(t, oneServer(t))
	as := func(credential string) *tester {
		return r.open(func(h *coordpb.Hello) {
			h.Auth = []*coordpb.Auth{{Scheme: "digest", Credential: []byte(credential)}}
		})
	}
	alice, bob := as("alice:a"), as("bob:b")
	mine := func(data string) *coordpb.Op {
		op := create("/mine", data)
		op.Acl = []*coordpb.ACL{{Perms: 31, Scheme: "auth"}}
		return op
	}
	from := alice.must(create("/other", "")).GetZxid()
	alice.must(create("/open", "seen"))
	alice.must(remove("/open"))
	alice.must(mine("secret"))
	alice.must(remove("/mine"))
	alice.must(create("/mine", "public")) // another node, which all may read
	told := func(c *tester) map[string]string {
		c.watch(&coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE, WithData: true, Since: from})
		c.wait("events", func() bool { return len(c.events) >= 5 })
		out := map[string]string{}
		for _, e := range c.seen() {
			if e.GetType() == coordpb.EventType_EVENT_CREATED {
				out[e.GetPath()] += fmt.Sprintf("%s %v;", e.GetData(), e.GetDataDropped())
			}
		}
		return out
	}
	if got := told(alice); got["/open"] != "seen false;" || got["/mine"] != "secret false;public false;" {
		t.Errorf("alice: %q", got)
	}
	if got := told(bob); got["/open"] != "seen false;" || got["/mine"] != " true;public false;" {
		t.Errorf("bob: %q", got)
	}
}

func TestConfigIsValidated(t *testing.T) {
	good := oneServer(t)
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(c *Config){
		"listen.grpc":  func(c *Config) { c.GRPC = "" },
		"without TLS":  func(c *Config) { c.GRPC = "0.0.0.0:7420" },
		"listen.http":  func(c *Config) { c.HTTP = ":7422" },
		"listen.peer":  func(c *Config) { c.Cluster.Listen = "10.0.0.1:7421" },
		"session":      func(c *Config) { c.Session.Min, c.Session.Max = time.Minute, time.Second },
		"tls.ca":       func(c *Config) { c.TLS = tlsfiles.Files{Cert: "a", Key: "b"} },
		"tls":          func(c *Config) { c.TLS = tlsfiles.Files{Cert: "a"} },
		"node_size":    func(c *Config) { c.Limits.NodeBytes = 1 << 30 },
		"not listed":   func(c *Config) { c.Cluster.Name = "n9" },
		"missing port": func(c *Config) { c.GRPC = "localhost" },
	} {
		c := good
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
	open := good
	open.GRPC, open.Insecure = "0.0.0.0:0", true
	if err := open.Validate(); err != nil {
		t.Errorf("insecure by wish: %v", err)
	}
}

func TestAdvertisedAddresses(t *testing.T) {
	cfg := oneServer(t)
	cfg.GRPC, cfg.Insecure = "0.0.0.0:0", true
	cfg.Cluster.Peers[0].Address = "localhost:" + strings.Split(cfg.Cluster.Peers[0].Address, ":")[1]
	cfg.Advertise.HTTP = "n1.example.org:80"
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, port, _ := net.SplitHostPort(s.Addrs().GRPC.String())
	if got := s.info().GRPCAddress; got != "localhost:"+port {
		t.Errorf("clients are told %s", got)
	}
	if got := s.info().HTTPAddress; got != "n1.example.org:80" {
		t.Errorf("operators are told %s", got)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestTakenPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := oneServer(t)
	cfg.HTTP = l.Addr().String()
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "listen.http") {
		t.Errorf("error %v", err)
	}
	cfg.HTTP = ""
	start(t, cfg).stop() // the data directory was given back
}
