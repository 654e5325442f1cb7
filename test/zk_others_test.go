package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// TestNodeClients does with the two clients of the npm registry what their users
// do, unmodified.
func TestNodeClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	if _, err := exec.LookPath("node"); err != nil {
		missing(t, "node (nodejs)")
	}
	script := absolute(t, "clients/node_suite.js")
	c := startProcesses(t, 3, "")
	for library, oks := range map[string]int{"node-zookeeper-client": 3, "zookeeper": 2} {
		t.Run(library, func(t *testing.T) {
			if _, err := os.Stat(absolute(t, "clients/node_modules/"+library)); err != nil {
				missing(t, library+" (npm ci in test/clients)")
			}
			startSuite(t, 2*time.Minute, "node", script, c.zkHosts(), library, "basics").wait(oks)
			ride := startSuite(t, 2*time.Minute, "node", script, c.zkHosts(), library, "ride", "10")
			time.Sleep(time.Second) // it is about to connect
			c.killInTurn(2, time.Second)
			ride.wait(1)
		})
	}
}

// script types lines into an interactive client, at the pace of a person, and
// returns all that it prints.
func script(t *testing.T, limit, pace time.Duration, lines []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "ZOO_LOG_DIR="+cmd.Dir)
	var out lockedText
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for i, line := range lines {
		if i == 0 {
			time.Sleep(10 * pace) // it connects
		}
		if _, err := io.WriteString(in, line+"\n"); err != nil {
			break // it has ended: the output says why
		}
		time.Sleep(pace)
	}
	_ = in.Close()
	if err := cmd.Wait(); err != nil && ctx.Err() != nil {
		t.Fatalf("%s does not end\n%s", name, tail(out.String(), 3000))
	}
	return out.String()
}

const (
	zkCli = "/usr/share/zookeeper/bin/zkCli.sh"
	cliMT = "/usr/lib/zookeeper/bin/cli_mt"
)

// TestZKCli types what an operator types into ZooKeeper's own shell.
func TestZKCli(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	if _, err := os.Stat(zkCli); err != nil {
		missing(t, "zkCli.sh (zookeeper)")
	}
	c := startProcesses(t, 3, "")
	for _, n := range c.nodes {
		dir := "/cli-" + n.name
		out := script(t, time.Minute, 0, []string{
			"create " + dir + " one", "create -s " + dir + "/s- x", "create -e " + dir + "/e x", "create -c " + dir + "/c", "create -t 60000 " + dir + "/t x",
			"get -s " + dir, "set " + dir + " two", "set -v 0 " + dir + " three", "stat " + dir, "ls " + dir, "ls -R " + dir, "getAllChildrenNumber " + dir,
			"getEphemerals " + dir, "whoami", "addauth digest u:p", "setAcl " + dir + "/s-0000000000 auth::cdrwa", "getAcl " + dir + "/s-0000000000",
			"addWatch -m PERSISTENT " + dir, "setquota -n 100 " + dir, "listquota " + dir, "delquota " + dir, "sync " + dir, "config", "removewatches " + dir,
			"delete " + dir + "/none", "deleteall " + dir, "ls /", "quit",
		}, zkCli, "-server", n.zookeeper())
		for _, want := range []string{
			"Created " + dir + "\n", "Created " + dir + `/s-0000000000\n`, "Created " + dir + "/e\n", "Created " + dir + "/c\n", "Created " + dir + "/t\n",
			`(?s)one\ncZxid = 0x[0-9a-f]+.*numChildren = 4`, `version No is not valid`, `(?s)dataVersion = 1`, regexp.QuoteMeta("[c, e, s-0000000000, t]"),
			dir + "/s-0000000000\n", "'digest,'u:x|'digest,'u:[^\n]+\n: cdrwa", `Output quota for `, `Node does not exist: ` + dir + "/none", `server\.[123]=127\.0\.0\.1:`, `version=[0-9a-f]+`,
		} {
			if !regexp.MustCompile(want).MatchString(out) {
				t.Errorf("%s: no %q in\n%s", n.name, want, out)
			}
		}
		if strings.Contains(out, "KeeperErrorCode = ConnectionLoss") || strings.Contains(out, "Exception") {
			t.Errorf("%s:\n%s", n.name, out)
		}
	}
}

// TestCClient types into the shell of the C client.
func TestCClient(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	if _, err := os.Stat(cliMT); err != nil {
		missing(t, "cli_mt (zookeeper-bin)")
	}
	c := startProcesses(t, 3, "")
	out := script(t, 30*time.Second, 100*time.Millisecond, []string{
		"create /c", "set /c hello", "get /c", "create +s /c/s-", "create +e /c/e", "ls /c", "ls2 /c", "stat /c", "sync /c", "watch /c", "set /c again", "delete /c/e", "quit",
	}, cliMT, c.zkHosts())
	for _, want := range []string{
		`value_len = 5`, "hello", `/c/s-0000000000`, `\[/c/e\]: rc = 0`, `ephemeralOwner = 0`, `version=2`, `Watcher CHANGED_EVENT state = CONNECTED_STATE for path /c`, `/c/e: rc = 0`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %q in\n%s", want, tail(out, 5000))
		}
	}
}

// TestGoZooKeeper does with github.com/go-zookeeper/zk what its users do.
func TestGoZooKeeper(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 3, "zookeeper: {words: ['*']}\n")
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.zookeeper())
	}
	if oks := zk.FLWRuok(hosts, zkPatient); slices.Contains(oks, false) {
		t.Errorf("ruok: %v", oks)
	}
	if stats, ok := zk.FLWSrvr(hosts, zkPatient); !ok {
		t.Errorf("srvr: %+v", stats)
	}
	if cons, ok := zk.FLWCons(hosts, zkPatient); !ok {
		t.Errorf("cons: %+v", cons)
	}
	conn, events, err := zk.Connect(hosts, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quietLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lost := make(chan struct{}, 1)
	go func() {
		for e := range events {
			if e.State == zk.StateExpired {
				lost <- struct{}{}
			}
		}
	}()
	goZooKeeperBasics(t, conn)
	l := zk.NewLock(conn, "/go/lock", zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Create("/go/e", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	_, _, watch, err := conn.GetW("/go")
	if err != nil {
		t.Fatal(err)
	}
	c.killInTurn(3, time.Second) // whichever server it was connected to
	other, _, err := zk.Connect(hosts, 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(quietLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.Set("/go", []byte("new"), -1); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-watch:
		if e.Type != zk.EventNodeDataChanged {
			t.Errorf("event %+v", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("the watch was missed")
	}
	if ok, st, err := other.Exists("/go/e"); err != nil || !ok || st.EphemeralOwner != conn.SessionID() {
		t.Errorf("the ephemeral: %v, %+v, %v", ok, st, err)
	}
	if err := l.Unlock(); err != nil {
		t.Errorf("unlock: %v", err)
	}
	select {
	case <-lost:
		t.Error("the session was reported lost")
	default:
	}
}

type quietLogger struct{}

func (quietLogger) Printf(string, ...any) {}

func goZooKeeperBasics(t *testing.T, conn *zk.Conn) {
	t.Helper()
	open := zk.WorldACL(zk.PermAll)
	if _, err := conn.Create("/go", []byte("1"), 0, open); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Set("/go", []byte("2"), 7); !errors.Is(err, zk.ErrBadVersion) {
		t.Errorf("set at a wrong version: %v", err)
	}
	if data, st, err := conn.Get("/go"); err != nil || string(data) != "1" || st.Version != 0 {
		t.Errorf("get: %q, %+v, %v", data, st, err)
	}
	for i := range 3 {
		if p, err := conn.CreateProtectedEphemeralSequential("/go/p-", nil, open); err != nil || !strings.HasSuffix(p, fmt.Sprintf("p-%010d", i)) {
			t.Errorf("protected sequential: %s, %v", p, err)
		}
	}
	if _, err := conn.CreateContainer("/go/c", nil, zk.FlagTTL, open); err == nil {
		t.Log("the client lets a container have a TTL")
	}
	if _, err := conn.CreateTTL("/go/t", nil, zk.FlagTTL, open, time.Minute); err != nil {
		t.Errorf("TTL: %v", err)
	}
	_, err := conn.Multi(&zk.CreateRequest{Path: "/go/m", Acl: open}, &zk.SetDataRequest{Path: "/go/m", Data: []byte("x")}, &zk.CheckVersionRequest{Path: "/go/m", Version: 1}, &zk.DeleteRequest{Path: "/go/m", Version: 1})
	if err != nil {
		t.Errorf("multi: %v", err)
	}
	if _, err := conn.Multi(&zk.CreateRequest{Path: "/go/m", Acl: open}, &zk.DeleteRequest{Path: "/go/none"}); !errors.Is(err, zk.ErrNoNode) {
		t.Errorf("failed multi: %v", err)
	}
	if ok, _, err := conn.Exists("/go/m"); ok || err != nil {
		t.Errorf("left by a failed multi: %v, %v", ok, err)
	}
	if err := conn.AddAuth("digest", []byte("u:p")); err != nil {
		t.Errorf("auth: %v", err)
	}
	if _, err := conn.Create("/go/mine", nil, 0, zk.DigestACL(zk.PermAll, "u", "p")); err != nil {
		t.Errorf("digest: %v", err)
	}
	names, _, err := conn.Children("/go")
	if err != nil || len(names) != 5 && len(names) != 6 {
		t.Errorf("children %v, %v", names, err)
	}
	if _, err := conn.Sync("/go"); err != nil {
		t.Errorf("sync: %v", err)
	}
}
