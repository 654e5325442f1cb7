package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// One leads at a time, others are told who; a leader that ends makes room.
func TestElect(t *testing.T) {
	t.Parallel()
	fresh(t, "/el")
	on(t, "", "elect", "--show", "/el").want(t, exitNotFound, "", "~elect /el: nobody leads")
	on(t, "", "--json", "elect", "--show", "/el").want(t, exitNotFound, "", `~"code":"NoLeader"`)
	observer := start(t, sharedCluster(t), nil, "elect", "--observe", "--json", "/el")
	eventually(t, "it observes", func() bool { return strings.Count(observer.stdout.String(), "\n") == 1 })
	a := start(t, sharedCluster(t), nil, "elect", "--value", "a:1", "--owner", "A", "/el", "sh", "-c", "echo $COORD_FENCING_TOKEN; sleep 60")
	eventually(t, "a leads", func() bool { return a.stdout.String() != "" })
	on(t, "", "elect", "--show", "/el").want(t, exitOK, "~a:1  owner A  token "+strings.TrimSpace(a.stdout.String())+"  since ", "")
	on(t, "", "elect", "--wait", "100ms", "/el", "true").want(t, exitNotAcquired, "", "~elect /el: not elected within 100ms: held by A")
	b := start(t, sharedCluster(t), nil, "elect", "--value", "b:1", "/el", "sh", "-c", "echo $COORD_FENCING_TOKEN; exit 7")
	eventually(t, "b is a candidate", func() bool { return strings.Contains(must(t, "locks", "/el"), "  1  ") })
	endIt(t, a)
	if code := b.wait(t); code != 7 {
		t.Errorf("exit code %d\n%s", code, b.stderr.String())
	}
	eventually(t, "all changes are seen", func() bool { return strings.Count(observer.stdout.String(), "\n") == 5 })
	var seen []string
	for line := range strings.Lines(observer.stdout.String()) {
		var item leaderItem
		if err := json.Unmarshal([]byte(line), &item); err != nil {
			t.Fatal(err)
		}
		if item.None {
			seen = append(seen, "-")
		} else {
			seen = append(seen, *item.Value)
		}
	}
	if got := strings.Join(seen, " "); got != "- a:1 - b:1 -" {
		t.Errorf("seen: %s", got)
	}
	if err := observer.cmd.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if code := observer.wait(t); code != exitOK {
		t.Errorf("exit code %d\n%s", code, observer.stderr.String())
	}
	on(t, "", "elect", "--show", "/el", "true").want(t, exitUsage, "", "~take no command")
	on(t, "", "elect", "--wait", "x", "/el", "true").want(t, exitCannotRun, "", "~invalid argument")
}

// Losing the leadership ends the command, as losing a lock does.
func TestLostLeadershipEndsTheCommand(t *testing.T) {
	t.Parallel()
	fresh(t, "/ell")
	p := start(t, sharedCluster(t), nil, "elect", "/ell", "sh", "-c", "echo $COORD_LOCK_NODE; exec sleep 60")
	eventually(t, "it leads", func() bool { return strings.HasSuffix(p.stdout.String(), "\n") })
	must(t, "locks", "release", "--yes", "/ell")
	if code := p.wait(t); code != exitLost || !strings.Contains(p.stderr.String(), "its queue entry was deleted") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}
