package test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/testcerts"
)

// TestMutualTLS runs one cluster through its life with TLS. Clients write all
// the time, and none of their calls may fail.
func TestMutualTLS(t *testing.T) {
	skipIfShort(t)
	s := startSecured(t, 3, "tls: {clients: require}\n")
	var pair atomic.Pointer[tls.Certificate] // what the writing clients show
	show := func(ca *testcerts.Authority) { p := ca.Pair(t, "writer", testcerts.ClientOnly); pair.Store(&p) }
	show(s.ca)
	load := startCounters(t, s.endpoints(), 2, client.WithTLS(&tls.Config{
		RootCAs: s.roots(), MinVersion: tls.VersionTLS12,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Load(), nil },
	}))
	step := func(name string, f func(*testing.T)) {
		if t.Run(name, f) {
			load.waitProgress(20 * time.Second) // nobody was harmed
		}
	}
	step("strangers are refused at every port", s.strangersAreRefused)
	step("the client says why it is refused", s.clientSaysWhy)
	step("only servers are peers, and only the right ones", s.peersAreChecked)
	step("only a superuser is admin", s.onlySuperusersAreAdmin)
	step("a bad pair keeps the old one", s.badPairKeepsTheOldOne)
	step("the authority is replaced", func(t *testing.T) { s.authorityIsReplaced(t, show) })
	step("the leader is killed", func(t *testing.T) {
		lead := s.leader()
		lead.kill()
		load.waitProgress(20 * time.Second)
		lead.start()
		poll(t, 30*time.Second, "ready again", lead.ready)
	})
	step("a stranger cannot join", s.strangerCannotJoin)
	load.stop()
}

// refusal is what a port answers to a TLS handshake with cfg; nil if it does not
// refuse. It says nothing itself, so that no answer can be lost.
func refusal(address string, cfg *tls.Config) error {
	conn, err := shake(address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1)) // what the server thinks of us comes after the handshake
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return nil // it waits for what we have to say
	}
	return err
}

// accepted is nil if a port takes a client with cfg and answers it.
func accepted(port, address string, cfg *tls.Config) error {
	conn, err := shake(address, cfg)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	switch port {
	case "http":
		_, err = io.WriteString(conn, "GET /livez HTTP/1.0\r\n\r\n")
	case "peer":
		_, err = conn.Write(peerHello(peerRPC, "", "", ""))
	}
	_, rerr := conn.Read(make([]byte, 1)) // at the gRPC port the server begins
	return errors.Join(err, rerr)
}

func shake(address string, cfg *tls.Config) (*tls.Conn, error) {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2", "http/1.1"} // whichever the port speaks
	return tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", address, cfg)
}

func (s *secured) strangersAreRefused(t *testing.T) {
	foreign := testcerts.New(t, "first authority") // the name proves nothing
	for port, address := range s.nodes[1].ports() {
		for who, tc := range map[string]struct {
			cfg  *tls.Config
			want string
		}{
			"without a certificate": {s.as(""), "certificate required"},
			"of another authority":  {s.showing(foreign.Pair(t, "n1", testcerts.Both)), "unknown certificate authority"},
			"expired":               {s.showing(s.ca.Pair(t, "n1", testcerts.Expired)), "expired certificate"},
			"self-signed":           {s.showing(selfSigned(t)), "unknown certificate authority"},
		} {
			if err := refusal(address, tc.cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s port, %s: %v, want %q", port, who, err, tc.want)
			}
		}
		if err := accepted(port, address, s.showing(s.ca.Pair(t, "n1", testcerts.Both))); err != nil {
			t.Errorf("%s port, a good certificate: %v", port, err)
		}
		old := s.as(superuser)
		old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		if err := refusal(address, old); err == nil || !strings.Contains(err.Error(), "protocol version") {
			t.Errorf("%s port, TLS 1.1: %v", port, err)
		}
		if answer, err := sayPlain(address); err != nil || strings.Contains(answer, "ready") || strings.Contains(answer, "CRDP") {
			t.Errorf("%s port, plain text: answered %q, %v", port, answer, err)
		}
	}
	resp, err := http.Get("http://" + s.nodes[1].http() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "HTTPS") {
		t.Errorf("plain HTTP: %d %q", resp.StatusCode, body)
	}
}

func selfSigned(t *testing.T) tls.Certificate {
	a := testcerts.New(t, "n1")
	return a.Pair(t, "n1", testcerts.Both)
}

// sayPlain sends what a peer without TLS would, and returns what comes back
// until the server closes the connection.
func sayPlain(address string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(15 * time.Second)); err != nil {
		return "", err
	}
	if _, err := conn.Write(peerHello(2, "", "n1~0000000000000001", "")); err != nil {
		return "", err
	}
	b, err := io.ReadAll(conn)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return string(b), errors.New("the connection stays open")
	}
	return string(b), nil // closed or reset
}

func (s *secured) clientSaysWhy(t *testing.T) {
	foreign := testcerts.New(t, "other")
	for who, tc := range map[string]struct {
		opts []client.Option
		want string
		soon bool // no repetition can help
	}{
		"plain text":            {nil, "closes the connection at once (has it TLS", false},
		"without a certificate": {[]client.Option{client.WithTLS(s.as(""))}, "certificate required", true},
		"of another authority":  {[]client.Option{client.WithTLS(s.showing(foreign.Pair(t, "alice", testcerts.ClientOnly)))}, "unknown certificate authority", true},
		"expired":               {[]client.Option{client.WithTLS(s.showing(s.ca.Pair(t, "alice", testcerts.Expired)))}, "expired certificate", true},
		"that trusts another":   {[]client.Option{client.WithTLS(&tls.Config{RootCAs: foreign.Pool()})}, "signed by unknown authority", true},
		"that wants another":    {[]client.Option{client.WithTLS(s.as("alice")), client.WithServerName("db.example.org")}, "db.example.org", true},
	} {
		limit := 20 * time.Second
		if !tc.soon {
			limit = time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		c, err := client.Dial(ctx, s.target(), tc.opts...)
		cancel()
		if err == nil {
			c.Close()
			t.Errorf("a client %s is let in", who)
			continue
		}
		if !errors.Is(err, client.ErrUnavailable) || strings.Count(err.Error(), tc.want) != 3 {
			t.Errorf("a client %s: %v; want %q for each of the servers", who, err, tc.want)
		}
		if tc.soon && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a client %s tried in vain until its time was over", who)
		}
	}
}

// onlySuperusersAreAdmin asks for everything at each server.
func (s *secured) onlySuperusersAreAdmin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lead := s.leader()
	for _, p := range s.nodes {
		alice := p.admin(t, s.as("alice"))
		for name, call := range map[string]func() error{
			"status":   func() error { _, err := alice.Status(ctx, &coordpb.StatusRequest{}); return err },
			"stats":    func() error { _, err := alice.Stats(ctx, &coordpb.StatsRequest{}); return err },
			"sessions": func() error { _, err := alice.Sessions(ctx, &coordpb.SessionsRequest{}); return err },
			"init":     func() error { _, err := alice.Init(ctx, &coordpb.InitRequest{}); return err },
			"move":     func() error { _, err := alice.MoveLeader(ctx, &coordpb.MoveLeaderRequest{}); return err },
			"snapshot": func() error { _, err := alice.Snapshot(ctx, &coordpb.SnapshotRequest{}); return err },
		} {
			err := call()
			if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(), "superuser") {
				t.Errorf("%s at %s for a user: %v", name, p.name, err)
			}
		}
		if n, err := s.metric(p, "coord_admin_refused_total"); err != nil || n != "6" {
			t.Errorf("%s counts %s refusals, %v", p.name, n, err)
		}
		if text, _ := os.ReadFile(p.log()); strings.Count(string(text), "admin_refused") != 6 || !strings.Contains(string(text), "x509:alice") {
			t.Errorf("the log of %s does not say who was refused", p.name)
		}
		if st, err := p.status(); err != nil || st.Leader != lead.name {
			t.Errorf("%s sees leader %q, %v", p.name, st.GetLeader(), err)
		}
	}
	root := s.nodes[0].admin(t, s.as(superuser))
	reply, err := root.MoveLeader(ctx, &coordpb.MoveLeaderRequest{To: s.follower().name})
	if err != nil || reply.GetError() != nil || reply.GetLeader() == lead.name {
		t.Errorf("the superuser moves the leader: %v, %v", reply, err)
	}
}

// TestPlainTextBeyondLoopbackMustBeAskedFor starts servers that listen to the
// network.
func TestPlainTextBeyondLoopbackMustBeAskedFor(t *testing.T) {
	skipIfShort(t)
	for setting, env := range map[string]string{
		"listen.grpc": "COORDD_LISTEN_GRPC=0.0.0.0:%d", "listen.http": "COORDD_LISTEN_HTTP=0.0.0.0:%d", "listen.peer": "COORDD_LISTEN_PEER=:%d",
	} {
		c := newProcesses(t, 1, "")
		p := c.nodes[0]
		p.extraEnv = []string{fmt.Sprintf(env, p.base+5)}
		p.start()
		if !p.Ended(20 * time.Second) {
			t.Fatalf("%s: it serves", setting)
		}
		text, _ := os.ReadFile(p.log())
		if code := p.State().ExitCode(); code != 2 {
			t.Errorf("%s: exit code %d", setting, code)
		}
		for _, want := range []string{setting, "without TLS", "tls.cert", "tls.key", "tls.ca", "insecure"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: the message %q does not speak of %s", setting, text, want)
			}
		}
	}
	c := newProcesses(t, 1, "insecure: true\n")
	p := c.nodes[0]
	p.extraEnv = []string{fmt.Sprintf("COORDD_LISTEN_GRPC=0.0.0.0:%d", p.base), fmt.Sprintf("COORDD_LISTEN_HTTP=0.0.0.0:%d", p.base+2)}
	p.start()
	c.waitReady(30 * time.Second)
	if text, _ := os.ReadFile(p.log()); !strings.Contains(string(text), "everybody who can connect is admin") {
		t.Error("a server that is open to everybody does not say so")
	}
}
