package check

import (
	"cmp"
	"slices"
	"time"
)

// hold is one holding of a lock.
type hold struct {
	grant *Record
	end   *Record       // Release or Lost; nil: it holds to the end of the history
	until time.Duration // when the holder had stopped, or had been told to
	// removed says that the holder was not told before others, and was not promised
	// to be: an operator has taken the lock away.
	removed bool
}

// checkLocks looks at each lock: tokens rise, and who holds it does so alone, or
// with those that may hold it with him.
func checkLocks(v *view) {
	byPath := map[string][]*hold{}
	byNumber := map[int]*hold{}
	for i := range v.all {
		r := &v.all[i]
		switch {
		case r.Kind == Acquire && r.Outcome == Done:
			h := &hold{grant: r, until: forever}
			byNumber[r.N] = h
			byPath[r.Path] = append(byPath[r.Path], h)
		case r.Kind == Release || r.Kind == Lost:
			if h := byNumber[r.Hold]; h != nil {
				h.end, h.until = r, r.Begin
				h.removed = r.Kind == Lost && (r.Reason == ByOther || r.Reason == ByRestore)
			}
		}
	}
	var paths []string
	for path := range byPath {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		checkTokens(v, path, byPath[path])
		checkHolders(v, path, byPath[path])
	}
}

// checkTokens holds grants that came one after the other to the order of their
// tokens.
func checkTokens(v *view, path string, holds []*hold) {
	byTime := slices.Clone(holds)
	slices.SortStableFunc(byTime, func(a, b *hold) int { return cmp.Compare(a.grant.End, b.grant.End) })
	owners := map[uint64]*Record{}
	for _, h := range byTime {
		g := h.grant
		if g.Session != 0 && g.Token <= uint64(g.Session) {
			v.report(RuleToken, path, []Record{*g}, "the token %d is not above the session %d that it was granted to", g.Token, uint64(g.Session))
		}
		if o := owners[g.Token]; o != nil {
			v.report(RuleToken, path, []Record{*o, *g}, "the token %d was given twice", g.Token)
		}
		owners[g.Token] = g
	}
	largest := -1 // of those whose grants had ended when the next began
	done := 0
	byBegin := slices.Clone(holds)
	slices.SortStableFunc(byBegin, func(a, b *hold) int { return cmp.Compare(a.grant.Begin, b.grant.Begin) })
	for _, h := range byBegin {
		for ; done < len(byTime) && byTime[done].grant.End < h.grant.Begin; done++ {
			if largest < 0 || byTime[done].grant.Token > byTime[largest].grant.Token {
				largest = done
			}
		}
		if largest >= 0 && byTime[largest].grant.Token >= h.grant.Token {
			v.report(RuleToken, path, []Record{*byTime[largest].grant, *h.grant}, "a later grant has the token %d, not above %d", h.grant.Token, byTime[largest].grant.Token)
		}
	}
}

// checkHolders looks for a grant that came before an earlier holder had released,
// or had been told, each by its own clock.
func checkHolders(v *view, path string, holds []*hold) {
	byToken := slices.Clone(holds)
	slices.SortStableFunc(byToken, func(a, b *hold) int { return cmp.Compare(a.grant.Token, b.grant.Token) })
	for i, later := range byToken {
		var beside []*hold
		for _, earlier := range byToken[:i] {
			if !earlier.removed && earlier.until > later.grant.End+v.o.Tolerance && !together(earlier, later) {
				beside = append(beside, earlier)
			}
		}
		if len(beside) == 0 || later.grant.As == Slot && len(beside) < later.grant.Limit {
			continue
		}
		records := []Record{*later.grant}
		for _, e := range beside {
			records = append(records, *e.grant)
			if e.end != nil {
				records = append(records, *e.end)
			}
		}
		v.report(RuleHolder, path, records, "token %d was granted while %d earlier holders had not released it and were not told of a loss", later.grant.Token, len(beside))
	}
}

// together is whether two may hold the lock at the same time.
func together(a, b *hold) bool { return a.grant.As == Shared && b.grant.As == Shared }
