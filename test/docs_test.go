package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`([a-z]+)\\.(Test[A-Za-z0-9_]+)`")

// TestDocumentsNameTestsThatExist keeps the proofs of docs/ from going stale.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	out, err := exec.Command("git", "-C", "..", "grep", "-h", "--untracked", "-E", "^(package|func Test)", "--", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	known, pkg := map[string]bool{}, ""
	for line := range bytes.Lines(out) {
		words := strings.FieldsFunc(string(line), func(r rune) bool { return r == ' ' || r == '(' || r == '\n' })
		if words[0] == "package" {
			pkg = strings.TrimSuffix(words[1], "_test")
		} else {
			known[pkg+"."+words[1]] = true
		}
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
			if name := m[1] + "." + m[2]; !known[name] {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), name)
			}
		}
	}
}
