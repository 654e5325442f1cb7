package main

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
)

// Items come out in order, once each; a command that fails, or dies, gives its
// item back.
func TestQueue(t *testing.T) {
	t.Parallel()
	fresh(t, "/que")
	on(t, "", "queue", "len", "/que/a").want(t, exitOK, "0\n", "")
	on(t, "", "queue", "take", "--no-wait", "/que/a").want(t, exitNotAcquired, "", "~queue /que/a: no item is free")
	on(t, "", "queue", "take", "--wait", "100ms", "/que/a", "true").want(t, exitNotAcquired, "", "~no item within 100ms")
	first := must(t, "queue", "put", "--key", "k", "/que/a", "one")
	if again := must(t, "queue", "put", "--key", "k", "/que/a", "one"); again != first || strings.Count(first, "\n") != 1 {
		t.Errorf("ids %q and %q", first, again)
	}
	on(t, "two\n", "queue", "put", "--json", "--priority", "-1", "/que/a", "-").want(t, exitOK, "~\"id\": \"", "")
	must(t, "queue", "put", "/que/a", "three")
	on(t, "", "queue", "len", "/que/a").want(t, exitOK, "3\n", "")
	on(t, "", "queue", "take", "/que/a", "sh", "-c", "cat; exit 3").want(t, 3, "two\n", "")
	on(t, "", "queue", "take", "/que/a", "sh", "-c", "cat; echo $COORD_QUEUE_DELIVERIES").want(t, exitOK, "two\n2\n", "")
	r := on(t, "", "queue", "take", "--json", "/que/a")
	var item queueItem
	if err := json.Unmarshal([]byte(r.stdout), &item); err != nil || *item.Data != "one" || item.Key != "k" || item.ID+"\n" != first || item.Token == "" {
		t.Errorf("%v\n%s%s", err, r.stdout, r.stderr)
	}
	on(t, "", "queue", "len", "/que/a").want(t, exitOK, "1\n", "")
	p := start(t, sharedCluster(t), nil, "queue", "take", "--session-timeout", "2s", "/que/a", "sh", "-c", "echo got; exec sleep 60")
	eventually(t, "it works", func() bool { return p.stdout.String() == "got\n" })
	on(t, "", "queue", "take", "--no-wait", "/que/a", "true").want(t, exitNotAcquired, "", "~no item is free")
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.wait(t)
	on(t, "", "queue", "take", "/que/a").want(t, exitOK, "three", "")
	on(t, "", "queue", "len", "/que/a").want(t, exitOK, "0\n", "")
}

// A signal reaches the command; a claim that somebody deletes ends it.
func TestQueueTakePassesSignalsAndEndsWithTheClaim(t *testing.T) {
	t.Parallel()
	fresh(t, "/qsig")
	must(t, "queue", "put", "/qsig", "x")
	p := start(t, sharedCluster(t), nil, "queue", "take", "/qsig", "sh", "-c", "trap 'exit 9' USR1; echo ready; while :; do sleep 0.01; done")
	eventually(t, "it works", func() bool { return p.stdout.String() == "ready\n" })
	if err := p.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 9 {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	p = start(t, sharedCluster(t), nil, "queue", "take", "/qsig", "sh", "-c", "echo ready; exec sleep 60")
	eventually(t, "it works", func() bool { return p.stdout.String() == "ready\n" })
	claims := 0
	for line := range strings.Lines(must(t, "ls", "-R", "-o", "ndjson", "-l", "/qsig")) {
		var n nodeItem
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			t.Fatal(err)
		}
		if n.Stat != nil && n.Stat.Kind == "ephemeral" { // what the taker has
			claims++
			must(t, "delete", n.Path)
		}
	}
	if claims != 1 {
		t.Fatalf("%d claims", claims)
	}
	if code := p.wait(t); code != exitLost || !strings.Contains(p.stderr.String(), "its claim was deleted") {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
	on(t, "", "queue", "take", "/qsig", "no-such-command").want(t, exitNoCommand, "", "~not found")
	on(t, "", "queue", "take", "--wait", "1s", "--no-wait", "/qsig", "true").want(t, exitCannotRun, "", "~exclude each other")
	on(t, "", "queue", "put", "--key", "", "/qsig", "x").want(t, exitUsage, "", "~a key has")
}
