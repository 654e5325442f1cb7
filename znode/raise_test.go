package znode

import (
	"errors"
	"testing"
)

func raise(path string, n int64) Op { return Op{Kind: OpSequence, Path: path, Version: n} }

// TestRaisedSequenceNeverGivesANumberTwice: what an import says is the least
// number of what follows, and only who may set the ACL can say it.
func TestRaisedSequenceNeverGivesANumberTwice(t *testing.T) {
	r := newTester(t)
	r.create("/q")
	r.must(sequential("/q/n-"))
	if got := r.must(raise("/q", 41)).Stat; got.Cversion != 2*41-1 || got.NumChildren != 1 {
		t.Errorf("raised to 41: %+v", got)
	}
	if len(r.tx.Changes) != 0 {
		t.Errorf("watches would fire on %v", r.tx.Changes)
	}
	r.must(raise("/q", 7)) // it does not fall
	if got := r.must(sequential("/q/n-")).Path; got != "/q/n-0000000041" {
		t.Errorf("next is %s", got)
	}
	r.must(raise("/q", MaxSequence))
	r.tree = r.restored()
	if got := r.must(sequential("/q/n-")).Path; got != "/q/n-9999999999" {
		t.Errorf("next is %s", got)
	}
	r.check()
}

func TestSequenceIsRaisedByAdminsOfTheNodeOnly(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/q", ACL: []ACL{{PermAll &^ PermAdmin, "world", "anyone"}, {PermAdmin, "digest", "a:b"}}})
	r.fails(ErrNoAuth, raise("/q", 5))
	r.fails(ErrNoNode, raise("/no", 5))
	r.fails(ErrBadPath, raise("no", 5))
	r.caller.Identities = []Identity{{Scheme: "digest", ID: "a:b"}}
	r.fails(ErrBadArguments, raise("/q", -1))
	r.fails(ErrBadArguments, raise("/q", MaxSequence+1))
	r.must(raise("/q", 5))
	r.caller.Session = 9
	r.must(Op{Kind: OpCreate, Path: "/e", Node: Ephemeral})
	r.fails(ErrBadArguments, raise("/e", 5))
}

func TestRaisedSequenceIsTakenBackWithItsTransaction(t *testing.T) {
	r := newTester(t)
	r.create("/q")
	before := r.tree.Digest()
	ops := []Op{raise("/q", 100), {Kind: OpCheck, Path: "/no", Version: AnyVersion}}
	if _, err := r.tree.Multi(r.begin(), ops); !errors.Is(err, ErrNoNode) {
		t.Fatal(err)
	}
	if r.tree.Digest() != before {
		t.Error("something is left")
	}
	if got := r.must(sequential("/q/")).Path; got != "/q/0000000000" {
		t.Errorf("next is %s", got)
	}
}
