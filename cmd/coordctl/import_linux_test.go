package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/zkimport"
)

// Before anything is overwritten import asks, and the line that tells how far it is
// makes room for the question.
func TestImportAsksBeforeItOverwrites(t *testing.T) {
	t.Parallel()
	target, ensemble := zkCluster(t)
	for _, args := range [][]string{{"create", "/app", "new"}, {"create", "/copy", "old"}} {
		ctl(t, "", append([]string{"-e", target}, args...)...).want(t, exitOK, "~", "")
	}
	args := []string{"-e", target, "import", "zookeeper", ensemble, "--path", "/app", "--under", "/copy", "--overwrite"}
	ctl(t, "", args...).want(t, exitUsage, "", "~needs a terminal to ask on, or --yes")
	for _, x := range []struct {
		answer string
		code   int
		data   string
	}{{"n", exitUsage, "old"}, {"y", exitOK, "new"}} {
		person, program := openTerminal(t)
		if _, err := person.WriteString(x.answer + "\n"); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		code := run(context.Background(), args, program, &out, &errs)
		if code != x.code || !strings.Contains(errs.String(), "1 znode will be overwritten. This cannot be undone. [y/N]") {
			t.Errorf("%s: exit code %d\n%s", x.answer, code, errs.String())
		}
		ctl(t, "", "-e", target, "get", "/copy").want(t, exitOK, x.data, "")
	}
}

// On a terminal there is one line, which is wiped for whatever else is said.
func TestProgressIsOneLineOnATerminal(t *testing.T) {
	person, program := openTerminal(t)
	e := newEnv(strings.NewReader(""), io.Discard, program)
	told := e.tell(new(zkimport.Progress))
	read := func() string {
		if err := person.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 200)
		n, err := person.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	told.say("reading: 1 znode")
	if got := read(); got != "\r\x1b[Kreading: 1 znode" {
		t.Errorf("%q", got)
	}
	told.hide()
	if got := read(); got != "\r\x1b[K" {
		t.Errorf("%q", got)
	}
	told.say("reading: 2 znodes") // not while something else is there
	told.show()
	told.say("reading: 3 znodes")
	if got := read(); got != "\r\x1b[Kreading: 3 znodes" {
		t.Errorf("%q", got)
	}
	told.stop()
	if got := read(); got != "\r\x1b[K" {
		t.Errorf("%q", got)
	}
}
