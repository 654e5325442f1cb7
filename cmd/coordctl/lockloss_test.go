package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/localcluster"
)

// ticker is a script that writes the time in ns every few milliseconds. It
// ignores SIGTERM, so that only SIGKILL ends it, and has a child that does the
// same.
const ticker = `trap "" TERM; tick() { while :; do date +%%s%%N >>%s; sleep 0.005; done; }; tick & echo ready; tick`

// lastTick is the last time in the file.
func lastTick(t *testing.T, file string) time.Time {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last int64
	for s := bufio.NewScanner(f); s.Scan(); {
		if ns, err := strconv.ParseInt(strings.TrimSpace(s.Text()), 10, 64); err == nil {
			last = max(last, ns)
		}
	}
	if last == 0 {
		t.Fatal("no tick")
	}
	return time.Unix(0, last)
}

func stopAll(t *testing.T, c *localcluster.Cluster, servers int) {
	t.Helper()
	for i := range servers {
		if err := c.StopServer(i); err != nil {
			t.Fatal(err)
		}
	}
}

// When the cluster has gone the command is ended, with all it has started,
// before the session can be over, and so before the next holder starts. It is
// told first.
func TestLossEndsTheCommandBeforeTheNextHolder(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	c := ownCluster(t, 1)
	file := filepath.Join(t.TempDir(), "ticks")
	p := start(t, c, nil, "lock", "--session-timeout", timeout.String(), "/loss", "sh", "-c", fmt.Sprintf(ticker, file))
	eventually(t, "the command runs", func() bool { return p.stdout.String() == "ready\n" })
	next := start(t, c, nil, "lock", "/loss", "sh", "-c", "date +%s%N; echo $COORD_FENCING_TOKEN")
	eventually(t, "the next one waits", func() bool {
		return strings.Count(ctl(t, "", "-e", c.Target(), "ls", "/loss").stdout, "\n") == 2
	})
	stopped := time.Now()
	stopAll(t, c, 1)
	if code := p.wait(t); code != exitLost {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	for _, says := range []string{"lock /loss lost (token ", "; it was held for ", "killed sh (process group "} {
		if !strings.Contains(p.stderr.String(), says) {
			t.Errorf("stderr does not say %q:\n%s", says, p.stderr.String())
		}
	}
	end := lastTick(t, file)
	if late := end.Sub(stopped); late >= timeout {
		t.Errorf("the command went on for %s without the cluster, longer than the session's %s", late, timeout)
	}
	if err := c.StartServer(0); err != nil {
		t.Fatal(err)
	}
	if code := next.wait(t); code != 0 {
		t.Fatalf("next holder: exit code %d\n%s", code, next.stderr.String())
	}
	ns, err := strconv.ParseInt(strings.Fields(next.stdout.String())[0], 10, 64)
	if err != nil || !time.Unix(0, ns).After(lastTick(t, file)) {
		t.Errorf("the next holder started at %d, the last tick was at %d (%v)", ns, lastTick(t, file).UnixNano(), err)
	}
}

// A command that listens to SIGTERM is not killed.
func TestLossTellsTheCommandFirst(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 1)
	p := start(t, c, nil, "lock", "--session-timeout", "3s", "/loss", "sh", "-c",
		`trap 'echo told; exit 0' TERM; echo ready; while :; do sleep 0.01; done`)
	eventually(t, "the command runs", func() bool { return p.stdout.String() == "ready\n" })
	stopAll(t, c, 1)
	if code := p.wait(t); code != exitLost || p.stdout.String() != "ready\ntold\n" || !strings.Contains(p.stderr.String(), "sent SIGTERM to sh (process group ") {
		t.Errorf("exit code %d, stdout %q\n%s", code, p.stdout.String(), p.stderr.String())
	}
}

// An operator who deletes the znode takes the lock away, and the command is told
// at once, with the cluster well.
func TestDeletedEntryEndsTheCommand(t *testing.T) {
	t.Parallel()
	fresh(t, "/ldel")
	p := lockCmd(t, "/ldel", "sh", "-c", "echo $COORD_LOCK_NODE; exec sleep 60")
	eventually(t, "the command runs", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	must(t, "delete", strings.TrimSpace(p.stdout.String()))
	if code := p.wait(t); code != exitLost || !strings.Contains(p.stderr.String(), "its queue entry was deleted") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	hold := holding(t, sharedCluster(t), "/ldel")
	node := strings.TrimSpace(must(t, "ls", "/ldel"))
	must(t, "delete", "/ldel/"+node)
	if code := hold.wait(t); code != exitLost {
		t.Errorf("without a command: exit code %d\n%s", code, hold.stderr.String())
	}
}

// --on-lost says something else than the end of the command.
func TestOnLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, onLost, stderr string
		code                 int
	}{
		{"warn", "warn", "goes on without the lock", 5},
		{"exec", "exec:echo reacting to $COORD_LOCK_PATH; kill -USR1 $COORD_CHILD_PID", "reacting to /lon-exec", exitLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := "/lon-" + c.name
			p := lockCmd(t, "--on-lost", c.onLost, path, "sh", "-c",
				"trap 'exit 5' USR1; echo $COORD_LOCK_NODE; while [ ! -e "+filepath.Join(t.TempDir(), "x")+" ]; do sleep 0.01; done")
			eventually(t, "the command runs", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
			must(t, "delete", strings.TrimSpace(p.stdout.String()))
			eventually(t, "the loss is noticed", func() bool { return strings.Contains(p.stderr.String(), c.stderr) })
			if c.onLost == "warn" {
				if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
					t.Fatal(err)
				}
			}
			if code := p.wait(t); code != c.code {
				t.Errorf("exit code %d\n%s", code, p.stderr.String())
			}
		})
	}
}

// The command does not outlive coordctl, however that ends, and nobody renews
// the lock of one that was killed.
func TestKilledCoordctlTakesTheCommandAlong(t *testing.T) {
	t.Parallel()
	fresh(t, "/lkill")
	p := lockCmd(t, "--session-timeout", "2s", "/lkill", "sh", "-c", "echo $$; exec sleep 60")
	eventually(t, "the command runs", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	pid, err := strconv.Atoi(strings.TrimSpace(p.stdout.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command is gone", func() bool { return gone(pid) })
	on(t, "", "lock", "--wait", "10s", "/lkill", "true").want(t, 0, "", "")
}

// gone says whether a process has ended; one that nobody has waited for yet has,
// too.
func gone(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err != nil || strings.HasPrefix(strings.TrimSpace(string(out)), "Z")
}
