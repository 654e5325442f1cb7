package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/coordd/coord"

// arrows says which of our packages each of our packages may import, by their
// path in the module. A name stands for the package and those below it. What is
// not listed may import nothing of ours; a name is always allowed below itself.
var arrows = map[string][]string{
	"zxid":    {},
	"session": {"zxid"},
	"znode":   {"session", "zxid"},
	"watch":   {"znode", "session", "zxid"},
	"wire":    {"znode", "session", "zxid"},
	"fsm":     {"znode", "session", "zxid", "internal/planted"},
	"cluster": {"fsm", "znode", "session", "zxid", leaves},
	"api":     {},
	"server":  {"api", "cluster", "fsm", "watch", "wire", "znode", "session", "zxid", leaves},
	"client":  {"api", "znode", "session", "zxid", leaves},
	"fence":   {"zxid"},
	"recipes": {"client", "fence", "znode", "session", "zxid", "internal/planted"},

	"internal/backupfile":   {"api", "fsm", "znode", "session", "zxid"},
	"internal/localcluster": {"server", "client", "cluster", "api", "znode", "session", "zxid", leaves},
	"internal/recipetest":   {"coordtest", "client", "api", "fence", "recipes", "znode", "session", "zxid", leaves},
	"internal/demo":         {"client", "recipes", "fence", "api", "znode", "session", "zxid", "internal/pgtest", leaves},
	"internal/check":        {"api", "client", "recipes", "fence", "znode", "session", "zxid"},
	"internal/pgtest":       {leaves},
	"internal/mariadbtest":  {leaves},
	"internal/zkimport":     {"client", "wire", "znode", "session", "zxid"},

	"cmd/coordd":   {anything},
	"cmd/coordctl": {anything},
	"test":         {anything},
	"coordtest":    {anything},
	"docs":         {},
	"examples":     {"client", "recipes", "fence"},
	"scripts":      {anything},
}

const (
	anything = "*"
	// leaves are the packages under internal that import nothing of ours: small
	// things that programs and servers share.
	leaves = "internal leaves"
)

// forbidden are arrows that the table would allow, with the reason.
var forbidden = map[[2]string]string{
	{"cmd/coordctl", "internal/localcluster"}: "coordctl starts coordd as a child",
}

// goPackage is what `go list -json` says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

// own is the path of the package in the module.
func (p goPackage) own() string { return ownPath(p.ImportPath) }

func ownPath(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	own, ok := strings.CutPrefix(importPath, modulePath+"/")
	if !ok {
		return ""
	}
	return own
}

// listPackages returns the packages of the module without their tests. One that
// does not build is listed too: that is for the compiler to say.
func listPackages(t *testing.T) []goPackage {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(goCommand(t, "list", "-e", "-json=ImportPath,Dir,GoFiles,Imports,Deps", modulePath+"/...")))
	var packages []goPackage
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 5 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	return packages
}

func goCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, problems.String())
	}
	return out
}

// ruleOf returns the longest name in the table that covers the package, or "".
func ruleOf(own string) string {
	for name := own; name != "." && name != ""; name = filepath.Dir(name) {
		if _, ok := arrows[name]; ok {
			return name
		}
	}
	return ""
}

// within tells whether own is the package name or below it.
func within(own, name string) bool { return own == name || strings.HasPrefix(own, name+"/") }

// isLeaf tells whether own is under internal and has no rule of its own.
func isLeaf(own string) bool { return within(own, "internal") && ruleOf(own) == "" }

// allowed tells whether from may import to; both are paths in the module.
func allowed(from, to string) bool {
	rule := ruleOf(from)
	if rule == "" {
		return false
	}
	if within(to, rule) {
		return true
	}
	for _, name := range arrows[rule] {
		if name == anything || name == leaves && isLeaf(to) || within(to, name) {
			return true
		}
	}
	return false
}

func TestImportsFollowTheArrows(t *testing.T) {
	for _, p := range listPackages(t) {
		if ruleOf(p.own()) == "" && !isLeaf(p.own()) {
			t.Errorf("%s is in no row of the table: give it one", p.own())
		}
		for _, imported := range p.Imports {
			to := ownPath(imported)
			if to == "" {
				continue
			}
			if !allowed(p.own(), to) {
				t.Errorf("%s imports %s, against the arrows", p.own(), to)
			}
			if reason := forbidden[[2]string{p.own(), to}]; reason != "" {
				t.Errorf("%s imports %s: %s", p.own(), to, reason)
			}
		}
	}
}

// TestArrowsAreJudgedRight keeps the judge itself honest.
func TestArrowsAreJudgedRight(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"znode", "session", true},
		{"session", "znode", false},
		{"fsm", "cluster", false},
		{"fsm", "internal/buildinfo", false},
		{"cluster", "cluster/peerpb", true},
		{"server", "cluster/peerpb", true},
		{"client", "server", false},
		{"client", "api/coordpb", true},
		{"recipes/lock", "client", true},
		{"recipes/lock", "server", false},
		{"fence/sqlfence", "fence", true},
		{"fence/sqlfence", "client", false},
		{"server", "internal/tlsfiles", true},
		{"server", "internal/localcluster", false},
		{"internal/buildinfo", "zxid", false},
		{"internal/memnet", "zxid", false},
		{"internal/recipetest", "coordtest", true},
		{"internal/recipetest", "server", false},
		{"coordtest", "internal/localcluster", true},
		{"cmd/coordd", "server", true},
		{"surprise", "zxid", false},
	} {
		if got := allowed(c.from, c.to); got != c.want {
			t.Errorf("allowed(%s, %s) = %v, want %v", c.from, c.to, got, c.want)
		}
	}
}

// Raft's own types stay where they are understood.
func TestRaftStaysInsideTheCluster(t *testing.T) {
	for _, p := range listPackages(t) {
		for _, imported := range p.Imports {
			raft := strings.HasPrefix(imported, "github.com/hashicorp/raft")
			if raft && !within(p.own(), "cluster") && p.own() != "fsm" && !within(p.own(), "test") {
				t.Errorf("%s imports %s", p.own(), imported)
			}
		}
	}
}

// Users of the client and of the recipes must not get the server with it. A check
// of tokens that keeps its marks in a file is for servers, and needs a store.
func TestClientIsLight(t *testing.T) {
	for _, p := range listPackages(t) {
		if !within(p.own(), "client") && !within(p.own(), "recipes") && !within(p.own(), "fence") {
			continue
		}
		if p.own() == "fence/boltfence" {
			continue
		}
		for _, heavy := range []string{
			"github.com/hashicorp/raft", "go.etcd.io/bbolt", "github.com/prometheus/client_golang/prometheus",
			"github.com/spf13/cobra", "github.com/jackc/pgx/v5", "github.com/go-sql-driver/mysql", "modernc.org/sqlite",
		} {
			if slices.Contains(p.Deps, heavy) {
				t.Errorf("%s depends on %s", p.own(), heavy)
			}
		}
	}
}
