package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/test/internal/freeport"
	"github.com/coordd/coord/wire"
)

// TestZooKeeperIsReplacedInPlace walks the way of docs/zookeeper.md with a real
// ZooKeeper: ours starts beside it with the same zoo.cfg and another port, copies
// what it has, and then takes its place and its port.
func TestZooKeeperIsReplacedInPlace(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	e := startEnsemble(t)
	old := zkOpen(t, e.host())
	old.must(zkCreate("/app", "config", 0))
	locked := zkCreate("/app/locked", "secret", 0)
	locked.ACL = digestOnly("me:pw")
	old.must(locked)
	for range 7 {
		old.must(zkCreate("/app/q-", "", wire.FlagSequential))
	}
	old.must(zkDelete("/app/q-0000000007", -1))

	zoo := filepath.Join(e.dir, "zoo.cfg")
	base := freeport.Range(t, 3)
	text, err := os.ReadFile(zoo)
	if err != nil {
		t.Fatal(err)
	}
	// A ZooKeeper would take these for properties of its own.
	more := fmt.Sprintf("coordd.listen.grpc=127.0.0.1:%d\ncoordd.cluster.peers=zk1=127.0.0.1:%d\nDigestAuthenticationProvider.superDigest=%s\n", base, base+1, zkDigest(zkSuper))
	if err := os.WriteFile(zoo, append(text, more...), 0o600); err != nil {
		t.Fatal(err)
	}
	beside := &zooServer{t: t, dir: e.dir, port: base + 2}
	beside.start(zoo, "--listen-zookeeper", beside.host())
	beside.serves()

	super := filepath.Join(e.dir, "super")
	if err := os.WriteFile(super, []byte(zkSuper+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, what := range [][]string{{"import", "zookeeper"}, {"import", "verify", "zookeeper"}} {
		args := append([]string{"-e", fmt.Sprintf("127.0.0.1:%d", base), "--auth-file", super}, what...)
		out, err := exec.CommandContext(ctx, program(t, "coordctl"), append(args, e.host(), "--source-auth-file", super)...).CombinedOutput()
		if err != nil {
			t.Fatalf("coordctl %s: %v\n%s", strings.Join(what, " "), err, out)
		}
	}
	beside.signal(syscall.SIGTERM)
	e.kill()

	ours := &zooServer{t: t, dir: e.dir, port: e.port}
	ours.start(zoo)
	ours.serves()
	c := zkOpen(t, ours.host())
	if got := string(c.must(zkRead(wire.GetData, "/app", false)).Data); got != "config" {
		t.Errorf("/app has %q", got)
	}
	c.wants(wire.NoAuth, zkRead(wire.GetData, "/app/locked", false))
	c.auth("digest", "me:pw")
	if got := string(c.must(zkRead(wire.GetData, "/app/locked", false)).Data); got != "secret" {
		t.Errorf("/app/locked has %q", got)
	}
	// Eight children were made before: names never come again.
	if got := c.must(zkCreate("/app/q-", "", wire.FlagSequential)).Path; got <= "/app/q-0000000007" {
		t.Errorf("the next number is that of %s", got)
	}
	if p := c.timeout; p != 10*time.Second {
		t.Errorf("timeout %s", p)
	}
	for _, want := range []string{"version-2 has a ZooKeeper's data", "extendedTypesEnabled=true: has no meaning here"} {
		if !strings.Contains(ours.log(), want) {
			t.Errorf("the log says nothing of %q", want)
		}
	}
}
