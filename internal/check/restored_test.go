package check

import (
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// carol's session was opened behind the restore of the made-up histories.
const carol session.ID = 101

func restored(begin, end int) Record {
	return Record{Kind: Restored, Client: "operator", Begin: at(begin), End: at(end), Outcome: Done, Zxid: 100}
}

func toldRestored(s session.ID, begin int) Record { return ended(s, begin, begin, ByRestore, 1000) }

// Of the election at "/e".

func elected(s session.ID, begin, end int, value string, token uint64) Record {
	r := acquired(s, begin, end, Alone, token)
	r.Path, r.Data = "/e", value
	return r
}

func proclaimed(s session.ID, begin, end int, value string, token uint64, hold int) Record {
	r := done(Proclaim, s, begin, end, "/e")
	r.Data, r.Token, r.Hold, r.As = value, token, hold, Alone
	return r
}

// resigned is the end of the leadership that record hold has begun.
func resigned(hold, begin int) Record {
	r := over(Release, hold, begin, "")
	r.Path = "/e"
	return r
}

func observing() Record {
	return Record{Kind: Observing, Client: "observer", Session: bob, Path: "/e"}
}

// observed is what the observer of the first record was told.
func observed(begin int, value string, token uint64, z zxid.ID) Record {
	return Record{
		Kind: Observed, Client: "observer", Session: bob, Begin: at(begin), End: at(begin), Outcome: Done, Path: "/e",
		Watch: 1, Data: value, Token: token, Found: token != 0, Zxid: z,
	}
}

func missing(r Record) Record { r.Missed = true; return r }

func leader(s session.ID, begin, end int, value string, token uint64) Record {
	r := done(LeaderRead, s, begin, end, "/e")
	r.Data, r.Token, r.Found = value, token, token != 0
	return r
}

// Of watches that fire once, whose Armed record is the first.

func armed(path, what string, z zxid.ID) Record {
	return Record{Kind: Armed, Client: "watcher", Session: bob, Path: path, Type: what, Zxid: z}
}

func endOf(kind Kind, begin int, z zxid.ID) Record {
	return Record{Kind: kind, Client: "watcher", Session: bob, Begin: at(begin), End: at(begin), Watch: 1, Zxid: z}
}

func settledAt(begin int, z zxid.ID) Record { return Record{Kind: Settled, Begin: at(begin), Zxid: z} }

// TestGoodElectionsWatchesAndRestoresAreClean has what the checks of them must not
// mistake.
func TestGoodElectionsWatchesAndRestoresAreClean(t *testing.T) {
	e := ephemeral(alice, 0, 5, "/eph", 10)
	for name, records := range map[string][]Record{
		"two leaders one after the other": {
			observing(), elected(alice, 1, 5, "a", 20), observed(6, "a", 20, 21), proclaimed(alice, 7, 8, "b", 20, 2), observed(9, "b", 20, 22),
			resigned(2, 10), observed(11, "", 0, 23), elected(bob, 9, 12, "c", 30), observed(13, "c", 30, 31), leader(alice, 14, 15, "c", 30), settledAt(60, 40),
		},
		"a proclamation that nobody knows of, and one of a candidate that gave up": {
			observing(), elected(alice, 1, 5, "a", 20), with(Unknown, "", proclaimed(alice, 7, 8, "b", 20, 2)), observed(9, "b", 20, 22), resigned(2, 10),
			with(Failed, "", elected(bob, 9, 12, "c", 0)), observed(13, "c", 30, 31),
		},
		"an observer that says that it has missed some": {
			observing(), elected(alice, 1, 5, "a", 20), observed(6, "a", 20, 21), proclaimed(alice, 7, 8, "b", 20, 2), proclaimed(alice, 9, 10, "c", 20, 2),
			missing(observed(11, "c", 20, 24)),
		},
		"an observer that says that it has missed the last words of a leader": {
			observing(), elected(alice, 1, 5, "a", 20), observed(6, "a", 20, 21), proclaimed(alice, 7, 8, "b", 20, 2), resigned(2, 10),
			missing(observed(11, "", 0, 24)), elected(bob, 9, 12, "c", 30), observed(13, "c", 30, 31), settledAt(60, 40),
		},
		"the same, and nobody leads afterwards": {
			observing(), elected(alice, 1, 5, "a", 20), observed(6, "a", 20, 21), proclaimed(alice, 7, 8, "b", 20, 2), resigned(2, 10),
			missing(observed(11, "", 0, 24)), settledAt(60, 40),
		},
		"an observer that has left": {
			observing(), observed(2, "", 0, 3), {Kind: Unwatch, Watch: 1}, elected(alice, 4, 5, "a", 20), settledAt(60, 40),
		},
		"a watch that fires before its change is shown": {
			armed("/a", ForData, 10), create(alice, 0, 5, "/a", "one", 10), set(alice, 6, 9, "/a", "two", 1, 11), endOf(Fired, 20, 10), settledAt(60, 40),
		},
		"a watch whose session has ended": {
			armed("/a", ForCreation, 5), endOf(Unwatch, 3, 5), create(alice, 4, 5, "/a", "one", 10), settledAt(60, 40),
		},
		"a watch for children, and changes that are none": {
			armed("/a", ForChildren, 10), create(alice, 0, 5, "/a", "one", 10), set(alice, 6, 9, "/a", "two", 1, 11), create(alice, 10, 11, "/a/b/c", "x", 12),
			create(alice, 12, 13, "/ab", "y", 13), settledAt(60, 40),
		},
		"a restore": {
			opened(alice), create(alice, 0, 5, "/a", "one", 10), create(alice, 6, 8, "/b", "other", 11), e, acquired(alice, 0, 5, Alone, 20),
			restored(50, 60), toldRestored(alice, 61), opened(carol), absent(carol, 62, 63, "/a"), read(carol, 62, 63, "/b", "of a year ago", 3, 10, 102),
			acquired(carol, 61, 62, Alone, 110), over(Lost, 5, 64, ByRestore), absent(carol, 70, 71, "/eph"),
			create(carol, 72, 73, "/a", "anew", 120), read(carol, 74, 75, "/a", "anew", 0, 120, 120),
			numberedAs(alice, 10, 11, "/n-", "0000000007", 30), numberedAs(carol, 90, 91, "/n-", "0000000003", 130),
		},
		"a session that was over before the restore": {
			opened(alice), ended(alice, 10, 15, ByClient, 900), restored(50, 60),
		},
		"a client that was cut off during the restore": {
			opened(alice), restored(50, 60), ended(alice, 1000, 1000, BySilent, 1000),
		},
		"a write and a read on their way during a restore": {
			opened(alice), with(Unknown, "", set(alice, 40, 70, "/a", "lost", 1, 0)), create(alice, 0, 5, "/a", "one", 10), absent(alice, 55, 58, "/a"),
			restored(50, 60), toldRestored(alice, 61),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if broken, text := rules(history(records...)); broken != nil {
				t.Errorf("a good history breaks %v:\n%s", broken, text)
			}
		})
	}
}

// TestEachViolationOfElectionsWatchesAndRestoresIsFound has a history for each thing
// that their checks can say.
func TestEachViolationOfElectionsWatchesAndRestoresIsFound(t *testing.T) {
	first := []Record{observing(), elected(alice, 1, 5, "a", 20), proclaimed(alice, 7, 8, "b", 20, 2), resigned(2, 10), elected(bob, 9, 12, "c", 30)}
	told := func(more ...Record) []Record { return append(slices.Clone(first), more...) }
	watched := func(end Record) []Record {
		return []Record{armed("/a", ForData, 10), create(alice, 0, 5, "/a", "one", 10), set(alice, 6, 9, "/a", "two", 1, 11), end}
	}
	for _, c := range []struct {
		name    string
		want    Rule
		say     string
		records []Record
	}{
		{"two leaders", RuleHolder, "had not released", []Record{elected(alice, 1, 5, "a", 20), elected(bob, 9, 12, "c", 30)}},
		{"a leader's token is not above the last one's", RuleToken, "not above", []Record{elected(alice, 1, 5, "a", 30), resigned(1, 6), elected(bob, 9, 12, "c", 20)}},
		{"an older leader's proclamation behind a newer one", RuleElection, "behind what token", told(observed(13, "c", 30, 31), observed(14, "b", 20, 32))},
		{"an older proclamation of the same leader", RuleElection, "behind what token", told(observed(13, "b", 20, 31), observed(14, "a", 20, 32))},
		{"the observer goes back", RuleElection, "is told of", told(observed(13, "a", 20, 31), observed(14, "b", 20, 31))},
		{"nobody has said it", RuleElection, "no leader has said", told(observed(13, "d", 30, 31))},
		{"another token", RuleElection, "said with token 20", told(observed(13, "b", 30, 31))},
		{"a proclamation is missing", RuleElection, "is not told", told(observed(6, "a", 20, 21), observed(13, "c", 30, 31))},
		{"the last leader is missing", RuleElection, "is not told", told(observed(6, "a", 20, 21), observed(8, "b", 20, 22), observed(11, "", 0, 23), settledAt(60, 40))},
		{"a leader behind what the observer has missed", RuleElection, "is not told", []Record{
			observing(), elected(alice, 1, 5, "a", 20), observed(6, "a", 20, 21), resigned(2, 10), missing(observed(11, "", 0, 24)), elected(bob, 12, 15, "c", 30),
			settledAt(60, 40),
		}},
		{"the observer is told nothing", RuleElection, "told nothing", told(settledAt(60, 40))},
		{"a former leader is said to lead", RuleElection, "is said to lead", told(leader(alice, 14, 15, "b", 20))},
		{"a former leader is said to lead where another was seen", RuleElection, "is said to lead", []Record{leader(bob, 1, 2, "c", 30), leader(alice, 14, 15, "b", 20)}},

		{"a change is shown before its watch has fired", RuleWatch, "before", watched(endOf(Fired, 20, 11))},
		{"a watch is forgotten", RuleWatch, "does not tell", watched(settledAt(60, 40))},
		{"a watch is forgotten when its session moves", RuleWatch, "does not tell", watched(endOf(Unwatch, 20, 12))},
		{"a watch for a znode to come", RuleWatch, "does not tell", []Record{armed("/a", ForCreation, 5), create(alice, 0, 5, "/a", "one", 10), settledAt(60, 40)}},
		{"a watch for children", RuleWatch, "does not tell", []Record{armed("/a", ForChildren, 5), create(alice, 0, 5, "/a/b", "one", 10), settledAt(60, 40)}},
		{"a watch for children whose parent goes", RuleWatch, "does not tell", []Record{
			armed("/a", ForChildren, 10), watching("/", 9), create(alice, 0, 5, "/a", "one", 10), func() Record {
				r := event(13, "deleted", "/a", "", 12, 0, true)
				r.Watch = 2
				return r
			}(), settledAt(60, 40),
		}},

		{"a session that nobody has told", RuleRestore, "never heard", []Record{opened(alice), restored(50, 60)}},
		{"a session that was told something else", RuleRestore, "something else", []Record{opened(alice), restored(50, 60), ended(alice, 61, 61, ByOther, 1000)}},
		{"a session that is said to have expired", RuleRestore, "something else", []Record{opened(alice), restored(50, 60), ended(alice, 61, 61, BySilent, 1000)}},
		{"a token of before", RuleRestore, "was given the token", []Record{restored(50, 60), acquired(carol, 61, 62, Alone, 99)}},
		{"a token of afterwards", RuleRestore, "was given the token", []Record{acquired(alice, 0, 5, Alone, 101), restored(50, 60)}},
		{"a restore that nobody has done", RuleExpiry, "nobody has done that", []Record{opened(alice), toldRestored(alice, 61)}},
		{"an ephemeral outlives the restore", RuleEphemeral, "must have been over", func() []Record {
			e := ephemeral(alice, 0, 5, "/eph", 10)
			late := readEphemeral(70, e)
			late.Session, late.Zxid = carol, 120
			return []Record{opened(alice), e, restored(50, 60), toldRestored(alice, 61), late}
		}()},
		{"a read of before the restore, behind it", RuleFresh, "older than", []Record{
			restored(50, 60), create(carol, 61, 62, "/a", "anew", 120), read(carol, 70, 71, "/b", "of before", 0, 10, 99),
		}},
		{"a write of behind the restore is lost", RuleLost, "was acknowledged", []Record{
			restored(50, 60), create(carol, 61, 62, "/a", "anew", 120), absent(carol, 70, 71, "/a"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken, text := rules(history(c.records...))
			if !slices.Contains(broken, c.want) || !strings.Contains(text, c.say) {
				t.Errorf("it should break %s (%q); it breaks %v:\n%s", c.want, c.say, broken, text)
			}
		})
	}
}
