package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/localcluster"
)

// lockCmd starts `coordctl lock` as a process.
func lockCmd(t *testing.T, args ...string) *process {
	t.Helper()
	return start(t, sharedCluster(t), nil, append([]string{"lock"}, args...)...)
}

// The exit code is the command's, or says which failure of our own it was.
func TestLockExitCodes(t *testing.T) {
	t.Parallel()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"success", []string{"/le/a", "true"}, 0, ""},
		{"the command's", []string{"/le/b", "sh", "-c", "exit 7"}, 7, ""},
		{"a signal", []string{"/le/c", "sh", "-c", "kill -9 $$"}, 128 + 9, ""},
		{"not executable", []string{"/le/d", plain}, exitNotExecutable, "permission denied"},
		{"no such command", []string{"/le/e", "no-such-command"}, exitNoCommand, "not found"},
		{"no path", nil, exitCannotRun, "PATH is missing"},
		{"bad path", []string{"le", "true"}, exitCannotRun, "must start with a slash"},
		{"bad flag", []string{"--wait", "soon", "/le/f", "true"}, exitCannotRun, "invalid argument"},
		{"bad on-lost", []string{"--on-lost", "cry", "/le/f", "true"}, exitCannotRun, "is none of kill"},
		{"kill-after too long", []string{"--session-timeout", "10s", "--kill-after", "5s", "/le/f", "true"}, exitCannotRun, "less than half of the session timeout"},
		{"bad global flag", []string{"-o", "yaml", "/le/f", "true"}, exitCannotRun, "--output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := lockCmd(t, c.args...)
			if code := p.wait(t); code != c.code || !strings.Contains(p.stderr.String(), c.says) || p.stdout.String() != "" {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, p.stdout.String(), p.stderr.String())
			}
		})
	}
}

// Everything behind PATH is the command as it stands, without a shell: flags
// that look like ours, and a -- by habit.
func TestLockTakesTheCommandAsItStands(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"/lc", "printf", "%s|", "--wait", "5s", "-e", "a b", "$HOME", "--", "*"},
		{"/lc", "--", "printf", "%s|", "--wait", "5s", "-e", "a b", "$HOME", "--", "*"},
		{"--wait", "30s", "/lc", "printf", "%s|", "--wait", "5s", "-e", "a b", "$HOME", "--", "*"},
	} {
		p := lockCmd(t, args...)
		if code := p.wait(t); code != 0 || p.stdout.String() != "--wait|5s|-e|a b|$HOME|--|*|" {
			t.Errorf("%q: exit code %d, stdout %q\n%s", args, code, p.stdout.String(), p.stderr.String())
		}
	}
}

// Standard input reaches the command, its output is all there is on standard
// output, and its environment says what it holds.
func TestLockStreamsAndEnvironment(t *testing.T) {
	t.Parallel()
	fresh(t, "/lenv")
	script := `cat; echo "$COORD_FENCING_TOKEN $COORD_LOCK_PATH $COORD_LOCK_NODE $COORD_SESSION_ID $COORD_ENDPOINTS"; echo err >&2`
	p := start(t, sharedCluster(t), func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("in\n") },
		"lock", "--owner", "me", "/lenv/deep/lock", "sh", "-c", script)
	if code := p.wait(t); code != 0 || p.stderr.String() != "err\n" {
		t.Fatalf("exit code %d\n%s", code, p.stderr.String())
	}
	line, ok := strings.CutPrefix(p.stdout.String(), "in\n")
	fields := strings.Fields(line)
	if !ok || len(fields) != 5 {
		t.Fatalf("stdout %q", p.stdout.String())
	}
	if token, err := strconv.ParseInt(fields[0], 10, 64); err != nil || token <= 0 {
		t.Errorf("token %q", fields[0])
	}
	if fields[1] != "/lenv/deep/lock" || !strings.HasPrefix(fields[2], "/lenv/deep/lock/_c_") ||
		!strings.HasPrefix(fields[3], "0x") || fields[4] != sharedCluster(t).Target() {
		t.Errorf("environment %q", fields)
	}
}

// Missing parents are made as containers, so that they go away again.
func TestLockMakesContainers(t *testing.T) {
	t.Parallel()
	fresh(t, "/lparents")
	holding(t, sharedCluster(t), "/lparents/deep/lock")
	for _, parent := range []string{"/lparents", "/lparents/deep", "/lparents/deep/lock"} {
		on(t, "", "stat", parent).want(t, exitOK, "~container", "")
	}
}

// holding starts a holder and waits until it has the lock.
func holding(t *testing.T, c *localcluster.Cluster, path string, flags ...string) *process {
	t.Helper()
	p := start(t, c, nil, append(append([]string{"lock"}, flags...), path)...)
	eventually(t, "the lock is held", func() bool { return strings.Contains(p.stderr.String(), "holding "+path) })
	return p
}

func TestLockThatIsBusy(t *testing.T) {
	t.Parallel()
	fresh(t, "/lbusy")
	p := holding(t, sharedCluster(t), "/lbusy", "--owner", "somebody", "--label", "job=test")
	on(t, "", "lock", "--no-wait", "/lbusy", "true").want(t, exitNotAcquired, "", "~lock /lbusy: held by somebody (token ")
	on(t, "", "lock", "--no-wait", "/lbusy", "true").want(t, exitNotAcquired, "", "~, in line since 20")
	on(t, "", "lock", "--wait", "200ms", "/lbusy", "true").want(t, exitNotAcquired, "", "~coordctl: lock /lbusy: not acquired within 200ms: held by somebody (token ")
	for _, how := range []string{"--no-wait", "--wait=200ms"} {
		for code, flags := range map[int][]string{exitNotAcquired: nil, 0: {"--conflict-exit-code", "0"}} {
			r := on(t, "", append(append([]string{"--json", "lock", how}, flags...), "/lbusy", "true")...)
			var doc struct{ Error errorBody }
			if err := json.Unmarshal([]byte(r.stderr), &doc); err != nil || r.code != code ||
				doc.Error.Code != "Busy" || doc.Error.Path != "/lbusy" || doc.Error.Holder == nil || doc.Error.Holder.Owner != "somebody" {
				t.Errorf("%s: exit code %d, %v\n%s", how, r.code, err, r.stderr)
			}
		}
	}
	on(t, "", "lock", "--no-wait", "--conflict-exit-code", "0", "/lbusy", "true").want(t, 0, "", "~held by somebody")
	on(t, "", "locks", "show", "/lbusy").want(t, exitOK, "~HOLDER   somebody   token ", "")
	on(t, "", "locks", "show", "/lbusy").want(t, exitOK, "~labels job=test", "")
	if out := must(t, "ls", "/lbusy"); strings.Count(out, "\n") != 1 {
		t.Errorf("a contender that gave up has left something:\n%s", out)
	}
	waiter := lockCmd(t, "/lbusy", "echo", "mine")
	eventually(t, "somebody waits", func() bool { return strings.Count(must(t, "ls", "/lbusy"), "\n") == 2 })
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 || p.stdout.String() != "" {
		t.Errorf("holder: exit code %d, stdout %q", code, p.stdout.String())
	}
	if code := waiter.wait(t); code != 0 || waiter.stdout.String() != "mine\n" {
		t.Errorf("waiter: exit code %d\n%s", code, waiter.stderr.String())
	}
}

// A waiter that is interrupted leaves the line at once.
func TestInterruptedWaiterLeavesTheLine(t *testing.T) {
	t.Parallel()
	fresh(t, "/lleave")
	holding(t, sharedCluster(t), "/lleave")
	w := lockCmd(t, "/lleave", "true")
	eventually(t, "somebody waits", func() bool { return strings.Count(must(t, "ls", "/lleave"), "\n") == 2 })
	if err := w.cmd.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if code := w.wait(t); code != exitInterrupted {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
	if out := must(t, "ls", "/lleave"); strings.Count(out, "\n") != 1 {
		t.Errorf("left behind:\n%s", out)
	}
}

// Signals reach the command and all it has started; what it makes of them is
// the exit code, and the lock is given back at once.
func TestLockPassesSignals(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name string
		sig  syscall.Signal
	}{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"USR1", syscall.SIGUSR1}} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if signal.Ignored(s.sig) { // as under nohup(1): who catches a signal hands its default on
				signal.Notify(make(chan os.Signal, 1), s.sig)
			}
			path := "/lsig-" + s.name
			script := fmt.Sprintf("trap 'echo got; exit 9' %s; echo ready; while :; do sleep 0.01; done", s.name)
			p := lockCmd(t, path, "sh", "-c", script)
			eventually(t, "the command runs", func() bool { return p.stdout.String() == "ready\n" })
			if err := p.cmd.Process.Signal(s.sig); err != nil {
				t.Fatal(err)
			}
			if code := p.wait(t); code != 9 || p.stdout.String() != "ready\ngot\n" {
				t.Errorf("exit code %d, stdout %q\n%s", code, p.stdout.String(), p.stderr.String())
			}
			on(t, "", "lock", "--no-wait", path, "true").want(t, 0, "", "")
		})
	}
}

// What the caller has switched off stays off, as for nohup(1).
func TestLockLeavesIgnoredSignalsAlone(t *testing.T) {
	t.Parallel()
	p := start(t, sharedCluster(t), func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", exe}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}, "lock", "/lhup", "sh", "-c", "echo ready; sleep 0.5; echo done")
	eventually(t, "the command runs", func() bool { return p.stdout.String() == "ready\n" })
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 0 || p.stdout.String() != "ready\ndone\n" {
		t.Errorf("exit code %d, stdout %q\n%s", code, p.stdout.String(), p.stderr.String())
	}
}

// --hold-at-least keeps the lock after a command that was quick.
func TestHoldAtLeast(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := lockCmd(t, "--hold-at-least", "700ms", "/lhold", "true")
	if code := p.wait(t); code != 0 || time.Since(began) < 700*time.Millisecond {
		t.Errorf("exit code %d after %s", code, time.Since(began))
	}
}

// Two hundred commands take turns: never two at once, and each has a larger
// token than the one before.
func TestLockedCommandsTakeTurns(t *testing.T) {
	t.Parallel()
	rounds := 15
	if testing.Short() {
		rounds = 5
	}
	log := filepath.Join(t.TempDir(), "log")
	script := fmt.Sprintf("echo in $COORD_FENCING_TOKEN >>%[1]s; echo out $COORD_FENCING_TOKEN >>%[1]s", log)
	failed := make(chan error, 8)
	for range 8 {
		go func() {
			failed <- func() error {
				for range rounds {
					cmd := exec.Command(exe, "-e", sharedCluster(t).Target(), "lock", "/lturns", "sh", "-c", script)
					cmd.Env = append(os.Environ(), envBeCoordctl+"=1")
					if out, err := cmd.CombinedOutput(); err != nil {
						return fmt.Errorf("%w\n%s", err, out)
					}
				}
				return nil
			}()
		}()
	}
	for range 8 {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 2*8*rounds {
		t.Fatalf("%d lines", len(lines))
	}
	last := uint64(0)
	for i := 0; i < len(lines); i += 2 {
		in, out := strings.TrimPrefix(lines[i], "in "), strings.TrimPrefix(lines[i+1], "out ")
		token, err := strconv.ParseUint(in, 10, 64)
		if err != nil || in != out || token <= last {
			t.Fatalf("after token %d: %q, %q", last, lines[i], lines[i+1])
		}
		last = token
	}
}

// Flags behind PATH are the command; who did not mean that is told.
func TestFlagBehindTheLockIsExplained(t *testing.T) {
	t.Parallel()
	ctl(t, "", "lock", "/l", "--wait", "1s", "true").want(t, exitNoCommand, "", "~flags for coordctl go in front of PATH")
}
