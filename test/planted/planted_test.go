//go:build planted

package planted

import (
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/internal/check"
	bugs "github.com/coordd/coord/internal/planted"
)

// schedule is a run that shows a bug, if it is there.
type schedule struct {
	bug  bugs.Bug
	play func(w *world)
	// rules are those of which at least one must be found broken.
	rules []check.Rule
}

var schedules = []schedule{
	{bugs.AckBeforeQuorum, ackBeforeQuorum, []check.Rule{check.RuleLost, check.RuleFresh}},
	{bugs.ForgetResults, forgetResults, []check.Rule{check.RuleOnce}},
	{bugs.LoseGeneration, loseGeneration, []check.Rule{check.RuleOrder}},
	{bugs.FireBeforeReply, resumeWatches, []check.Rule{check.RuleStream}},
	{bugs.StaleAfterElection, staleAfterElection, []check.Rule{check.RuleFresh, check.RuleLost, check.RuleLinearizable}},
	{bugs.TokenFromSequence, takeLocks, []check.Rule{check.RuleToken}},
	{bugs.SkipWatch, resumeWatches, []check.Rule{check.RuleWatch}},
	{bugs.OldLeadersClock, leadAgain, []check.Rule{check.RuleExpiry, check.RuleEphemeral}},
	{bugs.DropSession, restoreSnapshot, []check.Rule{check.RuleExpiry, check.RuleDigest, check.RuleEphemeral}},
	{bugs.MapOrder, transactions, []check.Rule{check.RuleDigest, check.RuleSnapshot, check.RuleWatch}},
	{bugs.NoClamp, returningLeader, []check.Rule{check.RuleDigest, check.RuleLost, check.RuleOnce}},
}

// maxRuns is how often a schedule is played to find a bug that does not show every
// time.
const maxRuns = 20

// TestCheckersFindEachPlantedBug plays a schedule for each bug without it, which
// must be clean, and with it, which must not.
func TestCheckersFindEachPlantedBug(t *testing.T) {
	var planned []bugs.Bug
	for _, s := range schedules {
		planned = append(planned, s.bug)
		t.Run(string(s.bug), func(t *testing.T) {
			for range 3 {
				if h, found, stuck := s.run(t); len(found) > 0 || stuck != "" {
					t.Fatalf("without the bug (stuck: %q; kept in %s):\n%v", stuck, keep(t, h, found), found)
				}
			}
			defer bugs.Plant(s.bug)()
			var h *check.History
			for n := range maxRuns {
				var found []check.Violation
				if h, found, _ = s.run(t); s.isFoundBy(found) {
					t.Logf("found in run %d, the first of %d: %v", n+1, len(found), found[0])
					return
				}
			}
			t.Errorf("nothing was found in %d runs; the last is kept in %s", maxRuns, keep(t, h, nil))
		})
	}
	if !slices.Equal(planned, bugs.All) {
		t.Errorf("there are schedules for %q, and bugs %q", planned, bugs.All)
	}
}

// run plays the schedule in fake time and judges what its clients saw.
func (s *schedule) run(t *testing.T) (h *check.History, found []check.Violation, stuck string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h = check.New(nil)
		w := newWorld(t, h)
		s.play(w)
		w.end()
		stuck = w.stuck
	})
	return h, check.Check(h, check.Options{Bound: 2 * time.Second, Tolerance: time.Millisecond}), stuck
}

func (s *schedule) isFoundBy(found []check.Violation) bool {
	return slices.ContainsFunc(found, func(v check.Violation) bool { return slices.Contains(s.rules, v.Rule) })
}

// keep leaves a history where it can be looked at.
func keep(t *testing.T, h *check.History, found []check.Violation) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "coord-planted-")
	if err == nil {
		err = check.Save(dir, h, found, t.Name())
	}
	if err != nil {
		t.Error(err)
	}
	return dir
}
