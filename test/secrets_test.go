package test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// TestSessionsAreTheirOwners: a session is attached by who has its secret, at its
// cluster, with a connection number that rises; and nobody else disturbs it.
func TestSessionsAreTheirOwners(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	other := startProcesses(t, 1, "")
	var conns []*grpc.ClientConn
	for _, p := range append(slices.Clone(c.nodes), other.nodes...) {
		conns = append(conns, connect(t, p.grpc(), insecure.NewCredentials()))
	}
	s, second := greet(t, conns[0], rawHello()), greet(t, conns[1], rawHello())
	foreign := greet(t, conns[3], rawHello())
	changed := func(f func(*coordpb.Hello)) *coordpb.Hello {
		h := s.attachHello(10)
		f(h)
		return h
	}
	refused := func(what string, conn *grpc.ClientConn, h *coordpb.Hello, codes ...coordpb.Code) {
		t.Helper()
		w := greet(t, conn, h).welcome
		if !slices.Contains(codes, w.GetError().GetCode()) || w.GetSessionId() != 0 || w.GetSecret() != nil {
			t.Errorf("%s: %v, want one of %v", what, w, codes)
		}
	}
	for i, conn := range conns[:3] {
		at := fmt.Sprintf("at %s, ", c.nodes[i].name)
		for what, secret := range map[string][]byte{
			"one bit differs": append([]byte{s.welcome.Secret[0] ^ 1}, s.welcome.Secret[1:]...),
			"all zero":        make([]byte, 16), "another session's": second.welcome.Secret,
		} {
			refused(at+"secret: "+what, conn, changed(func(h *coordpb.Hello) { h.Secret = secret }), coordpb.Code_CODE_AUTH_FAILED)
		}
		for what, secret := range map[string][]byte{"none": nil, "short": s.welcome.Secret[:15], "long": make([]byte, 1000)} {
			refused(at+"secret: "+what, conn, changed(func(h *coordpb.Hello) { h.Secret = secret }), coordpb.Code_CODE_MALFORMED)
		}
		refused(at+"another cluster", conn, changed(func(h *coordpb.Hello) { h.ClusterId = foreign.welcome.ClusterId }), coordpb.Code_CODE_WRONG_CLUSTER)
		refused(at+"an older connection", conn, changed(func(h *coordpb.Hello) { h.Connection = 1 }), coordpb.Code_CODE_MALFORMED)
		refused(at+"a session of another cluster", conn, foreign.attachHello(2), coordpb.Code_CODE_WRONG_CLUSTER)
		beatRefused(t, conn, &coordpb.HeartbeatRequest{SessionId: s.welcome.SessionId, Secret: second.welcome.Secret, Connection: 1, Number: 1})
	}
	refused("at the other cluster", conns[3], s.attachHello(2), coordpb.Code_CODE_WRONG_CLUSTER)
	refused("at the other cluster, not naming it", conns[3], changed(func(h *coordpb.Hello) { h.ClusterId = "" }),
		coordpb.Code_CODE_UNKNOWN_SESSION, coordpb.Code_CODE_AUTH_FAILED)
	s.lives("after what others tried")
	second.lives("after what others tried")
	foreign.lives("after what others tried")

	moved := greet(t, conns[1], s.attachHello(5))
	if moved.welcome.GetError() != nil || moved.welcome.GetConnection() != 5 {
		t.Fatalf("the owner attaches: %v", moved.welcome)
	}
	moved.seq = s.seq
	refused("a late connection of the owner", conns[2], s.attachHello(4), coordpb.Code_CODE_SESSION_MOVED)
	moved.lives("after a late connection")
}

// beatRefused sends a heartbeat that must not count.
func beatRefused(t *testing.T, conn *grpc.ClientConn, beat *coordpb.HeartbeatRequest) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := coordpb.NewCoordClient(conn).Heartbeat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(beat); err != nil {
		t.Fatal(err)
	}
	got, err := stream.Recv()
	if err != nil || got.GetError().GetCode() != coordpb.Code_CODE_AUTH_FAILED && got.GetError().GetCode() != coordpb.Code_CODE_SESSION_MOVED {
		t.Errorf("a heartbeat with the wrong secret: %v, %v", got, err)
	}
}

// TestSecretsAreInNoLog uses every secret there is, rightly and wrongly, with the
// log as talkative as it gets.
func TestSecretsAreInNoLog(t *testing.T) {
	skipIfShort(t)
	const userData, password, wrong = "data-of-a-znode", "carol:pass-word", "carol:wrong-word"
	g := startGuarded(t, "log: {level: debug, slow_request: 1ns}\n")
	p := g.nodes[0]
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	secrets := map[string][]byte{
		"data": []byte(userData), "password": []byte(password), "wrong password": []byte(wrong), "super password": []byte(superCredential),
		"digest": []byte(digestOf(password)), "wrong digest": []byte(digestOf(wrong)), "super digest": []byte(digestOf(superCredential)),
	}
	for name, b := range map[string][]byte{"password": secrets["password"], "super password": secrets["super password"], "wrong password": secrets["wrong password"]} {
		_, word, _ := bytes.Cut(b, []byte(":"))
		secrets["word of the "+name] = word
	}
	conn := connect(t, p.grpc(), credentials.NewTLS(g.as("alice")))
	hello := rawHello()
	hello.Auth = []*coordpb.Auth{{Scheme: "digest", Credential: []byte(password)}}
	s := greet(t, conn, hello)
	secrets["session secret"], secrets["nonce"] = s.welcome.Secret, hello.Nonce
	guess := s.attachHello(2)
	guess.Secret = bytes.Repeat([]byte{0xA7}, 16)
	secrets["wrong session secret"] = guess.Secret
	if w := greet(t, conn, guess).welcome; w.GetError() == nil {
		t.Fatal(w)
	}
	badAuth := rawHello()
	badAuth.Auth = []*coordpb.Auth{{Scheme: "no-scheme", Credential: []byte(password)}}
	if w := greet(t, conn, badAuth).welcome; w.GetError() == nil {
		t.Fatal(w)
	}

	carol := g.dial("", client.WithAuth("digest", []byte(password)))
	mallory := g.dial("", client.WithAuth("digest", []byte(wrong)))
	if _, err := carol.Create(ctx, "/hers", []byte(userData), client.WithACL(client.ACL{Perms: 31, Scheme: "auth"})); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*client.Client{carol, mallory, g.people["super"]} {
		_, _ = c.Get(ctx, "/hers") // permitted or not: it is the log that matters
		_, _ = c.Set(ctx, "/hers", []byte(userData), 7)
		_, _, _ = c.ACL(ctx, "/hers")
		_, _ = c.SetACL(ctx, "/hers", []client.ACL{{Perms: 31, Scheme: "digest", ID: digestOf(password)}}, client.AnyVersion)
		_, _ = c.Admin().Any().Snapshot(ctx, &coordpb.SnapshotRequest{})
		_, _ = c.Admin().Any().Sessions(ctx, &coordpb.SessionsRequest{})
	}
	p.reload()
	p.stop()
	p.start() // replays the log of the cluster
	g.waitReady(30 * time.Second)
	if _, err := carol.Get(ctx, "/hers"); err != nil {
		t.Fatal(err)
	}
	text := g.everythingShown(t)
	for _, control := range []string{`"event":"session_opened"`, `"event":"admin_refused"`, `"level":"DEBUG"`, "slow", "digest:carol:x"} {
		if !bytes.Contains(text, []byte(control)) {
			t.Errorf("the log has no %s: the test proves nothing", control)
		}
	}
	for name, secret := range secrets {
		for form, shown := range forms(secret) {
			if i := bytes.Index(text, []byte(shown)); i >= 0 {
				t.Errorf("%s stands in the log, as %s: …%s…", name, form, text[max(0, i-200):i+40])
			}
		}
	}
}

// everythingShown is what others may see of the server: its log, its
// configuration as it prints it, its metrics and its command line.
func (g *guarded) everythingShown(t *testing.T) []byte {
	t.Helper()
	p := g.nodes[0]
	text, err := os.ReadFile(p.log())
	if err != nil {
		t.Fatal(err)
	}
	show := exec.Command(program(t, "coordd"), "config", "show", g.conf)
	show.Env = p.Cmd().Env
	config, err := show.CombinedOutput()
	if err != nil || !strings.Contains(string(config), "auth.super_digest") {
		t.Fatalf("config show: %v\n%s", err, config)
	}
	_, metrics, err := p.fetch(g.as(superuser), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid()))
	if err != nil && !os.IsNotExist(err) { // only Linux has it
		t.Fatal(err)
	}
	return slices.Concat(text, config, []byte(metrics), line)
}

// forms are the ways in which bytes get into a text.
func forms(b []byte) map[string]string {
	list := strings.Trim(fmt.Sprintf("%d", b), "[]")
	return map[string]string{
		"it is": string(b), "hexadecimal": hex.EncodeToString(b), "HEXADECIMAL": strings.ToUpper(hex.EncodeToString(b)),
		"base64": strings.TrimRight(base64.StdEncoding.EncodeToString(b), "="), "base64 for URLs": strings.TrimRight(base64.URLEncoding.EncodeToString(b), "="),
		"a list": list, "a JSON list": strings.ReplaceAll(list, " ", ","),
		"quoted": strings.Trim(fmt.Sprintf("%q", b), `"`), "quoted ASCII": strings.Trim(fmt.Sprintf("%+q", b), `"`),
	}
}
