package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/test/internal/child"
	"github.com/coordd/coord/test/internal/freeport"
	"github.com/coordd/coord/wire"
)

const zooKeeperJar = "/usr/share/java/zookeeper.jar"

// ensemble is a real ZooKeeper of one server, with TTLs, all four-letter words and
// the superuser of zkSuper.
type ensemble struct {
	child.Process
	t    testing.TB
	dir  string
	port int
}

// startEnsemble runs one until the test ends.
func startEnsemble(t testing.TB) *ensemble {
	t.Helper()
	if _, err := os.Stat(zooKeeperJar); err != nil {
		missing(t, "zookeeper ("+zooKeeperJar+")")
	}
	if _, err := exec.LookPath("java"); err != nil {
		missing(t, "java")
	}
	e := &ensemble{t: t, dir: t.TempDir(), port: freeport.Range(t, 1)}
	conf := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\nextendedTypesEnabled=true\n",
		filepath.Join(e.dir, "data"), e.port)
	if err := os.WriteFile(filepath.Join(e.dir, "zoo.cfg"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.kill)
	e.start()
	return e
}

// start waits until the server serves.
func (e *ensemble) start() {
	e.t.Helper()
	cmd := exec.Command("java", "-Xmx256m", "-Djute.maxbuffer=4194304", "-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.forceSync=no",
		"-Dzookeeper.DigestAuthenticationProvider.superDigest="+zkDigest(zkSuper),
		"-cp", e.dir+":"+zooKeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(e.dir, "zoo.cfg"))
	if err := e.Start(cmd, filepath.Join(e.dir, "log"), nil); err != nil {
		e.t.Fatal(err)
	}
	poll(e.t, time.Minute, "a real ZooKeeper", e.serves)
}

func (e *ensemble) serves() error {
	if !e.Running() {
		text, _ := os.ReadFile(filepath.Join(e.dir, "log"))
		e.t.Fatalf("ZooKeeper ended:\n%s", tail(string(text), 3000))
	}
	out, err := zkTryWord(e.host(), "srvr")
	if err == nil && !strings.Contains(out, "Mode: ") {
		err = fmt.Errorf("srvr: %q", out)
	}
	return err
}

// kill ends the server as a power cut does.
func (e *ensemble) kill() { e.Kill() }

func (e *ensemble) host() string { return fmt.Sprintf("127.0.0.1:%d", e.port) }

// fill sends many requests that have to succeed, without waiting for each answer.
func (c *zkConn) fill(requests ...wire.Request) {
	c.t.Helper()
	for len(requests) > 0 {
		n := min(len(requests), 200)
		c.send(requests[:n]...)
		for i := range n {
			if r := c.reply(requests[i].Type); r.Err != wire.OK {
				c.t.Fatalf("%s %s: %s", requests[i].Type, requests[i].Path, r.Err)
			}
		}
		requests = requests[n:]
	}
}
