package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endIt interrupts a process and waits for it.
func endIt(t *testing.T, p *process) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
}

// Readers hold together, a writer alone; a plain lock never comes in beside them,
// nor a reader beside a plain lock.
func TestSharedAndExclusiveLocks(t *testing.T) {
	t.Parallel()
	fresh(t, "/lrw")
	r1 := holding(t, sharedCluster(t), "/lrw", "--shared", "--owner", "r1")
	r2 := holding(t, sharedCluster(t), "/lrw", "--shared", "--owner", "r2")
	on(t, "", "lock", "--no-wait", "--exclusive", "/lrw", "true").want(t, exitNotAcquired, "", "~held by r1")
	on(t, "", "locks", "/lrw").want(t, exitOK, "~/lrw  rw    2 readers  -", "")
	on(t, "", "lock", "--no-wait", "--conflict-exit-code", "0", "/lrw", "true").want(t, exitCannotRun, "", "~belongs to a rw, and this is a mutex")
	on(t, "", "lock", "--wait", "5s", "/lrw", "true").want(t, exitCannotRun, "", "~another kind of lock")
	on(t, "", "lock", "--wait", "5s", "/lrw", "true").want(t, exitCannotRun, "", "~hint: `coordctl locks show /lrw` says which")
	w := lockCmd(t, "--exclusive", "--owner", "w", "/lrw", "sh", "-c", "echo $COORD_FENCING_TOKEN; sleep 60")
	eventually(t, "the writer waits", func() bool { return strings.Contains(must(t, "locks", "show", "/lrw"), "w (write)") })
	on(t, "", "locks", "show", "/lrw").want(t, exitOK, "~All holders are alive.", "")
	on(t, "", "lock", "--no-wait", "--shared", "/lrw", "true").want(t, exitNotAcquired, "", "~lock /lrw: held by")
	endIt(t, r1)
	endIt(t, r2)
	eventually(t, "the writer has it", func() bool { return w.stdout.String() != "" })
	on(t, "", "locks", "check", "/lrw", "--token", strings.TrimSpace(w.stdout.String())).want(t, exitOK, "~valid: token ", "")
	on(t, "", "locks", "/lrw").want(t, exitOK, "~/lrw  rw    w (write)  ", "")
	on(t, "", "locks", "show", "/lrw").want(t, exitOK, "~HOLDER   w   write   token ", "")
	endIt(t, w)

	fresh(t, "/lplain")
	holding(t, sharedCluster(t), "/lplain")
	on(t, "", "lock", "--shared", "--wait", "5s", "/lplain", "true").want(t, exitCannotRun, "", "~another kind of lock")
	on(t, "", "lock", "--slots", "2", "--no-wait", "/lplain", "true").want(t, exitCannotRun, "", "~another kind of lock")
	on(t, "", "lock", "/", "true").want(t, exitCannotRun, "", "~PATH must be below /")
}

// So many hold at a time, each with a slot of its own.
func TestLockWithSlots(t *testing.T) {
	t.Parallel()
	fresh(t, "/lsem")
	var slots []string
	var all []*process
	for i := range 2 {
		p := lockCmd(t, "--slots", "2", "--owner", fmt.Sprint("s", i), "/lsem", "sh", "-c", "echo $COORD_LOCK_SLOT; sleep 60")
		eventually(t, "it has a slot", func() bool { return p.stdout.String() != "" })
		slots, all = append(slots, strings.TrimSpace(p.stdout.String())), append(all, p)
	}
	if slots[0]+slots[1] != "01" && slots[0]+slots[1] != "10" {
		t.Errorf("slots %q", slots)
	}
	on(t, "", "lock", "--slots", "2", "--no-wait", "/lsem", "true").want(t, exitNotAcquired, "", "~/lsem")
	on(t, "", "lock", "--slots", "3", "/lsem", "true").want(t, exitCannotRun, "", "~in use with a limit of 2, not 3")
	for _, other := range []string{"--wait=5s", "--no-wait", "--shared", "--exclusive"} { // holders of slots stand in no line
		on(t, "", "lock", other, "/lsem", "echo", "in").want(t, exitCannotRun, "", "~belongs to a semaphore")
	}
	on(t, "", "elect", "/lsem", "echo", "in").want(t, exitCannotRun, "", "~belongs to a semaphore")
	on(t, "", "locks", "/lsem").want(t, exitOK, "~/lsem  sem 2  2 of 2 slots  -", "")
	on(t, "", "locks", "show", "/lsem").want(t, exitOK, "~semaphore, 2 of 2 slots taken", "")
	r := on(t, "", "locks", "--json", "/lsem")
	var list struct{ Items []lockItem }
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Limit != 2 ||
		list.Items[0].Type != "semaphore" || len(list.Items[0].Holders) != 2 || *list.Items[0].Holders[1].Slot != 1 {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	on(t, "", "locks", "release", "--yes", "/lsem").want(t, exitUsage, "", "~2 hold it; --holder says which")
	on(t, "", "locks", "release", "--yes", "/lsem", "--holder", "/lsem/slots/"+slots[0]).want(t, exitOK, "~released /lsem, held by s0 with token ", "")
	if code := all[0].wait(t); code != exitLost {
		t.Errorf("exit code %d\n%s", code, all[0].stderr.String())
	}
	endIt(t, all[1])
	on(t, "", "lock", "--slots", "3", "/lsem", "true").want(t, exitOK, "", "")
	for _, args := range [][]string{
		{"--shared", "--exclusive"},
		{"--slots", "2", "--shared"},
		{"--slots", "-1"},
		{"--slots", "0"},
		{"--slots", "1000000"},
		{"--no-wait", "--wait", "1s"},
		{"--lock-delay", "-1s"},
	} {
		on(t, "", append(append([]string{"lock"}, args...), "/lsem", "true")...).want(t, exitCannotRun, "", "~coordctl: --")
	}
}

// --wait is kept by the cluster: the place of a contender that hangs goes away.
func TestWaitIsKeptByTheCluster(t *testing.T) {
	t.Parallel()
	fresh(t, "/lwait")
	holding(t, sharedCluster(t), "/lwait")
	w := lockCmd(t, "--wait", "1s", "/lwait", "true")
	eventually(t, "it waits", func() bool { return strings.Count(must(t, "ls", "/lwait"), "\n") == 2 })
	if err := w.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "its place goes away", func() bool { return strings.Count(must(t, "ls", "/lwait"), "\n") == 1 })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s, as long as a session", took)
	}
	if err := w.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := w.wait(t); code != exitNotAcquired {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
}

// After a lost holder nobody has the lock for --lock-delay, which everybody can
// see and an operator can end.
func TestLockDelayIsShownAndEnded(t *testing.T) {
	t.Parallel()
	fresh(t, "/ldelay")
	p := holding(t, sharedCluster(t), "/ldelay", "--lock-delay", "10m", "--session-timeout", "2s", "--owner", "me")
	r := on(t, "", "locks", "show", "--json", "/ldelay")
	var item lockItem
	if err := json.Unmarshal([]byte(r.stdout), &item); err != nil || item.Holder == nil || item.Holder.Acquired == "" {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	eventually(t, "its session has ended", func() bool { return strings.Contains(must(t, "locks", "/ldelay"), "GONE, free in ") })
	on(t, "", "locks", "show", "/ldelay").want(t, exitOK, "~Its lock-delay keeps the lock for ", "")
	on(t, "", "locks", "check", "/ldelay", "--token", item.Holder.Token).want(t, exitPrecondition, "~stale: ", "")
	on(t, "", "lock", "--no-wait", "/ldelay", "true").want(t, exitNotAcquired, "", "~held by me")
	on(t, "", "locks", "release", "--yes", "/ldelay").want(t, exitOK, "~released /ldelay, held by me", "")
	on(t, "", "lock", "--no-wait", "/ldelay", "true").want(t, exitOK, "", "")
}
