package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// check runs `coordd config check` on a file with this text.
func check(t *testing.T, text string, flags ...string) (code int, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "coordd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	code = run(context.Background(), append([]string{"config", "check", file}, flags...), new(bytes.Buffer), &errs)
	return code, errs.String()
}

// All that is wrong with a file is said at once, in whatever part of it, and each
// mistake once.
func TestConfigCheckNamesAllMistakes(t *testing.T) {
	const text = `
cluster: {bootstrap: maybe, peers: [n1=127.0.0.1:7421, n2]}
node: {name: elsewhere}
listen: {grpc: "no-port", bogus: 1}
session: {min: 1h}
log: {level: loud}
limits: {node_size: 0, frame_size: 1KiB}
raft: {lease: 5s}
tls: {cert: cert.pem}
`
	code, stderr := check(t, text, "--raft-election", "soon")
	for _, want := range []string{
		"cluster.bootstrap", `unknown key "bogus"`, "--raft-election", "session:", "log.level", "limits.node_size",
		`"n2" is not name=host:port`, "listen.grpc", "limits.frame_size", "raft lease", "tls: ",
		`node.name "elsewhere" is not in cluster.peers (n1)`,
	} {
		if strings.Count(stderr, want) == 0 {
			t.Errorf("%s is not named", want)
		}
	}
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	if !strings.Contains(lines[len(lines)-1], "node.name") {
		t.Errorf("who this is does not come last")
	}
	for _, once := range []string{"cluster.bootstrap", "bootstrap \"", "session: ", "limits.node_size"} {
		if strings.Count(stderr, once) > 1 {
			t.Errorf("%s is named more than once", once)
		}
	}
	if code != exitUsage || t.Failed() {
		t.Errorf("exit code %d, stderr:\n%s", code, stderr)
	}
}

// A file that is right but for the machine it is checked on has that one mistake.
func TestConfigCheckElsewhere(t *testing.T) {
	code, stderr := check(t, "cluster: {peers: [n1=127.0.0.1:7421]}\nnode: {name: n9}\n")
	if want := "coordd: node.name \"n9\" is not in cluster.peers (n1)\n"; code != exitUsage || stderr != want {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if code, stderr := check(t, "cluster: {peers: [n1=127.0.0.1:7421]}\nnode: {name: n1}\n"); code != 0 {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
	if code, stderr := check(t, "node: {name: n1}\n"); code != exitUsage || stderr != "coordd: cluster.peers is empty: list every server as name=host:port (its peer port)\n" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}
