//go:build planted

package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/internal/check"
	"github.com/coordd/coord/internal/planted"
)

// TestWatchThatFallsSilentIsFound: it tells nothing wrong, and nothing any more. Only
// who waits for what it must tell notices that.
func TestWatchThatFallsSilentIsFound(t *testing.T) {
	defer planted.Plant(planted.SkipWatch)()
	for seed := range uint64(10) {
		c := Config{Seed: seed, Kinds: []Kind{Reset}, Keep: t.TempDir()}
		c.Length = c.withDefaults().paces(60)
		out := Run(t, c)
		if slices.ContainsFunc(out.Violations, func(v check.Violation) bool { return v.Rule == check.RuleWatch }) {
			wantKept(t, out)
			return
		}
	}
	t.Error("it was not found in 10 runs")
}

// wantKept checks that all is there that is needed to look into a failure: the command
// that repeats it, the schedule, the history, a drawing, and what the servers have said.
func wantKept(t *testing.T, out Outcome) {
	t.Helper()
	for name, want := range map[string]string{
		"plan.txt": string(Reset), "history.jsonl": `"kind":"opened"`, "log.txt": "node=n2", "timeline*.txt": "/",
		"violations.txt": fmt.Sprintf("go test ./test/sim -count=1 -timeout 0 -v -run '^%s$'", t.Name()),
	} {
		found, err := filepath.Glob(filepath.Join(out.Kept, name))
		if err != nil || len(found) == 0 {
			t.Errorf("no %s in %s: %v", name, out.Kept, err)
			continue
		}
		if got, err := os.ReadFile(found[0]); err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %v; it does not have %q", found[0], err, want)
		}
	}
}
