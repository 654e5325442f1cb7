package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
)

// events decodes lines of JSON.
func events(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	dec := json.NewDecoder(strings.NewReader(text))
	for dec.More() {
		var e map[string]any
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		out = append(out, e)
	}
	return out
}

// A watch prints each change once and in order, with its cause.
func TestWatchPrintsEachChangeInOrder(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-order")
	must(t, "create", "/watch-order")
	w := start(t, sharedCluster(t), nil, "watch", "-r", "--initial", "--json", "--data", "--count", "5", "/watch-order")
	eventually(t, "the watch stands", func() bool { return strings.Contains(w.stdout.String(), "present") })
	must(t, "create", "/watch-order/a", "1")
	must(t, "set", "/watch-order/a", "2")
	must(t, "acl", "set", "/watch-order/a", "world:anyone:rwcda")
	must(t, "delete", "/watch-order/a")
	if code := w.wait(t); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, w.stderr.String())
	}
	var got []string
	for _, e := range events(t, w.stdout.String()) {
		data, _ := e["data"].(string)
		cause, _ := e["cause"].(string)
		got = append(got, strings.Join([]string{e["type"].(string), e["path"].(string), data, cause}, " "))
	}
	want := []string{
		"present /watch-order  ", "created /watch-order/a 1 request", "changed /watch-order/a 2 request",
		"acl /watch-order/a  request", "deleted /watch-order/a  request",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// --since resumes behind the zxid of an earlier event, without a gap and
// without a repetition.
func TestWatchSince(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-since")
	must(t, "create", "/watch-since")
	for i := range 5 {
		must(t, "create", "/watch-since/n"+strconv.Itoa(i))
	}
	all := events(t, must(t, "watch", "-r", "--json", "--since", zxidOf(t, "/watch-since"), "--count", "5", "/watch-since"))
	rest := events(t, must(t, "watch", "-r", "--json", "--since", all[2]["zxid"].(string), "--count", "2", "/watch-since"))
	if rest[0]["path"] != "/watch-since/n3" || rest[1]["path"] != "/watch-since/n4" {
		t.Errorf("resumed with %v", rest)
	}
}

func zxidOf(t *testing.T, path string) string {
	t.Helper()
	return events(t, must(t, "stat", "--json", path))[0]["stat"].(map[string]any)["czxid"].(string)
}

// The reason why an ephemeral znode goes is said.
func TestWatchSaysWhyItWent(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-cause")
	must(t, "create", "/watch-cause")
	c := dial(t)
	since := zxidOf(t, "/watch-cause")
	if _, err := c.Create(t.Context(), "/watch-cause/e", nil, client.WithEphemeral()); err != nil {
		t.Fatal(err)
	}
	if err := c.Session().Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	out := must(t, "watch", "-r", "--since", since, "--count", "2", "/watch-cause")
	if !strings.Contains(out, "ephemeral, session 0x") || !strings.Contains(out, "deleted   /watch-cause/e  session closed") {
		t.Errorf("printed\n%s", out)
	}
}

// The handler gets event, path, zxid and data; while it runs, changes of one
// path become one, the newest.
func TestWatchExecCoalesces(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-exec")
	must(t, "create", "/watch-exec", "start")
	dir := t.TempDir()
	log, gate := filepath.Join(dir, "log"), filepath.Join(dir, "gate")
	handler := `read -r d; echo "$COORD_EVENT $COORD_PATH $d" >>` + log + `; while [ ! -e ` + gate + ` ]; do sleep 0.01; done`
	w := start(t, sharedCluster(t), nil, "watch", "--initial", "--count", "11", "--exec", handler, "/watch-exec")
	eventually(t, "the handler runs", func() bool { _, err := os.Stat(log); return err == nil })
	for i := range 10 {
		must(t, "set", "/watch-exec", strconv.Itoa(i))
	}
	eventually(t, "all changes are seen", func() bool { return strings.Count(w.stdout.String(), "changed") == 10 })
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code := w.wait(t); code != exitOK {
		t.Errorf("exit code %d\n%s", code, w.stderr.String())
	}
	got, err := os.ReadFile(log)
	if want := "present /watch-exec start\nchanged /watch-exec 9\n"; err != nil || string(got) != want {
		t.Errorf("handled %q, %v", got, err)
	}
}

// A failing handler is reported and is the exit code.
func TestWatchExecReportsFailure(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-fail")
	must(t, "create", "/watch-fail")
	on(t, "", "watch", "/watch-fail", "--initial", "--count", "1", "--exec", "exit 3").
		want(t, exitFailed, "~present", `~--exec "exit 3" for present /watch-fail: exit status 3`)
}

// Ctrl-C ends a watch although its handler has much to do.
func TestInterruptEndsAWatch(t *testing.T) {
	t.Parallel()
	fresh(t, "/watch-int")
	must(t, "create", "/watch-int")
	w := start(t, sharedCluster(t), nil, "watch", "-r", "--since", "1", "--exec", "sleep 0.2", "/watch-int")
	eventually(t, "the watch stands", func() bool { return strings.Contains(w.stdout.String(), "created") })
	for i := range 50 {
		must(t, "create", "/watch-int/n"+strconv.Itoa(i))
	}
	began := time.Now()
	if err := w.cmd.Process.Signal(interrupt); err != nil {
		t.Fatal(err)
	}
	if code := w.wait(t); code != exitInterrupted || time.Since(began) > 5*time.Second {
		t.Errorf("exit code %d after %s\n%s", code, time.Since(began), w.stderr.String())
	}
}
