package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

// On a terminal deleteall asks, with a question that fits the danger.
func TestDeleteAllAsksOnATerminal(t *testing.T) {
	t.Setenv("COORDCTL_CONFIG", filepath.Join(t.TempDir(), "contexts.yaml"))
	target := sharedCluster(t).Target()
	ctl(t, "", "context", "add", "safe", "--protected", "-e", target).want(t, exitOK, "", "")
	ctl(t, "", "context", "add", "play", "-e", target).want(t, exitOK, "", "")
	for _, c := range []struct {
		name, context, path, answer string
		says                        string
		code                        int
	}{
		{"y", "play", "/da-ask/small", "y", "/da-ask/small and 1 znode below it", exitOK},
		{"n", "play", "/da-ask/small", "n", "[y/N]", exitUsage},
		{"enter", "play", "/da-ask/small", "", "not confirmed, nothing was done", exitUsage},
		{"the path is not asked for", "play", "/da-ask/small", "/da-ask/small", "[y/N]", exitUsage},
		{"top level", "play", "/da-ask", "/da-ask", "Type /da-ask to go on", exitOK},
		{"top level, y", "play", "/da-ask", "y", "not confirmed", exitUsage},
		{"protected", "safe", "/da-ask/small", "y", "Type /da-ask/small to go on", exitUsage},
		{"protected, typed", "safe", "/da-ask/small", "/da-ask/small", "\x1b[31m", exitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			fresh(t, "/da-ask")
			must(t, "create", "-p", "/da-ask/small/one")
			person, program := openTerminal(t)
			if _, err := person.WriteString(c.answer + "\n"); err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			code := run(context.Background(), []string{"--context", c.context, "--color", "always", "deleteall", c.path}, program, &out, &errs)
			if code != c.code || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit code %d\n%s", code, errs.String())
			}
			_, gone := map[int]bool{exitOK: true}[code]
			if r := on(t, "", "stat", c.path); (r.code == exitNotFound) != gone {
				t.Errorf("afterwards stat says %d", r.code)
			}
		})
	}
}

// The question names the sessions whose znodes would go.
func TestDeleteAllNamesLiveSessions(t *testing.T) {
	t.Parallel()
	fresh(t, "/da-live")
	must(t, "create", "-p", "/da-live/members")
	p := start(t, sharedCluster(t), nil, "create", "-e", "--hold", "/da-live/members/one")
	eventually(t, "the member is there", func() bool { return on(t, "", "stat", "/da-live/members/one").code == exitOK })
	person, program := openTerminal(t)
	if _, err := person.WriteString("n\n"); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{"-e", sharedCluster(t).Target(), "deleteall", "/da-live/members"}, program, &out, &errs)
	if code != exitUsage || !strings.Contains(errs.String(), "1 are ephemeral znodes of live sessions\n(coordctl.test@") ||
		!strings.Contains(errs.String(), "Type /da-live/members") {
		t.Errorf("exit code %d\n%s", code, errs.String())
	}
	// The znode is seen before its creator has the answer: an interrupt before that
	// is one of the create, not of the hold.
	eventually(t, "the member knows that it is there", func() bool { return p.stdout.String() != "" })
	if err := p.cmd.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != exitOK || p.stdout.String() != "/da-live/members/one\n" {
		t.Errorf("exit code %d, stdout %q", code, p.stdout.String())
	}
	on(t, "", "stat", "/da-live/members/one").want(t, exitNotFound, "", "~no such node") // at once
}
