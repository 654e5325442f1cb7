package znode

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/coordd/coord/session"
)

func sequential(path string) Op {
	return Op{Kind: OpCreate, Path: path, Sequential: true, ACL: OpenACL}
}

func TestSequencePassesEachBoundary(t *testing.T) {
	for _, start := range []uint64{0, 1<<31 - 2, 1<<32 - 2, 9_999_999_998, 1 << 53} {
		t.Run(fmt.Sprint(start), func(t *testing.T) {
			r := newTester(t)
			r.create("/q")
			if err := r.tree.SetSequence("/q", start); err != nil {
				t.Fatal(err)
			}
			for k := range uint64(5) {
				got := r.must(sequential("/q/n-")).Path
				if want := fmt.Sprintf("/q/n-%010d", start+k); got != want {
					t.Fatalf("name is %s, want %s", got, want)
				}
				if k == 2 {
					r.tree = r.restored()
				}
			}
			if got, want := r.stat("/q").Cversion, int64(2*(start+5)-5); got != want {
				t.Errorf("cversion is %d, want %d", got, want)
			}
			r.check()
		})
	}
}

func TestSequenceOnlyRises(t *testing.T) {
	r := newTester(t)
	r.create("/q")
	r.must(sequential("/q/a"))
	r.create("/q/plain") // counts too
	r.must(Op{Kind: OpDelete, Path: "/q/plain", Version: AnyVersion})
	r.fails(ErrNodeExists, Op{Kind: OpCreate, Path: "/q/a0000000000"}) // does not count
	if got := r.must(sequential("/q/")).Path; got != "/q/0000000002" {
		t.Errorf("number alone is %s", got)
	}
	if err := r.tree.SetSequence("/q", 1); err != nil {
		t.Fatal(err)
	}
	r.create("/q/b0000000005")
	if err := r.tree.SetSequence("/q", 5); err != nil {
		t.Fatal(err)
	}
	if err := r.fails(ErrNodeExists, sequential("/q/b")); errors.Is(err, ErrBadVersion) {
		t.Error(err)
	}
	if got := r.must(sequential("/q/c")).Path; got != "/q/c0000000005" {
		t.Errorf("next is %s", got)
	}
	if err := r.tree.SetSequence("/no", 5); !errors.Is(err, ErrNoNode) {
		t.Errorf("sequence of a missing node: %v", err)
	}
	if err := r.tree.SetSequence("/q", 1<<63); !errors.Is(err, ErrBadArguments) {
		t.Errorf("sequence past all numbers: %v", err)
	}
	r.check()
}

// raise gives a node counters that would take too long to reach.
func (t *tester) raise(path string, version, aversion int64) {
	key := pathKey(path)
	i := t.tree.find(path)
	n := t.tree.edit(i, key)
	n.version, n.aversion = version, aversion
	t.tree.done(i, n, key)
}

func TestVersionsDoNotWrap(t *testing.T) {
	r := newTester(t)
	r.create("/a")
	r.raise("/a", 1<<31-1, 1<<32-1)
	if got := r.must(Op{Kind: OpSet, Path: "/a", Version: 1<<31 - 1}).Stat.Version; got != 1<<31 {
		t.Errorf("version is %d", got)
	}
	// What the ZooKeeper port shows of 2^31 is 0.
	r.fails(ErrBadVersion, Op{Kind: OpSet, Path: "/a", Version: 0})
	if got := r.must(Op{Kind: OpSet, Path: "/a", Version: 0, Version31: true}).Stat.Version; got != 1<<31+1 {
		t.Errorf("version is %d", got)
	}
	r.fails(ErrBadVersion, Op{Kind: OpSet, Path: "/a", Version: 0, Version31: true})
	r.must(Op{Kind: OpCheck, Path: "/a", Version: 1, Version31: true})
	r.must(Op{Kind: OpCheck, Path: "/a", Version: 1<<31 + 1})
	if got := r.must(Op{Kind: OpSetACL, Path: "/a", Version: 1<<31 - 1, Version31: true}).Stat.Aversion; got != 1<<32 {
		t.Errorf("aversion is %d", got)
	}
	r.raise("/a", 1<<32-1, 0) // -1 as 32 bits
	r.fails(ErrBadVersion, Op{Kind: OpDelete, Path: "/a", Version: -2, Version31: true})
	r.fails(ErrBadVersion, Op{Kind: OpDelete, Path: "/a", Version: 1<<31 - 2, Version31: true})
	r.must(Op{Kind: OpDelete, Path: "/a", Version: 1<<31 - 1, Version31: true})
	r.check()
}

func TestVersionErrorNamesBothVersions(t *testing.T) {
	r := newTester(t)
	r.create("/a")
	err := r.fails(ErrBadVersion, Op{Kind: OpSet, Path: "/a", Version: 7})
	var v *VersionError
	if !errors.As(err, &v) || *v != (VersionError{Path: "/a", Have: 0, Want: 7}) {
		t.Errorf("error is %#v", err)
	}
	if got := err.Error(); got != "/a: version is 0, not 7" {
		t.Errorf("error reads %q", got)
	}
}

// TestCheckByCzxidTellsANodeFromItsSuccessor is F12: path and version come
// again, the czxid cannot.
func TestCheckByCzxidTellsANodeFromItsSuccessor(t *testing.T) {
	r := newTester(t)
	first := r.create("/lock").Stat.Czxid
	r.must(Op{Kind: OpDelete, Path: "/lock", Version: 0})
	second := r.create("/lock").Stat.Czxid
	for _, kind := range []OpKind{OpCheck, OpSet, OpDelete} {
		err := r.fails(ErrBadVersion, Op{Kind: kind, Path: "/lock", Version: AnyVersion, Czxid: first})
		var v *VersionError
		if !errors.As(err, &v) || v.What != "czxid" || v.Have != int64(second) || v.Want != int64(first) {
			t.Errorf("error is %#v", err)
		}
	}
	r.must(Op{Kind: OpCheck, Path: "/lock", Version: 0, Czxid: second})
}

func TestOwnerIsChecked(t *testing.T) {
	r := newTester(t)
	r.caller.Session = 5
	r.must(Op{Kind: OpCreate, Path: "/e", Node: Ephemeral})
	r.create("/p")
	for _, path := range []string{"/e", "/p"} {
		r.fails(ErrBadVersion, Op{Kind: OpDelete, Path: path, Version: AnyVersion, Owner: 6})
	}
	r.must(Op{Kind: OpDelete, Path: "/e", Version: AnyVersion, Owner: 5})
}

func TestSessionEndDeletesItsEphemeralsInPathOrder(t *testing.T) {
	r := newTester(t)
	r.create("/z")
	r.create("/b")
	var want []string
	for k, p := range []string{"/z/1", "/a", "/b/2", "/b-", "/b/10", "/c"} {
		r.caller.Session = session.ID(1 + k%5/4) // the fifth is another session's
		r.must(Op{Kind: OpCreate, Path: p, Node: Ephemeral})
		if r.caller.Session == 1 {
			want = append(want, p)
		}
	}
	slices.Sort(want)
	if got := r.tree.Ephemerals(1, "/"); !slices.Equal(got, want) {
		t.Errorf("ephemerals are %v, want %v", got, want)
	}
	if got := r.tree.Ephemerals(1, "/b"); !slices.Equal(got, []string{"/b-", "/b/2"}) {
		t.Errorf("ephemerals with a prefix are %v", got)
	}
	r.caller = Caller{Session: 1, Trusted: true}
	r.tx.Cause = BySessionExpiry
	tx := r.begin()
	r.tree.EndSession(tx, 1, true)
	var got []string
	for _, c := range tx.Changes {
		got = append(got, c.Path)
		if c.Type != Deleted || c.Zxid != tx.Zxid || c.Cause != BySessionExpiry || c.Session != 1 || c.Stat.EphemeralOwner != 1 {
			t.Errorf("change %+v", c)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("deleted %v, want %v", got, want)
	}
	if st := r.stat("/b"); st.Pzxid != tx.Zxid || st.NumChildren != 1 || st.Cversion != 3 {
		t.Errorf("the parent is %+v", st)
	}
	if got := r.tree.Ephemerals(2, ""); !slices.Equal(got, []string{"/b/10"}) {
		t.Errorf("the other session has %v", got)
	}
	r.tree.EndSession(r.begin(), 99, true)
	if len(r.tx.Changes) != 0 {
		t.Error("a session without ephemerals had some")
	}
	r.check()
}
