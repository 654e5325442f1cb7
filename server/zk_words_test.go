package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/wire"
)

// zkServer is a running server with a ZooKeeper port that answers words.
func zkServer(t testing.TB, words ...string) (*running, string) {
	t.Helper()
	cfg := oneServer(t)
	cfg.ZooKeeper.Address, cfg.ZooKeeper.Words = "127.0.0.1:0", words
	r := start(t, cfg)
	return r, r.Addrs().ZooKeeper.String()
}

func zkWord(t testing.TB, address, word string) string {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(nc, word); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWordsAreAnsweredOverHTTP as on the port, with the same white list.
func TestWordsAreAnsweredOverHTTP(t *testing.T) {
	r, address := zkServer(t, "ruok", "conf", "isro")
	for _, word := range []string{"ruok", "conf", "isro"} {
		code, body := r.httpGet("/commands/" + word)
		if code != 200 || body == "" || body != zkWord(t, address, word) {
			t.Errorf("%s: %d %q", word, code, body)
		}
	}
	if code, body := r.httpGet("/commands/mntr"); code != 403 || !strings.Contains(body, "mntr is not executed because") {
		t.Errorf("not in the white list: %d %q", code, body)
	}
	for _, path := range []string{"/commands/nope", "/commands/", "/commands/ruok/x"} {
		if code, _ := r.httpGet(path); code != 404 {
			t.Errorf("%s: %d", path, code)
		}
	}
	without := start(t, oneServer(t))
	if code, _ := without.httpGet("/commands/ruok"); code != 404 {
		t.Errorf("without the port: %d", code)
	}
}

// TestWatchesAreListedWithoutHoldingUpTheServer, however many there are on one path,
// or of one client.
func TestWatchesAreListedWithoutHoldingUpTheServer(t *testing.T) {
	s, _ := fakeServer(t)
	add := func(path func(i int) string, conns ...*zkConn) {
		s.hub.mu.Lock()
		defer s.hub.mu.Unlock()
		for i := range 20_000 {
			s.hub.watches.Add(conns[i%len(conns)].sub, 0, path(i), watch.OneShotData)
		}
	}
	conns := make([]*zkConn, 20_000)
	for i := range conns {
		conns[i] = newZKConn(s, nil, nil, guest{})
		conns[i].session = session.ID(i + 1)
		s.hub.join(conns[i])
	}
	add(func(int) string { return "/one" }, conns...)
	add(func(i int) string { return fmt.Sprintf("/many/%d", i) }, conns[0])
	for word, list := range map[string]func(*strings.Builder){"wchs": s.words.wchs, "wchc": s.words.wchc, "wchp": s.words.wchp} {
		var b strings.Builder
		begin := time.Now()
		list(&b)
		if took := time.Since(begin); took > 30*time.Second { // each with each takes minutes
			t.Errorf("%s took %s", word, took)
		}
		lines := strings.Count(b.String(), "\n")
		if want := map[string]int{"wchs": 2, "wchc": 60_000, "wchp": 60_001}[word]; lines != want {
			t.Errorf("%s: %d lines, want %d", word, lines, want)
		}
	}
	var b strings.Builder
	s.words.wchs(&b)
	if got := b.String(); got != "20000 connections watching 20001 paths\nTotal watches:40000\n" {
		t.Errorf("wchs: %s", got)
	}
	for i := range 80_000 {
		s.hub.mu.Lock()
		s.hub.watches.Add(conns[1].sub, 0, fmt.Sprintf("/more/%d", i), watch.OneShotData)
		s.hub.mu.Unlock()
	}
	b.Reset()
	s.words.wchc(&b)
	if !strings.HasSuffix(b.String(), "(there are more watches than these 100000)\n") {
		t.Errorf("a part passes for the whole: ...%s", b.String()[b.Len()-100:])
	}
}

// TestSessionsAreCountedByProtocol, those that were opened and those that ended.
func TestSessionsAreCountedByProtocol(t *testing.T) {
	r, address := zkServer(t)
	r.open()
	r.open()
	c := zkOpen(t, address)
	c.send(wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	c.ended()
	_, body := r.httpGet("/metrics")
	for _, want := range []string{
		`coord_sessions_opened_total{protocol="grpc"} 2`, `coord_sessions_opened_total{protocol="zookeeper"} 1`,
		`coord_sessions_closed_total{protocol="zookeeper",reason="closed"} 1`, `coord_sessions_closed_total{protocol="grpc",reason="closed"} 0`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no line %s", want)
		}
	}
}
