//go:build planted

package sim

import (
	"slices"
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
			return
		}
	}
	t.Error("it was not found in 10 runs")
}
