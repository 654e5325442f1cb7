package znode

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/session"
)

// bid makes an ephemeral of session 1 with times.
func (t *tester) bid(path string, ttl, linger time.Duration) Stat {
	t.Helper()
	t.caller.Session = 1
	return t.must(Op{Kind: OpCreate, Path: path, Data: []byte("card"), Node: Ephemeral, TTL: ttl, Linger: linger}).Stat
}

func (t *tester) end(s session.ID, linger bool) *Tx {
	t.Helper()
	tx := t.begin()
	tx.Cause = BySessionExpiry
	t.tree.EndSession(tx, s, linger)
	t.check()
	return tx
}

func TestEphemeralWithATTLGoesWithItsSessionOrItsTime(t *testing.T) {
	r := newTester(t)
	made := r.bid("/a", time.Minute, 0)
	if made.TTL != time.Minute || made.Kind != Ephemeral || made.EphemeralOwner != 1 || made.Cversion != 0 {
		t.Errorf("stat is %+v", made)
	}
	r.wantDue("/a", made.Mtime+60_000)
	set := r.must(Op{Kind: OpSet, Path: "/a", Version: AnyVersion}).Stat
	if r.wantDue("/a", set.Mtime+60_000); set.TTL != time.Minute {
		t.Errorf("after a set: %+v", set)
	}
	found := r.tree.Expired(1<<60, 1)[0]
	if err := r.tree.Reap(r.begin(), found); err != nil {
		t.Fatal(err)
	}
	if r.check(); len(r.tree.Ephemerals(1, "")) != 0 {
		t.Error("its session still owns it")
	}
	r.bid("/b", time.Minute, 0)
	if tx := r.end(1, true); len(tx.Changes) != 1 || tx.Changes[0].Type != Deleted {
		t.Errorf("changes %+v", tx.Changes)
	}
	r.wantNoneDue()
}

func TestTTLOfAnEphemeralCanBeTakenAway(t *testing.T) {
	r := newTester(t)
	r.bid("/a", time.Minute, time.Second)
	found := r.tree.Expired(1<<60, 1)[0]
	for range 2 { // again is no error
		set := r.must(Op{Kind: OpSet, Path: "/a", Data: []byte("won"), Version: AnyVersion, Owner: 1, TTL: Without}).Stat
		if set.TTL != 0 || set.Linger != time.Second {
			t.Errorf("stat %+v", set)
		}
	}
	r.wantNoneDue()
	digest := r.tree.Digest()
	if err := r.tree.Reap(r.begin(), found); !errors.Is(err, ErrBadArguments) || r.tree.Digest() != digest {
		t.Errorf("the reaper that was late got %v", err)
	}
}

// TestReaperThatIsLateSparesTheWinner: the node still has a TTL, but was set.
func TestReaperThatIsLateSparesTheWinner(t *testing.T) {
	r := newTester(t)
	r.bid("/a", time.Minute, 0)
	found := r.tree.Expired(1<<60, 1)[0]
	r.must(Op{Kind: OpSet, Path: "/a", Version: AnyVersion})
	if err := r.tree.Reap(r.begin(), found); !errors.Is(err, ErrBadVersion) {
		t.Errorf("got %v", err)
	}
}

func TestLingeringNodeKeepsItsPlaceAndItsCzxid(t *testing.T) {
	r := newTester(t)
	r.create("/q")
	made := r.bid("/q/a-0000000000", time.Minute, 30*time.Second)
	parent := r.stat("/q")
	tx := r.end(1, true)
	s := r.stat("/q/a-0000000000")
	want := made
	want.Kind, want.EphemeralOwner, want.TTL, want.Linger = TTL, 0, 30*time.Second, 0
	want.Version, want.Mzxid, want.Mtime = made.Version+1, tx.Zxid, tx.Time
	if s != want {
		t.Errorf("stat is\n%+v, want\n%+v", s, want)
	}
	if r.data("/q/a-0000000000") != "card" || r.stat("/q") != parent {
		t.Errorf("data %q, the parent %+v", r.data("/q/a-0000000000"), r.stat("/q"))
	}
	if c := tx.Changes; len(c) != 1 || c[0].Type != DataChanged || c[0].Cause != BySessionExpiry || c[0].Stat != s || string(c[0].Data) != "card" {
		t.Errorf("changes %+v", c)
	}
	r.wantDue("/q/a-0000000000", tx.Time+30_000)
	// It is an ordinary TTL node now: a set lets it live on, nobody owns it.
	r.end(1, true)
	set := r.must(Op{Kind: OpSet, Path: "/q/a-0000000000", Version: s.Version}).Stat
	r.wantDue("/q/a-0000000000", set.Mtime+30_000)
	r.must(Op{Kind: OpDelete, Path: "/q/a-0000000000", Version: AnyVersion, Czxid: made.Czxid})
	r.wantNoneDue()
}

func TestOwnerIsRefusedOnceItsNodeLingers(t *testing.T) {
	r := newTester(t)
	made := r.bid("/a", 0, time.Second)
	guard := Op{Kind: OpCheck, Path: "/a", Version: AnyVersion, Czxid: made.Czxid, Owner: 1}
	r.must(guard)
	r.end(1, true)
	r.fails(ErrBadVersion, guard)
	for _, kind := range []OpKind{OpSet, OpDelete} {
		r.fails(ErrBadVersion, Op{Kind: kind, Path: "/a", Version: AnyVersion, Czxid: made.Czxid, Owner: 1, TTL: Without, Linger: Without})
	}
	if _, err := r.tree.Multi(r.begin(), []Op{{Kind: OpSet, Path: "/", Version: AnyVersion}, guard}); !errors.Is(err, ErrBadVersion) {
		t.Errorf("a transaction of the former owner: %v", err)
	}
}

// TestEndOfASessionGoesInTheOrderOfPaths, whatever becomes of each node.
func TestEndOfASessionGoesInTheOrderOfPaths(t *testing.T) {
	for _, linger := range []bool{true, false} {
		r := newTester(t)
		r.create("/p")
		for i, p := range []string{"/z", "/p/b", "/a", "/p/a", "/m", "/p/c"} {
			r.bid(p, 0, time.Duration(i%2)*time.Minute)
		}
		var got []string
		for _, c := range r.end(1, linger).Changes {
			got = append(got, fmt.Sprint(c.Path, map[ChangeType]string{Deleted: " gone", DataChanged: " stays"}[c.Type]))
		}
		want := []string{"/a gone", "/m gone", "/p/a stays", "/p/b stays", "/p/c stays", "/z gone"}
		if !linger {
			want = []string{"/a gone", "/m gone", "/p/a gone", "/p/b gone", "/p/c gone", "/z gone"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("linger %v: %v", linger, got)
		}
		if n := r.stat("/p").NumChildren; linger != (n == 3) || len(r.tree.Ephemerals(1, "")) != 0 {
			t.Errorf("linger %v: %d nodes below /p, and %v", linger, n, r.tree.Ephemerals(1, ""))
		}
	}
}

func TestLingerIsSetAndTakenAway(t *testing.T) {
	r := newTester(t)
	r.bid("/a", time.Minute, 0)
	for _, linger := range []time.Duration{time.Second, 0, MaxLinger, Without, 0, time.Millisecond} {
		before := r.stat("/a").Linger
		want := map[time.Duration]time.Duration{0: before, Without: 0, time.Second: time.Second, MaxLinger: MaxLinger, time.Millisecond: time.Millisecond}[linger]
		set := r.must(Op{Kind: OpSet, Path: "/a", Version: AnyVersion, Linger: linger}).Stat
		if r.check(); set.Linger != want || set.TTL != time.Minute || set != r.restored().mustStat("/a") {
			t.Errorf("linger %v: %+v", linger, set)
		}
	}
}

func (t *Tree) mustStat(path string) Stat {
	s, _ := t.Exists(path)
	return s
}

func TestLongestTimesFitTogether(t *testing.T) {
	r := newTester(t)
	if s := r.bid("/a", MaxTTL, MaxLinger); s.TTL != MaxTTL || s.Linger != MaxLinger || s.Cversion != 0 {
		t.Errorf("stat %+v", s)
	}
	if s := r.restored().mustStat("/a"); s != r.stat("/a") {
		t.Errorf("restored: %+v", s)
	}
	if s := r.bid("/b", time.Millisecond, time.Millisecond); s.TTL != time.Millisecond || s.Linger != time.Millisecond {
		t.Errorf("stat %+v", s)
	}
	if MaxLinger.Milliseconds() >= 1<<lingerBits || (limits{MaxTTL.Milliseconds(), MaxLinger.Milliseconds()}).pack() < 0 {
		t.Error("the limits do not fit a word")
	}
}

func TestTimesThatMakeNoSenseAreRefused(t *testing.T) {
	r := newTester(t)
	r.caller.Session = 1
	for _, op := range []Op{
		{Node: Persistent, Linger: time.Second},
		{Node: Container, Linger: time.Second},
		{Node: TTL, TTL: time.Second, Linger: time.Second},
		{Node: Persistent, TTL: time.Second},
		{Node: Ephemeral, TTL: -time.Second},
		{Node: Ephemeral, TTL: Without},
		{Node: Ephemeral, TTL: time.Microsecond},
		{Node: Ephemeral, TTL: MaxTTL + time.Millisecond},
		{Node: Ephemeral, Linger: -time.Second},
		{Node: Ephemeral, Linger: Without},
		{Node: Ephemeral, Linger: time.Millisecond + 1},
		{Node: Ephemeral, Linger: MaxLinger + time.Millisecond},
	} {
		op.Kind, op.Path = OpCreate, "/x"
		r.fails(ErrBadArguments, op)
	}
	r.bid("/e", 0, 0)
	r.create("/p")
	r.must(Op{Kind: OpCreate, Path: "/t", Node: TTL, TTL: time.Second})
	for path, ops := range map[string][]Op{
		"/e": {{TTL: time.Second}, {TTL: -2}, {Linger: -2}, {Linger: time.Microsecond}, {Linger: MaxLinger + time.Millisecond}},
		"/p": {{TTL: Without}, {Linger: Without}, {Linger: time.Second}},
		"/t": {{TTL: Without}, {Linger: Without}, {Linger: time.Second}, {TTL: time.Hour}},
	} {
		for _, op := range ops {
			op.Kind, op.Path, op.Version = OpSet, path, AnyVersion
			r.fails(ErrBadArguments, op)
		}
	}
	if err := r.tree.SetSequence("/e", 7); !errors.Is(err, ErrBadArguments) {
		t.Errorf("a sequence for an ephemeral: %v", err)
	}
	if err := r.tree.SetSequence("/e", 0); err != nil {
		t.Error(err)
	}
}

// TestEphemeralHasNoChildrenWhateverItsTimes: they stand where other nodes count
// their children.
func TestEphemeralHasNoChildrenWhateverItsTimes(t *testing.T) {
	r := newTester(t)
	r.bid("/e", time.Hour, time.Hour)
	for _, sequential := range []bool{true, false} {
		r.fails(ErrEphemeralParent, Op{Kind: OpCreate, Path: "/e/x", Sequential: sequential})
	}
	r.end(1, true)
	if made := r.must(Op{Kind: OpCreate, Path: "/e/x-", Sequential: true}); made.Path != "/e/x-0000000000" {
		t.Errorf("made %s", made.Path) // it is a TTL node now
	}
}

func TestFailedTransactionLeavesTheTimesAsTheyWere(t *testing.T) {
	r := newTester(t)
	made := r.bid("/e", time.Hour, time.Second)
	before := encode(t, r.tree)
	_, err := r.tree.Multi(r.begin(), []Op{
		{Kind: OpSet, Path: "/e", Version: AnyVersion, TTL: Without, Linger: time.Minute},
		{Kind: OpSet, Path: "/e", Version: AnyVersion, Linger: Without},
		{Kind: OpCheck, Path: "/none", Version: AnyVersion},
	})
	if !errors.Is(err, ErrNoNode) || !bytes.Equal(before, encode(t, r.tree)) {
		t.Errorf("%v, or the tree has changed", err)
	}
	r.check()
	r.wantDue("/e", made.Mtime+3_600_000)
}
