package test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

const zkConfig = "/zookeeper/config"

// zkReconfig asks for a change of the membership as ZooKeeper's clients do. Version
// -1 is any.
func zkReconfig(joining, leaving, members string, version int64) wire.Request {
	return wire.Request{Op: wire.Op{Type: wire.Reconfig}, Joining: joining, Leaving: leaving, Members: members, ConfigID: version}
}

// answer is the code that comes back.
func (c *zkConn) answer(q wire.Request) wire.Code {
	c.t.Helper()
	c.send(q)
	return c.reply(q.Type).Err
}

func (c *zkConn) config() string {
	c.t.Helper()
	return string(c.must(zkRead(wire.GetData, zkConfig, false)).Data)
}

// TestReconfigOfZooKeepersClients removes a server from the ZooKeeper port, with
// everything that must not be done refused.
func TestReconfigOfZooKeepersClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := zkCluster(t)
	watcher := zkOpen(t, c.nodes[0].zookeeper())
	poll(t, 20*time.Second, "all servers are in the configuration", func() error {
		if text := watcher.config(); strings.Count(text, ":participant;127.0.0.1:") != 3 {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	c.ordinaryUsersChangeNothing()
	super := zkOpen(t, c.nodes[1].zookeeper())
	super.must(wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: "digest", Secret: []byte(zkSuper)})
	before := super.config()
	spec := func(n int, p *process, role string) string {
		return fmt.Sprintf("server.%d=127.0.0.1:%d:%d:%s;%d", n, p.base+1, p.base+1, role, p.base+3)
	}
	for what, q := range map[string]wire.Request{
		"-8 a number that is none":           zkReconfig("", "three", "", -1),
		"-8 an entry that is none":           zkReconfig("server.3", "", "", -1),
		"-8 both kinds at once":              zkReconfig("", "3", spec(1, c.nodes[0], "participant"), -1),
		"-8 a voter is to observe":           zkReconfig(spec(3, c.nodes[2], "observer"), "", "", -1),
		"-8 one that leaves and joins":       zkReconfig(spec(3, c.nodes[2], "participant"), "3", "", -1),
		"-13 a server that is not there":     zkReconfig("server.9=127.0.0.1:1:1:participant;1", "", "", -1),
		"-13 a list with one that is not":    zkReconfig("", "", spec(1, c.nodes[0], "participant")+",server.9=h:1:1", -1),
		"-103 another version than there is": zkReconfig("", "3", "", 1<<40),
	} {
		if got := super.answer(q); !strings.HasPrefix(what, fmt.Sprint(int32(got))+" ") {
			t.Errorf("%s: %d", what, got)
		}
	}
	// What is so already, and who has left already, is done, as with ZooKeeper.
	for _, q := range []wire.Request{zkReconfig("", "9", "", -1), zkReconfig(spec(3, c.nodes[2], "participant"), "", "", -1)} {
		if r := super.must(q); string(r.Data) != before {
			t.Errorf("nothing was asked for, and the configuration became %s", r.Data)
		}
	}
	watcher.must(zkRead(wire.GetData, zkConfig, true))
	c.nodes[2].kill()
	poll(t, 20*time.Second, "a server that is needed is not removed", func() error {
		if got := super.answer(zkReconfig("", "2", "", -1)); got != wire.NewConfigNoQuorum {
			return errors.New(got.String()) // the leader still hears from the dead one
		}
		return nil
	})
	var version int64
	if _, err := fmt.Sscanf(before[strings.LastIndex(before, "version="):], "version=%x", &version); err != nil {
		t.Fatal(err)
	}
	r := super.must(zkReconfig("", "3", "", version))
	if text := string(r.Data); strings.Contains(text, "server.3=") || strings.Count(text, "server.") != 2 || text != super.config() || r.Stat.DataLength != int32(len(text)) {
		t.Errorf("after the removal: %s, %+v", text, r.Stat)
	}
	watcher.wantEvents("the configuration changed", wire.Event{Type: wire.EventChanged, Path: zkConfig})
	if got := super.answer(zkReconfig("", "2", "", version)); got != wire.BadVersion {
		t.Errorf("the version of before the removal: %s", got)
	}
	c.nodes[2].start()
	c.nodes[2].wantRemoved()
	super.must(zkCreate(super.dir()+"/after", "", 0))
}

// ZOOKEEPER-2014: anyone could change the membership. Here nobody can but the
// superuser, through any server, and each attempt is in the log.
func (c *processes) ordinaryUsersChangeNothing() {
	c.t.Helper()
	for _, p := range c.nodes {
		user := zkOpen(c.t, p.zookeeper())
		for range 2 {
			for _, q := range []wire.Request{zkReconfig("", "3", "", -1), zkReconfig("", "", "server.1=h:1:1", -1), zkReconfig("server.9=h:1:1", "", "", -1)} {
				if got := user.answer(q); got != wire.NoAuth {
					c.t.Errorf("%s: reconfig of an ordinary user: %s", p.name, got)
				}
			}
			user.must(wire.Request{Op: wire.Op{Type: wire.Auth}, Scheme: "digest", Secret: []byte("joe:secret")})
		}
		if text := readLog(c.t, p); strings.Count(text, "reconfig refused") != 6 || !strings.Contains(text, "admin_refused") {
			c.t.Errorf("%s has not written down who asked", p.name)
		}
	}
}

const kazooReconfig = `
import sys
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
c = KazooClient(hosts=sys.argv[1])
c.start()
try:
    c.reconfig(None, "3", None)
    print("an ordinary user removed a server")
except NoAuthError:
    print("ok refused")
c.add_auth("digest", "super:secret")
data, stat = c.reconfig(None, "3", None)
text = data.decode()
print("ok removed" if "server.3=" not in text and "server.2=" in text and stat.version > 0 else text)
print("ok shown" if c.get("/zookeeper/config")[0] == data else "another configuration is shown")
c.stop()
`

func TestReconfigOfKazooAndZKCli(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	py := python(t)
	c := zkCluster(t)
	zkOpen(t, c.nodes[0].zookeeper()).waitConfig(3)
	startSuite(t, time.Minute, py, "-c", kazooReconfig, c.nodes[0].zookeeper()).wait(3)
	c.nodes[2].wantRemoved()
	out := script(t, time.Minute, 0, []string{
		"reconfig -remove 2", "addauth digest " + zkSuper, "reconfig -remove 2", "config", "quit",
	}, zkCli, "-server", c.nodes[0].zookeeper())
	if i := strings.LastIndex(out, "server.1=127.0.0.1:"); !strings.Contains(out, "Insufficient permission") || i < 0 || strings.Contains(out[i:], "server.2=") {
		t.Errorf("zkCli.sh:\n%s", out)
	}
	c.nodes[1].wantRemoved()
	if mode, err := zkTryWord(c.nodes[0].zookeeper(), "srvr"); err != nil || !strings.Contains(mode, "Mode: standalone") {
		t.Errorf("the last one: %s, %v", mode, err)
	}
}

// waitConfig waits until the configuration has so many servers with clients' ports.
func (c *zkConn) waitConfig(servers int) {
	c.t.Helper()
	poll(c.t, 20*time.Second, "the configuration", func() error {
		if text := c.config(); strings.Count(text, ";127.0.0.1:") != servers {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
}

func readLog(t testing.TB, p *process) string {
	t.Helper()
	text, err := os.ReadFile(p.log())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
