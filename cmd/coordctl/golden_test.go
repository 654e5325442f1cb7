package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

var update = flag.Bool("update", false, "write the golden files anew")

// unstable is what differs from run to run, with what stands for it.
var unstable = []struct {
	pattern *regexp.Regexp
	sign    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z( \([0-9a-z.]+ ago\))?`), "<time>"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d\.\d{3}\b`), "<clock>"},
	{regexp.MustCompile(`0x[0-9a-f]{11,16}`), "<id>"},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "<id>"},
	{regexp.MustCompile(`~[0-9a-f]{16}`), "~<id>"},
	{regexp.MustCompile(`_c_[0-9a-f-]{36}`), "_c_<uuid>"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "<address>"},
	{regexp.MustCompile(`\b\d{17,19}\b`), "<token>"},
	{regexp.MustCompile(`"(ageMs|lastHeardMs|lastContactMs|roleSinceMs|uptimeMs|sessions|znodes|dataBytes)":( ?)-?\d+`), `"$1":$2<n>`},
	{regexp.MustCompile(`"(store|snapshot|snapshots|free|reserve|held|budget)":( ?)\d+`), `"$1":$2<n>`},
	{regexp.MustCompile(`"(term|behind)":( ?)"\d*"`), `"$1":$2"<n>"`},
	{regexp.MustCompile(`\b\d+\.\ds\b`), "<age>"},
	{regexp.MustCompile(`\bgo1\.[^ ]+ \w+/\w+( [0-9a-f]{12})?`), "<build>"},
	{regexp.MustCompile(`"revision": "[0-9a-f]*"`), `"revision": "<revision>"`},
	{regexp.MustCompile(`(ms|coordctl\.test)?@[^":,]+:\d+`), "<program>"},
	{regexp.MustCompile(`"server": ?"n\d"`), `"server":"<node>"`},
	{regexp.MustCompile(`via n\d`), "via <node>"},
	{regexp.MustCompile(`(znodes \d+), \d+ B`), "$1, <n> B"}, // times in cards are of different lengths
	{regexp.MustCompile(`  +`), "  "},
	{regexp.MustCompile(` +\n`), "\n"},
}

func stable(s string) string {
	for _, u := range unstable {
		s = u.pattern.ReplaceAllString(s, u.sign)
	}
	return s
}

// step is one command line of a session with coordctl.
type step struct {
	line  string
	stdin string
	code  int
}

// The output of every command, for people and for scripts, is what the files in
// testdata say. Each document in JSON also passes through a parser that holds
// numbers as floating point.
func TestGoldenOutput(t *testing.T) {
	c := ownCluster(t, 1)
	t.Setenv("COORDCTL_ENDPOINTS", c.Target())
	t.Setenv("COORDCTL_CONFIG", filepath.Join(t.TempDir(), "contexts.yaml"))
	lockForShow(t, c.Target())
	txn := `[{"op":"create","path":"/golden/t","data":"x"},{"op":"set","path":"/golden/t","data":"aGk=","dataEncoding":"base64","version":0},
		{"op":"create","path":"/golden/s-","sequential":true},{"op":"check","path":"/golden/t","version":"1"},{"op":"delete","path":"/golden/t"}]`
	for _, group := range []struct {
		name  string
		steps []step
	}{
		{"tree", []step{
			{"create /golden hello", "", 0},
			{"create --json /golden/a text", "", 0},
			{"create --json -s /golden/s- -", "\x00\xff", 0},
			{"create --json --ttl 1h /golden/ttl", "", 0},
			{"get /golden", "", 0},
			{"get --stat /golden", "", 0},
			{"get --json /golden", "", 0},
			{"get --json /golden/s-0000000001", "", 0},
			{"get -o ndjson /golden/ttl", "", 0},
			{"--stale get --json /golden/a", "", 0},
			{"set /golden/a more", "", 0},
			{"set --json --version 1 /golden/a more", "", 0},
			{"stat /golden/a", "", 0},
			{"stat --json /golden/a", "", 0},
			{"ls /golden", "", 0},
			{"ls -l /golden", "", 0},
			{"ls -o wide -l /golden", "", 0},
			{"ls -R /golden", "", 0},
			{"ls --json /golden", "", 0},
			{"ls --json -R -l /golden", "", 0},
			{"ls -o ndjson /golden", "", 0},
			{"ls --json /golden/a", "", 0},
			{"tree /golden", "", 0},
			{"tree --json -L 1 /golden", "", 0},
			{"sync --json", "", 0},
			{"delete --json /golden/a", "", 0},
			{"deleteall --dry-run --json /golden", "", 0},
			{"deleteall --yes --json /golden", "", 0},
		}},
		{"errors", []step{
			{"create /golden x", "", 0},
			{"get --json /nope", "", 3},
			{"set --json --version 5 /golden y", "", 4},
			{"set --version 5 /golden y", "", 4},
			{"create --json /golden x", "", 4},
			{"create /golden/child", "", 0},
			{"delete --json /golden", "", 4},
			{"delete /golden", "", 4},
			{"deleteall --json /golden", "", 2},
			{"get --json golden", "", 2},
			{"locks show --json /nope", "", 3},
		}},
		{"txn", []step{
			{"txn -", txn, 0},
			{"txn --json -", strings.ReplaceAll(txn, "/golden/t", "/golden/u"), 0},
			{"txn -", `[{"op":"check","path":"/golden","version":0},{"op":"set","path":"/golden","version":9}]`, 4},
			{"txn --json -", `[{"op":"check","path":"/golden","version":0},{"op":"set","path":"/golden","version":9}]`, 4},
			{"txn --json -", `[{"op":"set","path":"/golden","data":"q","czxid":"0x1"},{"op":"delete","path":"/golden"}]`, 4},
			{"txn --json -", `[]`, 2},
			{"txn -", `{}`, 2},
			{"txn -", `[{"op":"set","path":"/golden","verson":9}]`, 2},
		}},
		{"acl", []step{
			{"acl get /golden", "", 0},
			{"acl set --json /golden world:anyone:rwcda ip:10.0.0.0/8:r", "", 0},
			{"acl get --json /golden", "", 0},
			{"acl set --version 9 /golden world:anyone:r", "", 4},
			{"create /golden/locked", "", 0},
			{"acl set /golden/locked world:anyone:r", "", 0},
			{"delete /golden/locked", "", 0},
		}},
		{"watch", []step{
			{"watch /golden --initial --count 1", "", 0},
			{"watch /golden --initial --count 1 --json --data", "", 0},
			{"watch /golden --for 10ms --count 1", "", 7},
			{"watch -r /golden --for 10ms --json", "", 0},
			{"watch -r /golden --since 1 --count 6", "", 0},
			{"watch -r /golden --since 1 --count 6 --json --data", "", 0},
		}},
		{"locks", []step{
			{"locks", "", 0},
			{"locks --json /locks", "", 0},
			{"locks show /locks/held", "", 0},
			{"locks show --json /locks/held", "", 0},
			{"sessions", "", 0},
			{"sessions --json", "", 0},
			{"locks /golden", "", 0},
			{"locks --json /golden", "", 0},
			{"locks show /golden", "", 0},
			{"locks show /locks/rw", "", 0},
			{"locks show -o wide /locks/sem", "", 0},
			{"locks show --json /locks/sem", "", 0},
			{"locks /dead", "", 0},
			{"locks --json /dead", "", 0},
			{"locks show /dead/a", "", 0},
			{"locks check /locks/held --token 1", "", 4},
			{"locks check --json /locks/held --token 1", "", 4},
			{"locks check --json /locks/nope --token 1", "", 4},
			{"locks check /locks/held", "", 2},
			{"locks check --stale /locks/held --token 1", "", 2},
			{"locks check /locks/held --token x", "", 2},
			{"locks release /locks/held", "", 2},
			{"locks release --yes /locks/nope", "", 3},
			{"locks release --yes /locks/sem", "", 2},
			{"locks release --yes /locks/sem --holder /locks/sem/slots/7", "", 3},
			{"locks release --yes --json /locks/held", "", 0},
			{"locks release --yes /locks/held", "", 0},
			{"locks release --yes /locks/held", "", 3},
		}},
		{"cluster", []step{
			{"status", "", 0},
			{"status --json", "", 0},
			{"doctor", "", 0},
			{"doctor --json", "", 0},
			{"members", "", 0},
			{"members --json", "", 0},
			{"members remove n1 --dry-run", "", 4},
			{"members remove n1 --yes", "", 4},
			{"members remove n1", "", 4},
			{"members remove n9 --yes", "", 3},
			{"members remove --yes --json n9", "", 3},
			{"members remove", "", 2},
			{"members promote n1", "", 4},
			{"members promote n9", "", 3},
			{"wait ready", "", 0},
			{"wait ready --node n1", "", 0},
			{"wait ready --json", "", 0},
			{"wait ready --json --node n1", "", 0},
			{"wait ready --node n9 --for 10ms", "", 7},
			{"cluster init", "", 4},
			{"version", "", 0},
			{"version --json", "", 0},
		}},
		{"context", []step{
			{"context ls", "", 0},
			{"context ls --json", "", 0},
			{"context show", "", 3},
			{"context add prod --endpoints a:1,b:2 --cacert ca.pem --protected", "", 0},
			{"context add test --endpoints b:3", "", 0},
			{"context add test --endpoints c:3", "", 4},
			{"context add test --endpoints c:3 --replace", "", 0},
			{"context add test --endpoints c:3 --yes", "", 0},
			{"context ls", "", 0},
			{"context ls --json", "", 0},
			{"context show", "", 0},
			{"context use test", "", 0},
			{"context show --json", "", 0},
			{"context rm test", "", 0},
			{"context use nope", "", 3},
			{"context rm nope", "", 3},
			{"context show nope", "", 3},
		}},
	} {
		t.Run(group.name, func(t *testing.T) { playGolden(t, group.name, group.steps) })
	}
}

// playGolden compares what the steps print with the file.
func playGolden(t *testing.T, name string, steps []step) {
	var all strings.Builder
	for _, s := range steps {
		r := ctl(t, s.stdin, strings.Fields(s.line)...)
		if r.code != s.code {
			t.Errorf("coordctl %s: exit code %d, want %d\n%s%s", s.line, r.code, s.code, r.stdout, r.stderr)
		}
		fmt.Fprintf(&all, "$ coordctl %s\n%s", s.line, stable(r.stdout))
		if r.stdout != "" && !strings.HasSuffix(r.stdout, "\n") {
			all.WriteString("\\\n")
		}
		if r.stderr != "" {
			all.WriteString("stderr:\n" + stable(r.stderr))
		}
		fmt.Fprintf(&all, "exit code %d\n\n", r.code)
		if strings.Contains(s.line, "json") {
			survives(t, s.line, r.stdout)
			if r.code != 0 && !strings.HasPrefix(s.line, "wait") {
				survives(t, s.line, r.stderr)
			}
		}
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := all.String(); got != string(want) {
		t.Errorf("differs from %s (go test -run TestGoldenOutput -update writes it anew):\n%s", file, firstDifference(got, string(want)))
	}
}

// firstDifference shows the lines around it.
func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := 0; i < max(len(g), len(w)); i++ {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d:\n got %s\nwant %s", i+1, a, b)
		}
	}
	return ""
}

// survives checks that text is JSON whose numbers a floating point parser does
// not change.
func survives(t *testing.T, line, text string) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	for dec.More() {
		var v any
		if err := dec.Decode(&v); err != nil {
			t.Errorf("coordctl %s: %v in\n%s", line, err, text)
			return
		}
		eachNumber(v, func(n json.Number) {
			f, err := n.Float64()
			if err != nil || strconv.FormatFloat(f, 'f', -1, 64) != n.String() {
				t.Errorf("coordctl %s: the number %s does not survive as %v", line, n, f)
			}
			if f > 1<<53 || f < -1<<53 {
				t.Errorf("coordctl %s: the number %s is too large", line, n)
			}
		})
	}
}

func eachNumber(v any, f func(json.Number)) {
	switch v := v.(type) {
	case json.Number:
		f(v)
	case []any:
		for _, e := range v {
			eachNumber(e, f)
		}
	case map[string]any:
		for _, e := range v {
			eachNumber(e, f)
		}
	}
}

// goldenSession is a session until the test has ended.
func goldenSession(t *testing.T, target, name string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), target, client.WithSessionName(name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// lockForShow holds locks of all kinds, one with a waiter and two in a deadlock,
// until the test has ended.
func lockForShow(t *testing.T, target string) {
	t.Helper()
	c, other := goldenSession(t, target, "golden"), goldenSession(t, target, "other")
	ctx := t.Context()
	for _, p := range []string{"/locks", "/locks/held", "/dead", "/dead/a", "/dead/b"} {
		// Not containers, which would be gone some time after the last entry.
		if _, err := c.Create(ctx, p, nil); err != nil {
			t.Fatal(err)
		}
	}
	const entry = "/_c_0b2f0a54-9e1c-4d2b-8a43-8f0d1ad2a7f1-lock-"
	for _, e := range []struct {
		c          *client.Client
		lock, data string
	}{
		{c, "/locks/held", `{"owner":"holder","labels":{"job":"report","run":"7"}}`},
		{c, "/locks/held", `10.0.0.1`},
		{c, "/dead/a", `{"owner":"one"}`},
		{other, "/dead/b", `{"owner":"two"}`},
		{other, "/dead/a", `{"owner":"two"}`},
		{c, "/dead/b", `{"owner":"one"}`},
	} {
		if _, err := e.c.Create(ctx, e.lock+entry, []byte(e.data), client.WithEphemeral(), client.WithSequential()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		if _, err := lock.NewRW(c, "/locks/rw", lock.Owner(fmt.Sprint("reader-", i))).AcquireRead(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := lock.NewSemaphore(c, "/locks/sem", 3, lock.Owner(fmt.Sprint("user-", i)), lock.Labels(map[string]string{"part": "x"})).Acquire(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// A list that ends early must not look complete.
func TestListThatFailsIsNoDocument(t *testing.T) {
	var b bytes.Buffer
	e := &env{stdout: &b, output: "json"}
	l := e.newLister("Node", nil, nil)
	for i := range 3 {
		if err := l.add(map[string]int{"i": i}); err != nil {
			t.Fatal(err)
		}
	}
	if json.Valid(b.Bytes()) {
		t.Errorf("unfinished list is valid: %s", b.Bytes())
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b.Bytes()) {
		t.Errorf("finished list is not valid: %s", b.Bytes())
	}
}
