package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/zxid"
)

// backupRig is a cluster of one server with a few znodes, and a backup of it.
type backupRig struct {
	t      *testing.T
	target string
	file   string
}

func newBackupRig(t *testing.T) *backupRig {
	r := &backupRig{t: t, target: ownCluster(t, 1).Target(), file: filepath.Join(t.TempDir(), "a.cbk")}
	r.ok("create", "/app")
	r.ok("create", "/app/config", "as it was")
	r.ok("create", "/app/empty", "")
	r.ok("create", "/app/null")
	r.ok("backup", "save", r.file)
	return r
}

func (r *backupRig) run(args ...string) result {
	r.t.Helper()
	return ctl(r.t, "", append([]string{"-e", r.target}, args...)...)
}

func (r *backupRig) ok(args ...string) string {
	r.t.Helper()
	res := r.run(args...)
	if res.code != exitOK {
		r.t.Fatalf("%v: exit code %d\n%s", args, res.code, res.stderr)
	}
	return res.stdout
}

// item is the JSON document that a command prints.
func (r *backupRig) item(into any, args ...string) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.ok(append(args, "--json")...)), into); err != nil {
		r.t.Fatal(err)
	}
}

func TestBackupSavesVerifiesAndShows(t *testing.T) {
	r := newBackupRig(t)
	var item backupItem
	r.item(&item, "backup", "verify", r.file)
	if !item.Checked || item.Znodes != 8 || len(item.SHA256) != 64 || item.ClusterName != "local" || item.Server != "n1" {
		t.Errorf("verified as %+v", item)
	}
	if out := r.ok("backup", "show", r.file); !strings.Contains(out, item.Zxid) || !strings.Contains(out, "local") {
		t.Errorf("it shows:\n%s", out)
	}
	// Without a server: nothing listens there.
	if res := ctl(t, "", "-e", "127.0.0.1:1", "backup", "show", r.file, "/app/config"); res.stdout != "as it was" {
		t.Errorf("exit code %d, %q, %s", res.code, res.stdout, res.stderr)
	}
	if out := r.ok("backup", "show", r.file, "/app", "--children"); out != "config\nempty\nnull\n" {
		t.Errorf("the children are %q", out)
	}
	for path, want := range map[string]string{"/app/null": `"data": null`, "/app/empty": `"data": ""`} {
		if out := r.ok("backup", "show", r.file, path, "--json"); !strings.Contains(out, want) {
			t.Errorf("%s: %s", path, out)
		}
	}
	if res := r.run("backup", "show", r.file, "/none"); res.code != exitNotFound {
		t.Errorf("of a znode that is not in it: exit code %d, %s", res.code, res.stderr)
	}
	if res := r.run("backup", "save", r.file); res.code != exitPrecondition || !strings.Contains(res.stderr, "--force") {
		t.Errorf("over itself: exit code %d, %s", res.code, res.stderr)
	}
	r.ok("backup", "save", r.file, "--force")
}

func TestDamagedBackupIsNeitherVerifiedNorRestored(t *testing.T) {
	r := newBackupRig(t)
	whole, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"cut":   whole[:len(whole)-1],
		"other": append(bytes.Clone(whole[:len(whole)/2]), append([]byte{whole[len(whole)/2] + 1}, whole[len(whole)/2+1:]...)...),
		"text":  []byte("hello, world, this is no backup at all, nor was it ever one"),
	} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"verify", path}, {"restore", path, "--yes"}} {
			if res := r.run(append([]string{"backup"}, args...)...); res.code != exitUnhealthy {
				t.Errorf("%s, %s: exit code %d, %s", name, args[0], res.code, res.stderr)
			}
		}
	}
	if out := r.ok("get", "/app/config"); out != "as it was" {
		t.Errorf("it holds %q", out)
	}
}

func TestRestoreOfABackup(t *testing.T) {
	r := newBackupRig(t)
	r.ok("set", "/app/config", "newer")
	r.ok("create", "/later")
	c, err := client.Dial(t.Context(), r.target)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(c)
	before, err := c.Create(t.Context(), "/session", nil, client.WithEphemeral())
	if err != nil {
		t.Fatal(err)
	}
	if res := r.run("backup", "restore", r.file); res.code != exitUsage {
		t.Errorf("without a terminal and --yes: exit code %d, %s", res.code, res.stderr)
	}
	if res := r.run("backup", "restore", r.file, "--into-empty", "--yes"); res.code != exitPrecondition {
		t.Errorf("into an empty cluster that is not: exit code %d, %s", res.code, res.stderr)
	}
	var item restoreItem
	r.item(&item, "backup", "restore", r.file, "--yes")
	z, err := zxid.Parse(item.Zxid)
	if err != nil || z <= before.Stat.Czxid || item.Znodes != 8 || item.SessionsEnded < 1 {
		t.Errorf("restored as %+v, %v", item, err)
	}
	if out := r.ok("get", "/app/config"); out != "as it was" {
		t.Errorf("it holds %q", out)
	}
	for _, path := range []string{"/later", "/session"} {
		if res := r.run("stat", path); res.code != exitNotFound {
			t.Errorf("%s: exit code %d", path, res.code)
		}
	}
	select {
	case <-c.Session().Context().Done():
	case <-time.After(time.Minute):
		t.Fatal("the session does not hear of its end")
	}
	var end *client.SessionError
	if err := context.Cause(c.Session().Context()); !errors.As(err, &end) || end.Reason != client.Restore {
		t.Errorf("the session hears: %v", err)
	}
}

func TestMinTokenOfARestore(t *testing.T) {
	r := newBackupRig(t)
	token := zxid.Make(1_500_000_000, 7)
	var item restoreItem
	r.item(&item, "backup", "restore", r.file, "--yes", "--min-token", token.String())
	if z, err := zxid.Parse(item.Zxid); err != nil || z <= token {
		t.Errorf("after token %s zxid goes on at %s, %v", token, item.Zxid, err)
	}
	if res := r.run("backup", "restore", r.file, "--yes", "--min-token", "0x7fffffff00000001"); res.code != exitPrecondition {
		t.Errorf("a token without room behind it: exit code %d, %s", res.code, res.stderr)
	}
	if res := r.run("backup", "restore", r.file, "--yes", "--min-token", "many"); res.code != exitUsage {
		t.Errorf("no token: exit code %d, %s", res.code, res.stderr)
	}
}

func TestRestoreIntoAnEmptyCluster(t *testing.T) {
	r := newBackupRig(t)
	other := &backupRig{t: t, target: ownCluster(t, 3).Target()}
	other.ok("backup", "restore", r.file, "--into-empty", "--yes")
	if out := other.ok("get", "/app/config"); out != "as it was" {
		t.Errorf("it holds %q", out)
	}
}
