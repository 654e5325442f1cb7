package test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxLines is where a hand-written file ends.
const maxLines = 600

// generated is the mark by which tools know generated code.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// moduleRoot is the directory of go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(string(goCommand(t, "list", "-m", "-f", "{{.Dir}}")))
}

// treeFiles calls visit for each file that belongs to the tree.
func treeFiles(t *testing.T, visit func(name string, content []byte)) {
	t.Helper()
	root := moduleRoot(t)
	for _, name := range treeNames(t, root) {
		path := filepath.Join(root, name)
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue // deleted in the work tree, or a link
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		visit(name, content)
	}
}

// treeNames asks git, which knows what belongs to the tree; a tree that came
// without its repository is walked.
func treeNames(t *testing.T, root string) []string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	if out, err := list.Output(); err == nil {
		return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	}
	var names []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "bin" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		name, err := filepath.Rel(root, path)
		if err == nil && !entry.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestHandWrittenFilesEndInTime(t *testing.T) {
	seen := 0
	treeFiles(t, func(name string, content []byte) {
		if filepath.Ext(name) != ".go" || generated.Match(content) {
			return
		}
		seen++
		if lines := bytes.Count(content, []byte("\n")); lines > maxLines {
			t.Errorf("%s has %d lines, %d is the end: look for the second subject", name, lines, maxLines)
		}
	})
	if seen < 10 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// TestTreeNamesNoMachine keeps the tree free of what is true on one machine only:
// the place of the checkout, and the module servers that the go command is set
// to use there.
func TestTreeNamesNoMachine(t *testing.T) {
	words := moduleServers(t)
	if root := moduleRoot(t); strings.Count(root, string(filepath.Separator)) >= 2 {
		words = append(words, root)
	}
	treeFiles(t, func(name string, content []byte) {
		for _, word := range words {
			if at := indexOfWord(content, word); at >= 0 {
				t.Errorf("%s:%d names %s", name, bytes.Count(content[:at], []byte("\n"))+1, word)
			}
		}
	})
}

// moduleServers returns the hosts in the go command's settings.
func moduleServers(t *testing.T) []string {
	t.Helper()
	var settings map[string]string
	if err := json.Unmarshal(goCommand(t, "env", "-json", "GOPROXY", "GOSUMDB"), &settings); err != nil {
		t.Fatal(err)
	}
	var hosts []string
	for _, setting := range settings {
		for _, item := range strings.FieldsFunc(setting, func(r rune) bool { return strings.ContainsRune(", |", r) }) {
			if u, err := url.Parse(item); err == nil && u.Host != "" {
				hosts = append(hosts, u.Host)
			} else if strings.Contains(item, ".") && !strings.Contains(item, "+") {
				hosts = append(hosts, item)
			}
		}
	}
	return hosts
}

// indexOfWord finds word where it is no part of a longer path or name.
func indexOfWord(content []byte, word string) int {
	pattern := regexp.MustCompile(`(?:^|[^A-Za-z0-9./_-])(` + regexp.QuoteMeta(word) + `)(?:$|[^A-Za-z0-9._-])`)
	if at := pattern.FindSubmatchIndex(content); at != nil {
		return at[2]
	}
	return -1
}

func TestWordsAreFoundWhole(t *testing.T) {
	for text, want := range map[string]int{
		"see /src/tree/go.mod": 4, "(/src/tree)": 1, "/src/tree": 0, "example/src/tree": -1, "/src/tree2": -1, "": -1,
	} {
		if got := indexOfWord([]byte(text), "/src/tree"); got != want {
			t.Errorf("in %q: %d, want %d", text, got, want)
		}
	}
}

// pins are versions that something depends on beyond what a compiler sees.
var pins = map[string]string{
	// raft v1.8.0 does not build with the newest raft-boltdb.
	"github.com/hashicorp/raft":           "v1.7.3",
	"github.com/hashicorp/raft-boltdb/v2": "v2.3.1",
	// Asking for the latest gives v0.4.0, which can lose a node.
	"github.com/hashicorp/raft-wal": "v0.4.2",
	// Later ones dropped the package that raft-boltdb imports.
	"github.com/hashicorp/go-metrics": "v0.5.4",
}

func TestModulePins(t *testing.T) {
	var mod struct {
		Go      string
		Require []struct{ Path, Version string }
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(goCommand(t, "mod", "edit", "-json", filepath.Join(moduleRoot(t), "go.mod")), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s: then `go install` of our programs fails", r.Old.Path)
	}
	required := make(map[string]string)
	for _, r := range mod.Require {
		required[r.Path] = r.Version
	}
	for path, version := range pins {
		if required[path] != version {
			t.Errorf("go.mod requires %s %q, want %s", path, required[path], version)
		}
	}
}
