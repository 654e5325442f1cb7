package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/internal/localcluster"
	"github.com/coordd/coord/internal/zkimport"
	"github.com/coordd/coord/server"
)

// zkCluster is a cluster whose ZooKeeper port stands in for an ensemble: what is
// imported from there comes to stand beside it. How a real one is read is tested in
// package test.
func zkCluster(t *testing.T) (target, ensemble string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := localcluster.Start(ctx, localcluster.Options{Change: func(cfg *server.Config) { cfg.ZooKeeper.Address = "127.0.0.1:0" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.Target(), c.Server(0).Addrs().ZooKeeper.String()
}

// What import and verify print, for people and for scripts, and their exit codes.
func TestImportPrintsWhatItDoes(t *testing.T) {
	t.Parallel()
	target, ensemble := zkCluster(t)
	steps := func(code int, stdout string, args ...string) {
		t.Helper()
		r := ctl(t, "", append([]string{"-e", target}, args...)...)
		if r.code != code || r.stdout != stdout {
			t.Errorf("%s: exit code %d, want %d\n%s\nwant\n%s\n%s", strings.Join(args, " "), r.code, code, r.stdout, stdout, r.stderr)
		}
	}
	for _, args := range [][]string{
		{"create", "/app", "hello"}, {"create", "/app/a", "1"}, {"create", "/app/null"}, {"create", "-s", "/app/n-"}, {"delete", "/app/n-0000000002"},
	} {
		if r := ctl(t, "", append([]string{"-e", target}, args...)...); r.code != exitOK {
			t.Fatal(r.stderr)
		}
	}
	from := []string{"zookeeper", ensemble, "--path", "/app", "--under", "/copy"}
	imp := func(more ...string) []string { return append(append([]string{"import"}, from...), more...) }
	verify := append([]string{"import", "verify"}, from...)
	steps(exitOK, "would copy     3 znodes, 6 B, 1 ACL list, 1 sequence counter, 0 quotas\n", imp("--dry-run")...)
	steps(exitUnhealthy, "PATH        DIFFERENCE  DETAIL\n/copy       missing     -\n/copy/a     missing     -\n/copy/null  missing     -\n3 znodes compared: 3 differences\n", verify...)
	steps(exitOK, "copied         3 znodes, 6 B, 1 ACL list, 1 sequence counter, 0 quotas\n", imp()...)
	steps(exitOK, "3 znodes compared: all the same\n", verify...)
	steps(exitOK, "copied         0 znodes, 0 B, 1 ACL list, 0 sequence counters, 0 quotas\nalready there  3 znodes, the same\n", imp()...)
	ctl(t, "", "-e", target, "set", "/copy/a", "2").want(t, exitOK, "~", "")
	ctl(t, "", "-e", target, "create", "/copy/own").want(t, exitOK, "~", "")
	steps(exitUnhealthy, "PATH       DIFFERENCE  DETAIL\n/copy/a    data        -\n/copy/own  extra       the ensemble has no such znode\n3 znodes compared: 2 differences\n", verify...)
	steps(exitPrecondition, "already there  2 znodes, the same\ndiffers        /copy/a: data\n", imp()...)
	r := ctl(t, "", append([]string{"-e", target, "--json"}, imp()...)...)
	var doc map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc["kind"] != "Import" || doc["dataBytes"] != "0" || doc["present"] != 2.0 {
		t.Errorf("%v, %v", doc, err)
	}
	if r.want(t, exitPrecondition, r.stdout, `~"code":"Refused"`); !strings.Contains(r.stderr, "--overwrite") {
		t.Errorf("no way on in %s", r.stderr)
	}
	steps(exitOK, "copied         0 znodes, 1 B, 1 ACL list, 0 sequence counters, 0 quotas\nalready there  2 znodes, the same\noverwritten    1 znode, differed\n", imp("--overwrite", "--yes")...)
}

func TestHostsAreReadAsZooKeepersClientsReadThem(t *testing.T) {
	for text, want := range map[string][]string{
		"zk1":                 {"zk1:2181"},
		"zk1:2182":            {"zk1:2182"},
		"zk1,zk2:99, zk3":     {"zk1:2181", "zk2:99", "zk3:2181"},
		"[::1]:7,[fe80::1]":   {"[::1]:7", "[fe80::1]:2181"},
		"127.0.0.1,::1":       {"127.0.0.1:2181", "[::1]:2181"},
		"zk1/app":             nil,
		"":                    nil,
		"zk1,,zk2":            nil,
		"zk1:":                nil,
		"zk1:2181,zk2:2181/a": nil,
	} {
		got, err := parseHosts(text)
		if (err != nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestCredentialsOfTheEnsembleComeFromAFile(t *testing.T) {
	t.Parallel()
	target, ensemble := zkCluster(t)
	file := filepath.Join(t.TempDir(), "auth")
	if err := os.WriteFile(file, []byte("\n bob:pw \n\nann:pw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ann := filepath.Join(t.TempDir(), "ann")
	if err := os.WriteFile(ann, []byte("ann:pw"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctl(t, "", "-e", target, "create", "/secret", "s").want(t, exitOK, "~", "")
	ctl(t, "", "-e", target, "--auth-file", ann, "acl", "set", "/secret", "auth::rwcda").want(t, exitOK, "~", "")
	args := []string{"-e", target, "import", "zookeeper", ensemble, "--path", "/secret", "--under", "/copy"}
	ctl(t, "", args...).want(t, exitNotPermitted, "~refused        /secret: may not be read with these credentials", "~--source-auth-file")
	ctl(t, "", append(args, "--source-auth-file", file)...).want(t, exitOK, "~copied         1 znode", "")
}

func TestProgressIsToldInWords(t *testing.T) {
	for want, s := range map[string]zkimport.State{
		"":                               {},
		"reading: 7 znodes":              {Phase: "reading", Done: 7},
		"comparing: 1 of 9 znodes":       {Phase: "comparing", Done: 1, Total: 9},
		"copying: 0 of 1 znode (0 %), 0": {Phase: "copying", Total: 1},
		"copying: 5 of 20 znodes (25 %), 2.0 KiB": {Phase: "copying", Done: 5, Total: 20, Bytes: 2048},
	} {
		if got := progressText(s); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%+v: %q", s, got)
		}
	}
	if got := short(strings.Repeat("ä", 200)); len([]rune(got)) != 161 {
		t.Errorf("%q", got)
	}
	if got := short("/short"); got != "/short" {
		t.Errorf("%q", got)
	}
}
