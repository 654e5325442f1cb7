package test

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// etcd PR#10117, etcd#10096: a lock command that was killed, or whose parent was,
// kept its lock for ever. Signals and the death of coordctl itself are tested
// beside it.
func TestLockOfACommandEndsWithTheCommandWhoeverIsGone(t *testing.T) {
	skipIfShort(t)
	c := startLocal(t, 1, nil)
	ctx := testContext(t, time.Minute)
	cl := dial(t, c.Endpoints())
	m := lock.New(cl, "/lock")
	coordctl := []string{program(t, "coordctl"), "-e", c.Target(), "lock", "--session-timeout", "2s", "/lock"}

	// Standard input is closed from the start.
	if out, err := exec.CommandContext(ctx, coordctl[0], append(coordctl[1:], "cat")...).CombinedOutput(); err != nil || len(out) != 0 {
		t.Fatalf("a command that reads to the end: %v\n%s", err, out)
	}
	release(t, acquire(t, m))

	// The shell around it is killed, without a word to anybody. The command, which
	// goes on, keeps its lock until it ends.
	shell := exec.CommandContext(ctx, "sh", append([]string{"-c", `"$@" & wait`, "sh"}, append(coordctl, "sleep", "2")...)...)
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	queueLength(ctx, t, cl, "/lock", 1)
	began := time.Now()
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = shell.Wait() // killed
	if _, err := m.TryAcquire(ctx); !errors.Is(err, lock.ErrBusy) {
		t.Errorf("the command runs, and a try gives %v", err)
	}
	release(t, acquire(t, m))
	if took := time.Since(began); took < time.Second || took > patience*20*time.Second {
		t.Errorf("the lock was free after %s, the command sleeps for 2 s", took)
	}
	if names, err := cl.Children(ctx, "/lock", client.Mode(client.ReadSession)); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}
