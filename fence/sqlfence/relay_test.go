package sqlfence_test

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
)

// relay stands between a driver and a server, on sockets, and can lose the
// server's reply to a commit together with the connection.
type relay struct {
	server string
	armed  atomic.Bool
	last   atomic.Bool // the lost reply is the last that anybody heard
}

// socketOf finds the path of the socket in the connection strings of both
// servers.
var socketOf = map[*regexp.Regexp]string{
	regexp.MustCompile(`host='([^']*)'`):   "/.s.PGSQL.5432",
	regexp.MustCompile(`@unix\(([^)]*)\)`): "",
}

// relayTo starts a relay to the server of dsn and returns the dsn that leads
// through it.
func relayTo(t *testing.T, dsn string) (*relay, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "coord-relay-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for pattern, file := range socketOf {
		found := pattern.FindStringSubmatchIndex(dsn)
		if found == nil {
			continue
		}
		server, mine := dsn[found[2]:found[3]]+file, dir
		if file == "" {
			mine = filepath.Join(dir, "socket")
		}
		r := &relay{server: server}
		r.listen(t, mine+file)
		return r, dsn[:found[2]] + mine + dsn[found[3]:]
	}
	t.Fatalf("no socket in %s", dsn)
	return nil, ""
}

func (r *relay) listen(t *testing.T, path string) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			wg.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait() // the drivers have closed their ends by now
	})
}

// dropReplyToCommit holds for one commit.
func (r *relay) dropReplyToCommit() { r.armed.Store(true) }

func (r *relay) serve(client net.Conn) {
	defer client.Close()
	if r.last.Load() && !r.armed.Load() {
		return
	}
	server, err := net.Dial("unix", r.server)
	if err != nil {
		return
	}
	defer server.Close()
	var dropping atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		pass(client, server, func(chunk []byte) bool {
			if bytes.Contains(bytes.ToLower(chunk), []byte("commit")) && r.armed.CompareAndSwap(true, false) {
				dropping.Store(true)
			}
			return true
		})
	})
	pass(server, client, func([]byte) bool { return !dropping.Load() })
	_ = client.Close()
	_ = server.Close()
	wg.Wait()
}

// pass copies until one end closes or forward says no.
func pass(from, to net.Conn, forward func([]byte) bool) {
	defer to.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		if n > 0 {
			if !forward(chunk[:n]) {
				return
			}
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
