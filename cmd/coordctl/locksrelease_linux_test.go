package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// A lock is taken away only by who has typed its path, having read what it means.
func TestReleaseAsksOnATerminal(t *testing.T) {
	t.Parallel()
	fresh(t, "/lrel")
	p := holding(t, sharedCluster(t), "/lrel", "--owner", "batch-7")
	lockCmd(t, "--owner", "batch-3", "/lrel", "true")
	eventually(t, "somebody waits", func() bool { return strings.Count(must(t, "ls", "/lrel"), "\n") == 2 })
	for _, c := range []struct {
		answer string
		code   int
	}{{"y", exitUsage}, {"/lre", exitUsage}, {"/lrel", exitOK}} {
		person, program := openTerminal(t)
		if _, err := person.WriteString(c.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := run(context.Background(), []string{"-e", sharedCluster(t).Target(), "locks", "release", "/lrel"}, program, &out, &errs)
		if code != c.code {
			t.Errorf("answer %q: exit code %d\n%s", c.answer, code, errs.String())
		}
		for _, says := range []string{
			"The holder batch-7 is alive", "Releasing does not stop its process: it will be told", " is refused only by resources that check tokens.",
			"Next holder: batch-3.", "Type /lrel to go on: ",
		} {
			if !strings.Contains(errs.String(), says) {
				t.Errorf("it does not say %q:\n%s", says, errs.String())
			}
		}
	}
	if code := p.wait(t); code != exitLost {
		t.Errorf("exit code %d\n%s", code, p.stderr.String())
	}
}

// Who has come since the question was asked keeps the lock.
func TestReleaseLeavesALaterHolderAlone(t *testing.T) {
	t.Parallel()
	fresh(t, "/lrel2")
	p := holding(t, sharedCluster(t), "/lrel2", "--owner", "first")
	person, program := openTerminal(t)
	var out bytes.Buffer
	var errs lockedBuffer
	done := make(chan int, 1)
	go func() {
		done <- run(context.Background(), []string{"-e", sharedCluster(t).Target(), "locks", "release", "/lrel2"}, program, &out, &errs)
	}()
	eventually(t, "it asks", func() bool { return strings.Contains(errs.String(), "Type /lrel2") })
	endIt(t, p)
	holding(t, sharedCluster(t), "/lrel2", "--owner", "second")
	if _, err := person.WriteString("/lrel2\n"); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != exitPrecondition || !strings.Contains(errs.String(), "first has let it go meanwhile; nothing was done") {
		t.Errorf("exit code %d\n%s", code, errs.String())
	}
	on(t, "", "locks", "show", "/lrel2").want(t, exitOK, "~HOLDER   second   token ", "")
}
