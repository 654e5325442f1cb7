package test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// opsPage is docs/ops.md, for tests that do what stands in it.
type opsPage struct{ sections map[string][]string }

func readOps(t testing.TB) *opsPage {
	t.Helper()
	text, err := os.ReadFile("../docs/ops.md")
	if err != nil {
		t.Fatal(err)
	}
	p := &opsPage{map[string][]string{}}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		p.sections[section] = append(p.sections[section], strings.TrimPrefix(line, "$ "))
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
