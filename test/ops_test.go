package test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// opsPage is docs/ops.md, for tests that do what stands in it.
type opsPage struct {
	titles   []string
	sections map[string][]string // the lines of each, commands without prompt and comment
	commands map[string][]string // those of each that stand in blocks
}

func readOps(t testing.TB) *opsPage {
	t.Helper()
	text, err := os.ReadFile("../docs/ops.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &opsPage{sections: map[string][]string{}, commands: map[string][]string{}}
	section, block := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
			p.titles = append(p.titles, title)
		}
		if kind, ok := strings.CutPrefix(line, "```"); ok {
			block = kind
			continue
		}
		command, prompt := strings.CutPrefix(line, "$ ")
		command, _, _ = strings.Cut(command, "#")
		if command = strings.TrimSpace(command); command != "" && (block == "sh" || block == "console" && prompt) {
			p.commands[section] = append(p.commands[section], command)
			line = command
		}
		p.sections[section] = append(p.sections[section], line)
	}
	return p
}

// has fails unless the command line stands in the section.
func (p *opsPage) has(t testing.TB, section, line string) {
	t.Helper()
	if !slices.Contains(p.sections[section], line) {
		t.Errorf("docs/ops.md, %q, does not say %q, which this test is about to do", section, line)
	}
}

// opsLine is a command line that stands in a section of docs/ops.md, in words and
// without the name of the program. What differs here is given in pairs: a word, and
// what is in its place.
func opsLine(t testing.TB, section, line string, differs ...string) []string {
	t.Helper()
	readOps(t).has(t, section, line)
	words := strings.Fields(line)[1:]
	for i := 0; i+1 < len(differs); i += 2 {
		at := slices.Index(words, differs[i])
		if at < 0 {
			t.Fatalf("%q has no word %q", line, differs[i])
		}
		words[at] = differs[i+1]
	}
	return words
}

// TestEveryCommandOfTheOpsPageIsRun: each command in a block of docs/ops.md is given
// to opsLine by a test, or to something that calls it. There the words of the page
// are what is run.
func TestEveryCommandOfTheOpsPageIsRun(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var sources strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(text)
	}
	ops := readOps(t)
	found := 0
	for _, section := range ops.titles {
		for _, command := range ops.commands[section] {
			found++
			if !strings.Contains(sources.String(), `"`+section+`", "`+command+`"`) {
				t.Errorf("docs/ops.md, %q: no test runs %q", section, command)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d commands were found in docs/ops.md", found)
	}
	for _, want := range []string{"Grow", "Shrink", "Replace a server", "Back up", "Restore", "Recover a lost quorum", "Upgrade"} {
		if len(ops.commands[want]) == 0 {
			t.Errorf("docs/ops.md has no commands for %q", want)
		}
	}
}
