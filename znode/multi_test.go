package znode

import (
	"bytes"
	"errors"
	"testing"
)

func (t *tester) multi(ops ...Op) ([]OpResult, error) {
	for i := range ops {
		if ops[i].ACL == nil {
			ops[i].ACL = OpenACL
		}
	}
	return t.tree.Multi(t.begin(), ops)
}

// TestFailedMultiLeavesNoTrace does everything that a multi can do, and then
// fails: not a byte of the image may differ.
func TestFailedMultiLeavesNoTrace(t *testing.T) {
	r := newTester(t)
	r.caller.Session = 9
	r.create("/q")
	r.must(Op{Kind: OpCreate, Path: "/c", Node: Container})
	r.must(Op{Kind: OpCreate, Path: "/c/last"})
	r.must(Op{Kind: OpCreate, Path: "/e", Node: Ephemeral})
	r.create("/zookeeper/quota/q")
	r.must(Op{Kind: OpCreate, Path: "/zookeeper/quota/q/zookeeper_limits", Data: []byte("count=1,bytes=1")})
	r.must(Op{Kind: OpCreate, Path: "/zookeeper/quota/q/zookeeper_stats"})
	r.must(sequential("/q/n"))
	before, digest, counts := encode(t, r.tree), r.tree.Digest(), r.tree.Counts()
	results, err := r.multi(
		Op{Kind: OpSet, Path: "/q", Data: []byte("other"), Version: AnyVersion},
		sequential("/q/n"),
		sequential("/q/n"),
		Op{Kind: OpDelete, Path: "/q/n0000000000", Version: 0},
		Op{Kind: OpCreate, Path: "/q/n0000000000", Node: TTL, TTL: 1e9},
		Op{Kind: OpSetACL, Path: "/q", Version: 0, ACL: []ACL{{PermAll, "ip", "10.0.0.0/8"}, {PermAll, "world", "anyone"}}},
		Op{Kind: OpSetACL, Path: "/q", Version: 1},
		Op{Kind: OpDelete, Path: "/c/last", Version: 0},
		Op{Kind: OpDelete, Path: "/c", Version: 0},
		Op{Kind: OpDelete, Path: "/e", Version: 0},
		Op{Kind: OpCreate, Path: "/e", Node: Ephemeral},
		Op{Kind: OpSet, Path: "/zookeeper/quota/q/zookeeper_limits", Version: 0, Data: []byte("=;countHardLimit=9")},
		Op{Kind: OpDelete, Path: "/zookeeper/quota/q/zookeeper_limits", Version: 1},
		Op{Kind: OpDelete, Path: "/zookeeper/quota/q/zookeeper_stats", Version: 0},
		Op{Kind: OpCheck, Path: "/q", Version: 7},
		Op{Kind: OpCreate, Path: "/never"},
	)
	var failed *MultiError
	if !errors.As(err, &failed) || failed.Index != 14 || !errors.Is(err, ErrBadVersion) {
		t.Fatalf("error is %v", err)
	}
	for i, res := range results {
		var want error
		if i == 14 {
			want = ErrBadVersion
		} else if i > 14 {
			want = ErrRolledBack
		}
		if !errors.Is(res.Err, want) || res.Stat != (Stat{}) {
			t.Errorf("result %d is %+v", i, res)
		}
	}
	r.check()
	if len(r.tx.Changes) != 0 || r.tree.Digest() != digest || r.tree.Counts() != counts || !bytes.Equal(encode(t, r.tree), before) {
		t.Error("something is left")
	}
	if got := r.must(sequential("/q/n")).Path; got != "/q/n0000000001" {
		t.Errorf("the next number is %s", got)
	}
	if due := r.tree.Expired(1<<40, 10); len(due) != 0 {
		t.Errorf("the container waits for the reaper: %v", due)
	}
	r.must(Op{Kind: OpDelete, Path: "/c/last", Version: 0})
	if due := r.tree.Expired(1<<40, 10); len(due) != 1 {
		t.Errorf("the empty container does not wait for the reaper: %v", due)
	}
	r.check()
}

func TestMultiSeesItsOwnWork(t *testing.T) {
	r := newTester(t)
	results, err := r.multi(
		Op{Kind: OpCreate, Path: "/a"},
		Op{Kind: OpCreate, Path: "/a/b"},
		sequential("/a/s"), sequential("/a/s"),
		Op{Kind: OpCheck, Path: "/a/b", Version: 0},
		Op{Kind: OpDelete, Path: "/a/b", Version: 0},
		Op{Kind: OpCreate, Path: "/a/b", Data: []byte("again")},
	)
	if err != nil {
		t.Fatal(err)
	}
	if results[2].Path != "/a/s0000000001" || results[3].Path != "/a/s0000000002" {
		t.Errorf("names are %s and %s", results[2].Path, results[3].Path)
	}
	if st := r.stat("/a"); st.Cversion != 5 || st.NumChildren != 3 || st.Pzxid != r.tx.Zxid {
		t.Errorf("the parent is %+v", st)
	}
	want := []ChangeType{Created, Created, Created, Created, Deleted, Created}
	if len(r.tx.Changes) != len(want) {
		t.Fatalf("changes: %+v", r.tx.Changes)
	}
	for i, c := range r.tx.Changes {
		if c.Type != want[i] || c.Zxid != r.tx.Zxid || c.Stat.Mtime != r.tx.Time {
			t.Errorf("change %d: %+v", i, c)
		}
	}
	r.check()
}

func TestEmptyMultiIsFine(t *testing.T) {
	r := newTester(t)
	results, err := r.multi()
	if err != nil || results == nil || len(results) != 0 {
		t.Errorf("%#v, %v", results, err)
	}
}

// TestDeniedMultiLeavesNothingBehind is the row of ClickHouse 69627.
func TestDeniedMultiLeavesNothingBehind(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/closed", ACL: []ACL{{PermRead, "world", "anyone"}}})
	before := encode(t, r.tree)
	if _, err := r.multi(Op{Kind: OpCreate, Path: "/new"}, Op{Kind: OpCreate, Path: "/closed/x"}); !errors.Is(err, ErrNoAuth) {
		t.Fatal(err)
	}
	if !bytes.Equal(before, encode(t, r.tree)) {
		t.Error("something is left")
	}
	r.create("/new")
	r.check()
}

// TestPermissionsHoldInEachPartOfAMulti is the row of etcd GHSA-rfx7-8w68-q57q.
func TestPermissionsHoldInEachPartOfAMulti(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/p", ACL: []ACL{{PermCreate, "world", "anyone"}}})
	r.must(Op{Kind: OpCreate, Path: "/p/k", ACL: []ACL{{0, "world", "anyone"}}})
	for _, denied := range []Op{
		{Kind: OpSet, Path: "/p/k", Version: AnyVersion},
		{Kind: OpCheck, Path: "/p/k", Version: AnyVersion},
		{Kind: OpDelete, Path: "/p/k", Version: AnyVersion},
		{Kind: OpCreate, Path: "/p/k/x"},
		{Kind: OpSetACL, Path: "/p/k", Version: AnyVersion},
	} {
		for at := range 3 {
			ops := []Op{{Kind: OpCheck, Path: "/", Version: AnyVersion}, {Kind: OpCheck, Path: "/", Version: AnyVersion}, {Kind: OpCheck, Path: "/", Version: AnyVersion}}
			ops[at] = denied
			var failed *MultiError
			if _, err := r.multi(ops...); !errors.Is(err, ErrNoAuth) || !errors.As(err, &failed) || failed.Index != at {
				t.Errorf("%+v as part %d: %v", denied, at, err)
			}
		}
	}
}

// TestBadPathInAMultiNamesItsPlace is the row of ZOOKEEPER-1388.
func TestBadPathInAMultiNamesItsPlace(t *testing.T) {
	r := newTester(t)
	_, err := r.multi(Op{Kind: OpCreate, Path: "/a"}, Op{Kind: OpCreate, Path: "/b"}, Op{Kind: OpCreate, Path: "/a/.."})
	var failed *MultiError
	if !errors.As(err, &failed) || failed.Index != 2 || !errors.Is(err, ErrBadPath) {
		t.Errorf("error is %v", err)
	}
	if _, there := r.tree.Exists("/a"); there {
		t.Error("the first part was done")
	}
}
