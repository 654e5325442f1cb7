package check

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// at is a moment of the made-up histories, in ms.
func at(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }

// Sessions of the made-up histories. They were opened at those transactions.
const (
	alice session.ID = 1
	bob   session.ID = 2
)

// Builders of records: when, who, what.

func opened(s session.ID) Record {
	return Record{Kind: Opened, Session: s, Timeout: at(1000)}
}

func done(kind Kind, s session.ID, begin, end int, path string) Record {
	return Record{Kind: kind, Client: s.String(), Session: s, Begin: at(begin), End: at(end), Path: path, Outcome: Done, Want: -1}
}

func create(s session.ID, begin, end int, path, data string, z zxid.ID) Record {
	r := done(Create, s, begin, end, path)
	r.Made, r.Data, r.Zxid, r.Stat = path, data, z, Stat{Czxid: z, Mzxid: z}
	return r
}

func ephemeral(s session.ID, begin, end int, path string, z zxid.ID) Record {
	r := create(s, begin, end, path, path+" of "+s.String(), z)
	r.Flags, r.Stat.Owner = Ephemeral, s
	return r
}

func numberedAs(s session.ID, begin, end int, path, digits string, z zxid.ID) Record {
	r := create(s, begin, end, path, "", z)
	r.Flags, r.Made = Sequential, path+digits
	return r
}

func set(s session.ID, begin, end int, path, data string, version int64, z zxid.ID) Record {
	r := done(Set, s, begin, end, path)
	r.Data, r.Zxid, r.Stat = data, z, Stat{Czxid: 10, Mzxid: z, Version: version}
	return r
}

// refusedAt is a set by bob at a version that the znode did not have.
func refusedAt(want, has int64) Record {
	r := with(Refused, BadVersion, set(bob, 6, 9, "/a", "two", has, 0))
	r.Want, r.Stat.Czxid = want, 0
	return r
}

// read is a linearizable one at transaction z.
func read(s session.ID, begin, end int, path, data string, version int64, mzxid, z zxid.ID) Record {
	r := done(Get, s, begin, end, path)
	r.Mode, r.Found, r.Data, r.Zxid, r.Stat = Linearizable, true, data, z, Stat{Czxid: 10, Mzxid: mzxid, Version: version}
	return r
}

func readEphemeral(begin int, e Record) Record {
	r := read(bob, begin, begin+1, e.Path, e.Data, 0, e.Zxid, e.Zxid+10)
	r.Stat = e.Stat
	return r
}

func absent(s session.ID, begin, end int, path string) Record {
	r := done(Get, s, begin, end, path)
	r.Mode = Linearizable
	return r
}

func inMode(mode string, r Record) Record { r.Mode = mode; return r }

func with(outcome Outcome, err string, r Record) Record {
	r.Outcome, r.Err = outcome, err
	if outcome != Done {
		r.Zxid, r.Stat.Mzxid, r.Stat.Czxid = 0, 0, 0
	}
	return r
}

func ended(s session.ID, begin, end int, reason string, deadline int) Record {
	return Record{Kind: Ended, Session: s, Begin: at(begin), End: at(end), Outcome: Done, Reason: reason, Deadline: at(deadline), Timeout: at(1000)}
}

func about(kind Kind, s session.ID, begin int) Record {
	return Record{Kind: kind, Session: s, Begin: at(begin), End: at(begin), Timeout: at(1000)}
}

func watching(path string, since zxid.ID) Record {
	return Record{Kind: Watching, Client: "watcher", Session: bob, Path: path, Zxid: since, Recursive: true}
}

// event is one of the first record, which must be a watch.
func event(begin int, typ, path, data string, z zxid.ID, index uint32, last bool) Record {
	return Record{
		Kind: Event, Client: "watcher", Begin: at(begin), End: at(begin), Watch: 1, Path: path, Type: typ,
		Data: data, Zxid: z, Index: index, Last: last, Cause: CauseRequest,
	}
}

func acquired(s session.ID, begin, end int, as string, token uint64) Record {
	r := done(Acquire, s, begin, end, "/lock")
	r.As, r.Token, r.Limit = as, token, 2
	return r
}

// over is the end of the hold that the record with that number began.
func over(kind Kind, hold, begin int, reason string) Record {
	return Record{Kind: kind, Begin: at(begin), End: at(begin), Path: "/lock", Hold: hold, Reason: reason}
}

func digest(server, d string) Record { return Record{Kind: Digest, Client: server, Data: d} }

func txn(r Record, ops ...Record) Record {
	r.Kind, r.Path, r.Ops = Txn, "", ops
	return r
}

// history puts records together.
func history(records ...Record) *History {
	h := New(nil)
	for _, r := range records {
		h.Add(r)
	}
	return h
}

// tested are the options for made-up histories.
var tested = Options{Bound: at(500), Tolerance: at(1), Decide: 10 * time.Second}

// rules are those that the history breaks.
func rules(h *History) (broken []Rule, text string) {
	for _, v := range Check(h, tested) {
		text += v.String() + "\n"
		if !slices.Contains(broken, v.Rule) {
			broken = append(broken, v.Rule)
		}
	}
	return broken, text
}

// TestGoodHistoriesAreClean has, for each check, what it must not mistake.
func TestGoodHistoriesAreClean(t *testing.T) {
	e := ephemeral(alice, 0, 5, "/e", 10)
	for name, records := range map[string][]Record{
		"nothing": nil,
		"write and read": {
			create(alice, 0, 5, "/a", "one", 10), set(bob, 6, 9, "/a", "two", 1, 11), read(alice, 10, 12, "/a", "two", 1, 11, 11),
		},
		"concurrent reads see either": {
			create(alice, 0, 5, "/a", "one", 10), set(bob, 6, 20, "/a", "two", 1, 11),
			read(alice, 7, 9, "/a", "one", 0, 10, 10), read(alice, 10, 12, "/a", "two", 1, 11, 11),
		},
		"an unknown write is seen": {
			create(alice, 0, 5, "/a", "one", 10), with(Unknown, "", set(bob, 6, 9, "/a", "two", 1, 0)), read(alice, 20, 22, "/a", "two", 1, 11, 11),
		},
		"an unknown write is not seen": {
			create(alice, 0, 5, "/a", "one", 10), with(Unknown, "", set(bob, 6, 9, "/a", "two", 1, 0)), read(alice, 20, 22, "/a", "one", 0, 10, 11),
		},
		"refused by version": {
			create(alice, 0, 5, "/a", "one", 10), refusedAt(4, 0), read(alice, 20, 22, "/a", "one", 0, 10, 11),
		},
		"refused by a version that is not told": {
			create(alice, 0, 5, "/a", "one", 10), refusedAt(4, NotTold), read(alice, 20, 22, "/a", "one", 0, 10, 11),
		},
		"deleted": {
			create(alice, 0, 5, "/a", "one", 10), done(Delete, bob, 6, 9, "/a"), absent(alice, 20, 22, "/a"),
			with(Refused, NoNode, set(bob, 23, 24, "/a", "two", 0, 0)),
		},
		"a stale read of its own past": {
			create(alice, 0, 5, "/a", "one", 10), set(alice, 6, 9, "/a", "two", 1, 11), inMode(StaleRead, read(bob, 10, 12, "/a", "one", 0, 10, 10)),
		},
		"ephemeral of a closed session goes": {
			opened(alice), e, readEphemeral(6, e), ended(alice, 10, 15, ByClient, 900), absent(bob, 12, 14, "/e"), absent(bob, 20, 21, "/e"),
		},
		"ephemeral of an expired session goes within the bound": {
			opened(alice), e, ended(alice, 1000, 1000, BySilent, 1000), readEphemeral(1100, e), absent(bob, 2000, 2001, "/e"),
		},
		"killed": {
			opened(alice), e, about(Killed, alice, 10), absent(bob, 12, 14, "/e"), ended(alice, 20, 20, ByOther, 900),
		},
		"a number that another has taken by hand": {
			create(alice, 0, 1, "/n-0000000007", "mine", 10), with(Refused, NodeExists, numberedAs(bob, 2, 3, "/n-", "", 0)),
		},
		"numbers rise, and begin anew below a new parent": {
			create(alice, 0, 1, "/q", "p", 10), numberedAs(alice, 2, 3, "/q/n-", "0000000007", 11), done(Delete, alice, 4, 5, "/q/n-0000000007"),
			done(Delete, alice, 6, 7, "/q"), create(alice, 8, 9, "/q", "again", 14), numberedAs(alice, 10, 11, "/q/n-", "0000000000", 15),
		},
		"watch": {
			watching("/", 9), create(alice, 0, 5, "/a", "one", 10), event(6, "created", "/a", "one", 10, 0, true),
			set(alice, 7, 9, "/a", "two", 1, 11), event(10, "changed", "/a", "two", 11, 0, true),
			done(Delete, alice, 11, 12, "/a"), event(13, "deleted", "/a", "", 12, 0, true), create(alice, 14, 15, "/b", "b", 13),
			event(16, "created", "/b", "b", 13, 0, true),
		},
		"watch that has ended need not tell more": {watching("/", 9), {Kind: Unwatch, Watch: 1, Begin: at(1)}, create(alice, 0, 5, "/a", "one", 10), {Kind: Settled, Zxid: 10, Begin: at(50)}},
		"watch that begins anew": {
			watching("/", 9), create(alice, 0, 5, "/a", "one", 10), event(6, "resync", "/", "", 10, 0, true),
		},
		"lock": {
			acquired(alice, 0, 5, Alone, 10), over(Release, 1, 20, ""), acquired(bob, 3, 21, Alone, 11), over(Lost, 3, 30, BySilent),
			acquired(alice, 25, 31, Alone, 12),
		},
		"readers share, and slots up to the limit": {
			acquired(alice, 0, 5, Shared, 10), acquired(bob, 6, 7, Shared, 11),
			func() Record { r := acquired(alice, 0, 5, Slot, 10); r.Path = "/s"; return r }(),
			func() Record { r := acquired(bob, 6, 7, Slot, 11); r.Path = "/s"; return r }(),
		},
		"an operator takes a lock away": {
			acquired(alice, 0, 5, Alone, 10), acquired(bob, 3, 8, Alone, 11), over(Lost, 1, 9, ByOther),
		},
		"a transaction": {
			txn(create(alice, 0, 5, "", "", 10), create(alice, 0, 5, "/a", "one", 10), create(alice, 0, 5, "/b", "other", 10)),
			read(bob, 6, 7, "/a", "one", 0, 10, 10), read(bob, 8, 9, "/b", "other", 0, 10, 10),
		},
		"digests": {digest("n1", "x"), digest("n2", "y"), digest("n1", "y")},
	} {
		t.Run(name, func(t *testing.T) {
			if broken, text := rules(history(records...)); broken != nil {
				t.Errorf("a good history breaks %v:\n%s", broken, text)
			}
		})
	}
}

// TestEachViolationIsFound has a history for each thing that a check can say.
func TestEachViolationIsFound(t *testing.T) {
	one := create(alice, 0, 5, "/a", "one", 10)
	two := set(bob, 6, 9, "/a", "two", 1, 11)
	e := ephemeral(alice, 0, 5, "/e", 10)
	for _, c := range []struct {
		name    string
		want    Rule
		say     string // in the text
		records []Record
	}{
		{"later write with a smaller zxid", RuleOrder, "not above", []Record{create(alice, 0, 5, "/a", "one", 12), create(bob, 6, 9, "/b", "b", 11)}},
		{"session's writes out of order", RuleOrder, "the session's later write", func() []Record {
			a, b := set(alice, 0, 9, "/a", "x", 1, 12), set(alice, 1, 9, "/b", "y", 1, 11)
			a.Seq, b.Seq = 1, 2
			return []Record{a, b}
		}()},
		{"linearizable read older than a write", RuleFresh, "older than", []Record{one, two, read(alice, 10, 12, "/a", "one", 0, 10, 10)}},
		{"linearizable read older than another's read", RuleFresh, "older than", []Record{
			inMode(SessionRead, read(bob, 0, 1, "/b", "b", 0, 10, 20)), read(alice, 10, 12, "/a", "one", 0, 10, 19),
		}},
		{"session goes back", RuleSession, "is then shown", []Record{
			inMode(StaleRead, read(bob, 0, 1, "/a", "one", 0, 10, 20)), inMode(SessionRead, read(bob, 2, 3, "/a", "one", 0, 10, 19)),
		}},
		{"session's lost write is done late", RuleOrder, "the session's earlier write", []Record{
			one, with(Unknown, "", set(bob, 6, 9, "/a", "two", 1, 0)), create(bob, 10, 11, "/b", "b", 12), read(alice, 20, 21, "/a", "two", 1, 13, 13),
		}},
		{"read without what happened before", RuleSnapshot, "does not show", []Record{one, two, inMode(SessionRead, read(alice, 1, 12, "/a", "one", 0, 10, 11))}},
		{"read of the future", RuleSnapshot, "a change of later", []Record{one, two, inMode(SessionRead, read(alice, 1, 12, "/a", "two", 1, 11, 10))}},
		{"read of other data", RuleSnapshot, "has not written", []Record{one, two, inMode(SessionRead, read(alice, 10, 12, "/a", "one", 1, 11, 11))}},
		{"acknowledged set lost", RuleLost, "was acknowledged, and the read behind it", []Record{one, two, read(alice, 20, 22, "/a", "one", 0, 10, 12)}},
		{"acknowledged create lost", RuleLost, "there is no znode", []Record{one, absent(alice, 20, 22, "/a")}},
		{"write applied twice", RuleOnce, "one write is 2 changes", []Record{one, two, read(alice, 20, 22, "/a", "two", 2, 12, 12)}},
		{"write applied twice, as its watch saw", RuleOnce, "one write is 2 changes", []Record{
			watching("/", 9), one, two, event(20, "changed", "/a", "two", 11, 0, true), event(21, "changed", "/a", "two", 12, 0, true),
		}},
		{"refused write done", RuleOnce, "said not to be done", []Record{one, with(Failed, "failed", set(bob, 6, 9, "/a", "two", 1, 11)), read(alice, 20, 22, "/a", "two", 1, 11, 12)}},
		{"data from nowhere", RuleOnce, "nobody has written", []Record{one, read(alice, 20, 22, "/a", "three", 0, 10, 12)}},
		{"too many versions", RuleOnce, "has the version 3", []Record{one, two, read(alice, 20, 22, "/a", "two", 3, 11, 12)}},
		{"no order", RuleLinearizable, "no order", []Record{
			one, two, with(Refused, NodeExists, create(bob, 10, 11, "/b", "b", 0)),
			create(bob, 20, 21, "/b", "b2", 12), create(bob, 30, 31, "/b", "b3", 13),
		}},
		{"stale list of children", RuleLinearizable, "no order", []Record{one, func() Record {
			r := done(Children, bob, 20, 21, "/")
			r.Mode, r.Found = Linearizable, true
			return r
		}()}},
		{"refused without a reason", RuleLinearizable, "no order", []Record{one, with(Refused, NoNode, set(bob, 6, 9, "/a", "two", 0, 0))}},
		{"refused though the version was right", RuleLinearizable, "no order", []Record{one, refusedAt(0, NotTold)}},
		{"refused by another version than it says", RuleLinearizable, "no order", []Record{one, refusedAt(4, 1)}},
		{"ephemeral outlives its close", RuleEphemeral, "must have been over", []Record{opened(alice), e, ended(alice, 10, 15, ByClient, 900), readEphemeral(20, e)}},
		{"ephemeral outlives its expiry", RuleEphemeral, "must have been over", []Record{opened(alice), e, ended(alice, 1000, 1000, BySilent, 1000), readEphemeral(1520, e)}},
		{"ephemeral outlives its dead client", RuleEphemeral, "must have been over", []Record{opened(alice), e, about(Silent, alice, 100), readEphemeral(1700, e)}},
		{"ephemeral gone early", RuleEphemeral, "its session lives", []Record{opened(alice), e, absent(bob, 500, 501, "/e"), ended(alice, 1000, 1000, BySilent, 1000)}},
		{"number twice", RuleSequence, "is followed by", []Record{numberedAs(alice, 0, 1, "/n-", "0000000007", 10), numberedAs(bob, 2, 3, "/n-", "0000000007", 11)}},
		{"number taken", RuleSequence, "was taken", []Record{numberedAs(alice, 0, 1, "/n-", "0000000007", 10), with(Refused, NodeExists, numberedAs(bob, 2, 3, "/n-", "", 0))}},
		{"no number", RuleSequence, "no number", []Record{numberedAs(alice, 0, 1, "/n-", "", 10)}},
		{"change not told", RuleWatch, "does not tell what", []Record{watching("/", 9), one, two, event(20, "changed", "/a", "two", 11, 0, true)}},
		{"version that its watch cannot explain", RuleWatch, "has told 0 sets", []Record{
			watching("/", 9), one, event(6, "created", "/a", "one", 10, 0, true), with(Unknown, "", set(bob, 6, 9, "/a", "two", 1, 0)),
			read(alice, 20, 22, "/a", "one", 1, 10, 10),
		}},
		{"deletion not told", RuleWatch, "does not tell the deletion", []Record{
			watching("/", 9), one, event(6, "created", "/a", "one", 10, 0, true), done(Delete, alice, 11, 12, "/a"),
			create(alice, 14, 15, "/b", "b", 13), event(16, "created", "/b", "b", 13, 0, true),
		}},
		{"change not told by the time all is settled", RuleWatch, "does not tell what", []Record{watching("/", 9), one, {Kind: Settled, Zxid: 10, Begin: at(50)}}},
		{"stream out of order", RuleStream, "as a tap saw", []Record{{Kind: Broken, Detail: "as a tap saw"}}},
		{"told twice", RuleWatch, "twice", []Record{watching("/", 9), one, event(6, "created", "/a", "one", 10, 0, true), event(7, "created", "/a", "one", 10, 0, true)}},
		{"told out of order", RuleWatch, "behind", []Record{watching("/", 9), event(6, "created", "/b", "b", 11, 0, true), event(7, "created", "/a", "one", 10, 0, true)}},
		{"half a transaction", RuleWatch, "the end of transaction", []Record{watching("/", 9), event(6, "created", "/b", "b", 10, 0, false), event(7, "created", "/a", "one", 11, 0, true)}},
		{"from before the watch", RuleWatch, "began behind", []Record{watching("/", 10), event(6, "created", "/a", "one", 10, 0, true)}},
		{"told with other data", RuleWatch, "other data", []Record{watching("/", 9), one, event(6, "created", "/a", "on", 10, 0, true)}},
		{"tokens fall", RuleToken, "a later grant", []Record{acquired(alice, 0, 5, Alone, 12), over(Release, 1, 6, ""), acquired(bob, 7, 8, Alone, 11)}},
		{"token twice", RuleToken, "given twice", []Record{acquired(alice, 0, 5, Alone, 12), over(Release, 1, 6, ""), acquired(bob, 3, 8, Alone, 12)}},
		{"token that is no zxid", RuleToken, "not above the session", []Record{acquired(bob, 0, 5, Alone, 1)}},
		{"two holders", RuleHolder, "had not released", []Record{acquired(alice, 0, 5, Alone, 11), acquired(bob, 3, 8, Alone, 12), over(Release, 1, 20, "")}},
		{"two holders, one for ever", RuleHolder, "had not released", []Record{acquired(alice, 0, 5, Alone, 11), acquired(bob, 3, 8, Alone, 12)}},
		{"a writer beside a reader", RuleHolder, "had not released", []Record{acquired(alice, 0, 5, Shared, 11), acquired(bob, 3, 8, Alone, 12)}},
		{"a slot too many", RuleHolder, "had not released", []Record{acquired(alice, 0, 5, Slot, 11), acquired(bob, 3, 8, Slot, 12), acquired(bob, 3, 8, Slot, 13)}},
		{"told of its loss too late", RuleHolder, "not told", []Record{acquired(alice, 0, 5, Alone, 11), acquired(bob, 3, 100, Alone, 12), over(Lost, 1, 110, BySilent)}},
		{"expired early", RuleExpiry, "before its deadline", []Record{opened(alice), ended(alice, 500, 500, BySilent, 1000)}},
		{"ended by nobody", RuleExpiry, "nobody has done that", []Record{opened(alice), ended(alice, 500, 500, ByOther, 1000)}},
		{"expired early, as a watch saw", RuleExpiry, "could count on it", []Record{watching("/", 9), opened(alice), e, func() Record {
			r := event(500, "deleted", "/e", "", 12, 0, true)
			r.Cause, r.Stat.Owner = CauseExpired, alice
			return r
		}(), event(5, "created", "/e", e.Data, 10, 0, true), ended(alice, 1000, 1000, BySilent, 1000)}},
		{"digests differ", RuleDigest, "has the digest", []Record{digest("n1", "x"), digest("n2", "y")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			broken, text := rules(history(c.records...))
			if !slices.Contains(broken, c.want) || !strings.Contains(text, c.say) {
				t.Errorf("it should break %s (%q); it breaks %v:\n%s", c.want, c.say, broken, text)
			}
		})
	}
}

// TestSearchThatIsNotDecidedIsAViolation gives the search no time.
func TestSearchThatIsNotDecidedIsAViolation(t *testing.T) {
	var records []Record
	for i := range 40 { // all at the same time, and one that fits nowhere
		records = append(records, with(Unknown, "", set(alice, 10, 20, "/a", string(rune('A'+i)), 0, 0)))
	}
	records = append(records, create(alice, 0, 5, "/a", "one", 10), read(bob, 30, 31, "/a", "A", 35, 99, 99))
	h := history(records...)
	o := tested
	o.Decide = time.Millisecond
	found := Check(h, o)
	if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == RuleLinearizable && strings.Contains(v.Text, "not decided") }) {
		t.Errorf("it should not be decided: %v", found)
	}
	o.AllowUndecided = true
	if slices.ContainsFunc(Check(h, o), func(v Violation) bool { return v.Rule == RuleLinearizable }) {
		t.Error("undecided was allowed, and is a violation")
	}
}

// TestViolationsNameTheirRecords looks at what is told.
func TestViolationsNameTheirRecords(t *testing.T) {
	found := Check(history(create(alice, 0, 5, "/a", "one", 10), absent(bob, 20, 22, "/a")), tested)
	if len(found) == 0 || found[0].Rule != RuleLost || found[0].Path != "/a" || len(found[0].Records) != 2 || found[0].Records[0].N != 1 || found[0].Records[1].N != 2 {
		t.Fatalf("found %+v", found)
	}
	for _, want := range []string{"#1 ", "#2 ", "create /a", `"one"`, "absent", "0s..5ms"} {
		if !strings.Contains(found[0].String(), want) {
			t.Errorf("%q is not in\n%s", want, found[0])
		}
	}
}

// TestHistoryIsReadBackAsItWas writes and reads a history, and a second behind it.
func TestHistoryIsReadBackAsItWas(t *testing.T) {
	h := history(
		watching("/", 9), create(alice, 0, 5, "/a", "one\n\"two\"", 10), event(6, "created", "/a", "", 10, 1, true),
		acquired(alice, 0, 5, Slot, 1<<62), over(Lost, 4, 9, BySilent), ended(alice, 500, 500, ByOther, 1000),
		txn(create(alice, 0, 5, "", "", 10), create(alice, 0, 5, "/b", "b", 10)), with(Unknown, "unknown outcome", set(bob, 1, 2, "/a", "x", 1, 2)),
	)
	var b bytes.Buffer
	if err := h.Write(&b); err != nil {
		t.Fatal(err)
	}
	written := b.String()
	back := New(nil)
	for range 2 {
		if err := back.Read(strings.NewReader(written)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(written, "\n"); n != h.Len() || back.Len() != 2*n {
		t.Fatalf("%d records, %d lines, %d read twice", h.Len(), n, back.Len())
	}
	var again bytes.Buffer
	first := history(back.Records()[:h.Len()]...)
	if err := first.Write(&again); err != nil {
		t.Fatal(err)
	}
	if again.String() != written {
		t.Errorf("written\n%sread\n%s", written, again.String())
	}
	if second := back.Records()[h.Len():]; second[2].Watch != 9 || second[4].Hold != 12 {
		t.Errorf("the second history's events belong to %d, its loss to %d", second[2].Watch, second[4].Hold)
	}
	if err := back.Read(strings.NewReader("{")); err == nil {
		t.Error("half a record was read")
	}
}

// TestSaveKeepsAndDraws looks at the files of a failing run.
func TestSaveKeepsAndDraws(t *testing.T) {
	h := history(opened(alice), create(alice, 0, 5, "/a", "one", 10), absent(bob, 20, 22, "/a"))
	dir := filepath.Join(t.TempDir(), "run")
	if err := Save(dir, h, Check(h, tested), "seed 7"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"history.jsonl":                      `"path":"/a"`,
		"violations.txt":                     "seed 7",
		"timeline_a.txt":                     "* |                                                 ",
		"linearizable-2.html":                "<html",
		"timeline" + alice.String() + ".txt": "opened",
	} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, %q is not in\n%.2000s", name, err, want, b)
		}
	}
}
