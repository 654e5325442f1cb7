package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Options say what a history is held to.
type Options struct {
	// Bound is how much later than at its deadline, and one percent of its
	// timeout, the end of a session may take effect: report, round, commit, and
	// the time without a leader. 0 stands for 10 s.
	Bound time.Duration
	// Tolerance is by how much two clocks that are read one after the other may
	// differ; 0 stands for 20 ms. In fake time it is not used up.
	Tolerance time.Duration
	// Decide bounds the search for a linearization of one path; 0 stands for 20 s.
	Decide time.Duration
	// AllowUndecided makes a path that was not decided in that time no violation.
	AllowUndecided bool
}

func (o Options) withDefaults() Options {
	o.Bound = cmp.Or(o.Bound, 10*time.Second)
	o.Tolerance = cmp.Or(o.Tolerance, 20*time.Millisecond)
	o.Decide = cmp.Or(o.Decide, 20*time.Second)
	return o
}

// Rule names a promise.
type Rule string

// The rules, in the order in which they are checked.
const (
	RuleOrder        Rule = "order"        // later writes have larger zxids; a session's in order of submission
	RuleFresh        Rule = "fresh"        // a linearizable read is not older than anything seen before it
	RuleSession      Rule = "session"      // no read of a session is older than what it has seen
	RuleSnapshot     Rule = "snapshot"     // a read shows its path as it was at the zxid it says
	RuleLost         Rule = "lost"         // an acknowledged write is there
	RuleOnce         Rule = "once"         // each write is one change, or none
	RuleLinearizable Rule = "linearizable" // the operations of a path could have happened one by one
	RuleEphemeral    Rule = "ephemeral"    // ephemerals are there as long as their sessions, no longer
	RuleSequence     Rule = "sequence"     // sequence numbers rise
	RuleWatch        Rule = "watch"        // a watch tells every change once, in order
	RuleStream       Rule = "stream"       // a stream tells a watch's reply, its events, and what shows them in this order
	RuleToken        Rule = "token"        // tokens of a lock rise
	RuleHolder       Rule = "holder"       // no grant before the earlier holder had released, or was told
	RuleElection     Rule = "election"     // observers see leaders in the order of their tokens, and what they say in its order
	RuleExpiry       Rule = "expiry"       // sessions end in time, and not before
	RuleRestore      Rule = "restore"      // a restore ends all sessions, each hears why, and no token is given twice
	RuleDigest       Rule = "digest"       // all servers have the same state
)

// Violation is a promise that was not kept.
type Violation struct {
	Rule    Rule
	Text    string
	Path    string // "" if it is not about one
	Records []Record

	drawing *drawing // of the search for a linearization; nil if it is about something else
}

// String says it in one line, and one for each record.
func (v Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", v.Rule, v.Text)
	for i := range v.Records {
		fmt.Fprintf(&b, "\n    %s  %s", span(&v.Records[i]), v.Records[i].String())
	}
	return b.String()
}

// span is when a record was.
func span(r *Record) string {
	if r.Outcome == Unknown && r.Kind != Ended {
		return fmt.Sprintf("%v..?", r.Begin)
	}
	if r.Begin == r.End {
		return r.Begin.String()
	}
	return fmt.Sprintf("%v..%v", r.Begin, r.End)
}

// maxOfRule bounds how many violations of one rule are told.
const maxOfRule = 20

// Check returns the promises that the history shows broken, at most 20 for each
// rule, in the order of the rules. The search for linearizations is bounded by
// package time: in a bubble of testing/synctest it would not be, so call Check
// outside of it.
func Check(h *History, o Options) []Violation {
	v := newView(h.Records(), o.withDefaults())
	whole := []*view{v}
	parts, fresh := v.parts()
	for _, c := range []struct {
		check func(*view)
		of    []*view
	}{
		{checkOrder, whole},
		{checkFresh, whole},
		{checkSnapshots, parts},
		{checkLost, parts},
		{checkOnce, fresh},
		{checkLinearizable, fresh},
		{checkEphemerals, whole},
		{checkSequences, parts},
		{checkWatches, parts},
		{checkOneShots, parts},
		{checkStreams, whole},
		{checkLocks, whole},
		{checkElections, whole},
		{checkSessions, whole},
		{checkRestores, whole},
		{checkDigests, whole},
	} {
		for _, part := range c.of {
			c.check(part)
		}
	}
	return v.found.list
}

// view is a history as the checks read it.
type view struct {
	o        Options
	all      []Record
	writes   []Record // those of transactions too, each for itself
	sessions map[sessionKey]*life
	known    []change  // every change that is known with its zxid, sorted
	found    *findings // shared by the parts of one history
}

// findings are what all checks together have found.
type findings struct {
	list  []Violation
	count map[Rule]int
}

func newView(all []Record, o Options) *view {
	return viewOf(all, o, lives(all, o), &findings{count: map[Rule]int{}})
}

func viewOf(all []Record, o Options, sessions map[sessionKey]*life, found *findings) *view {
	v := &view{o: o, all: all, sessions: sessions, found: found}
	for i := range all {
		v.writes = append(v.writes, writesOf(&all[i])...)
	}
	v.known = changes(v.writes, all)
	return v
}

// report adds a violation, with the records in the order of the history.
func (v *view) report(rule Rule, path string, records []Record, format string, args ...any) {
	v.found.count[rule]++
	if v.found.count[rule] > maxOfRule {
		return
	}
	slices.SortStableFunc(records, func(a, b Record) int { return cmp.Compare(a.N, b.N) })
	v.found.list = append(v.found.list, Violation{Rule: rule, Text: fmt.Sprintf(format, args...), Path: path, Records: records})
}

// writesOf are the changes of znodes that a record asks for, with what is known of
// each; none for other records.
func writesOf(r *Record) []Record {
	if r.isWrite() {
		return []Record{*r}
	}
	if r.Kind != Txn {
		return nil
	}
	var out []Record
	for _, op := range r.Ops {
		op.N, op.Client, op.Session, op.Begin, op.End = r.N, r.Client, r.Session, r.Begin, r.End
		op.Outcome = cmp.Or(op.Outcome, r.Outcome)
		if op.isWrite() || op.Kind == CheckAt {
			out = append(out, op)
		}
	}
	return out
}

// within is whether path is root or below it.
func within(path, root string) bool {
	return root == "/" || path == root || strings.HasPrefix(path, root+"/")
}

func checkDigests(v *view) {
	last := map[string]Record{}
	var names []string
	for _, r := range v.all {
		if r.Kind == Digest {
			if _, ok := last[r.Client]; !ok {
				names = append(names, r.Client)
			}
			last[r.Client] = r
		}
	}
	slices.Sort(names)
	for _, name := range names[min(1, len(names)):] {
		if a, b := last[names[0]], last[name]; a.Data != b.Data {
			v.report(RuleDigest, "", []Record{a, b}, "%s has the digest %s, %s has %s", names[0], a.Data, name, b.Data)
		}
	}
}
