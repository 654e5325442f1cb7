package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/pgtest"
)

// The paused worker's late write is refused by the database, and the worker had
// been told before it made it. Without the fence the same run corrupts.
func TestPausedWorker(t *testing.T) {
	t.Parallel()
	pgtest.Get(t, pgtest.Options{}) // skips visibly where there is none
	for _, c := range []struct {
		fencing string
		code    int
		says    []string
	}{
		{"on", exitOK, []string{
			"A         holds /demo/paused-worker: session 0x", "A         is stopped (SIGSTOP)", "B         holds /demo/paused-worker",
			"B         writes with token", "accepted", "REFUSED, fence: stale token", "its context was cancelled before the write",
			"the row is by B", "verdict   the database refused the late write, and A had been told",
		}},
		{"off", exitFailed, []string{"fencing is OFF", "the row is by A", "CORRUPTED: A's late write replaced B's"}},
	} {
		t.Run(c.fencing, func(t *testing.T) {
			if c.fencing == "off" && testing.Short() {
				t.Skip("the damage without fencing: skipped with -short")
			}
			began := time.Now()
			r := on(t, "", "demo", "paused-worker", "--fencing="+c.fencing)
			if r.code != c.code {
				t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
			}
			for _, says := range c.says {
				if !strings.Contains(r.stdout, says) {
					t.Errorf("the timeline does not say %q:\n%s", says, r.stdout)
				}
			}
			if took := time.Since(began); took > 45*time.Second {
				t.Errorf("took %s", took)
			}
		})
	}
}

// Where no cluster answers the demonstration starts one, and leaves nothing
// running and nothing behind.
func TestPausedWorkerWithItsOwnCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("builds coordd and starts three servers: skipped with -short")
	}
	t.Parallel()
	pgtest.Get(t, pgtest.Options{})
	bin := t.TempDir()
	tmp, err := os.MkdirTemp("/tmp", "coord-demo-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if out, err := exec.Command("go", "build", "-o", bin, "github.com/coordd/coord/cmd/coordd").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.Chmod(tmp, 0o755); err != nil { // for the unprivileged PostgreSQL
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "contexts.yaml")
	demo := exec.Command(exe, "-e", closedPort(t), "demo", "paused-worker")
	demo.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "COORDCTL_CONFIG="+config, "TMPDIR="+tmp)
	out, err := demo.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "three servers are ready at") || !strings.Contains(string(out), "and A had been told") {
		t.Errorf("%v\n%s", err, out)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	if _, err := os.Stat(config); err == nil {
		t.Error("the user's contexts were changed")
	}
}

// Values that a demonstration cannot play with are wrong use, found before
// anything is started.
func TestDemosRefuseWrongUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, says string }{
		{"demo herd --waiters 1", "--waiters: 1 is not 2 to 10000"},
		{"demo herd --waiters 5 --releases 6", "--releases: 6 is not 1 to 5"},
		{"demo herd --predecessor=maybe", `"maybe" is none of on, off`},
		{"demo failover --rounds 0", "--rounds: 0 is not 1 to 100"},
		{"demo layers --without=quorum", `"quorum" is none of lock, fence, idempotency`},
		{"demo wallet --timeline --all-outcomes", "exclude each other"},
		{"demo double-click --idempotency=OFF", `"OFF" is none of on, off`},
		{"demo late-release now", "unknown command"},
	} {
		r := on(t, "", strings.Fields(c.line)...)
		if r.code != exitUsage || !strings.Contains(r.stderr, c.says) {
			t.Errorf("%s: exit code %d, %s", c.line, r.code, r.stderr)
		}
		if r.stdout != "" {
			t.Errorf("%s began: %s", c.line, r.stdout)
		}
	}
}

// A demonstration leaves the cluster that it played with as it found it, but for
// folders that the cluster removes by itself.
func TestDemosLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, 1)
	r := ctl(t, "", "-e", c.Target(), "demo", "herd", "--waiters", "5", "--releases", "2")
	if r.code != exitOK {
		t.Fatalf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	left := ctl(t, "", "-e", c.Target(), "ls", "/demo/herd")
	if left.code != exitOK && left.code != exitNotFound || strings.TrimSpace(left.stdout) != "" {
		t.Errorf("exit code %d, left behind: %s%s", left.code, left.stdout, left.stderr)
	}
	sessions := ctl(t, "", "-e", c.Target(), "--no-headers", "sessions")
	if sessions.code != exitOK || strings.Contains(sessions.stdout, "herd") {
		t.Errorf("sessions left behind: %s%s", sessions.stdout, sessions.stderr)
	}
}
