package znode

import (
	"errors"
	"testing"
	"time"
)

func (t *tester) due(now int64) (paths []string) {
	for _, x := range t.tree.Expired(now, 100) {
		paths = append(paths, x.Path)
	}
	return paths
}

// wantDue says that the path is due from time at on, and not before.
func (t *tester) wantDue(path string, at int64) {
	t.Helper()
	t.check()
	for _, tree := range []*Tree{t.tree, t.restored()} {
		if got := tree.Expired(at-1, 100); len(got) != 0 {
			t.Errorf("%v is due a millisecond too early", got)
		}
		if got := tree.Expired(at, 100); len(got) != 1 || got[0].Path != path {
			t.Errorf("due are %v, want %s", got, path)
		}
	}
}

func (t *tester) wantNoneDue() {
	t.Helper()
	t.check()
	if got := t.due(1 << 60); len(got) != 0 {
		t.Errorf("%v are due", got)
	}
}

func TestContainerGoesWhenItsLastChildHasGone(t *testing.T) {
	r := newTester(t)
	made := r.must(Op{Kind: OpCreate, Path: "/c", Node: Container}).Stat
	r.wantDue("/c", made.Mtime+ContainerGrace.Milliseconds()) // never used
	r.create("/c/1")
	r.create("/c/2")
	r.wantNoneDue()
	r.must(Op{Kind: OpDelete, Path: "/c/1", Version: 0})
	r.wantNoneDue()
	r.must(Op{Kind: OpDelete, Path: "/c/2", Version: 0})
	r.wantDue("/c", made.Mtime)
}

func TestTTLCountsFromTheLastSetAndWaitsForChildren(t *testing.T) {
	r := newTester(t)
	made := r.must(Op{Kind: OpCreate, Path: "/t", Node: TTL, TTL: time.Minute}).Stat
	if made.TTL != time.Minute || made.EphemeralOwner != 0 {
		t.Errorf("stat is %+v", made)
	}
	r.wantDue("/t", made.Mtime+60_000)
	set := r.must(Op{Kind: OpSet, Path: "/t", Version: AnyVersion}).Stat
	r.wantDue("/t", set.Mtime+60_000)
	r.must(Op{Kind: OpSetACL, Path: "/t", Version: AnyVersion})
	r.wantDue("/t", set.Mtime+60_000)
	r.create("/t/child")
	r.wantNoneDue()
	r.must(Op{Kind: OpDelete, Path: "/t/child", Version: 0})
	r.wantDue("/t", set.Mtime+60_000)
}

func TestLongestDueComeFirst(t *testing.T) {
	r := newTester(t)
	for _, x := range []struct {
		path string
		ttl  time.Duration
	}{{"/slow", time.Hour}, {"/fast", time.Second}, {"/mid", time.Minute}} {
		r.must(Op{Kind: OpCreate, Path: x.path, Node: TTL, TTL: x.ttl})
	}
	for limit, want := range []int{0, 1, 2, 3, 3} {
		got := r.tree.Expired(1<<60, limit)
		if len(got) != want {
			t.Errorf("%d nodes for a limit of %d", len(got), limit)
		}
		for i, path := range []string{"/fast", "/mid", "/slow"}[:want] {
			if got[i].Path != path {
				t.Errorf("place %d is %s, want %s", i, got[i].Path, path)
			}
		}
	}
}

func TestReapSparesWhatWasTouched(t *testing.T) {
	for name, touch := range map[string]func(*tester) error{
		"set": func(r *tester) error {
			r.must(Op{Kind: OpSet, Path: "/p/c", Version: AnyVersion})
			return ErrBadVersion
		},
		"child came and went": func(r *tester) error {
			r.create("/p/c/x")
			r.must(Op{Kind: OpDelete, Path: "/p/c/x", Version: 0})
			return ErrBadVersion
		},
		"child came": func(r *tester) error { r.create("/p/c/x"); return ErrBadVersion },
		"deleted":    func(r *tester) error { r.must(Op{Kind: OpDelete, Path: "/p/c", Version: 0}); return ErrNoNode },
		"made anew": func(r *tester) error {
			r.must(Op{Kind: OpDelete, Path: "/p/c", Version: 0})
			r.must(Op{Kind: OpCreate, Path: "/p/c", Node: Container})
			return ErrBadVersion
		},
		"became persistent": func(r *tester) error {
			r.must(Op{Kind: OpDelete, Path: "/p/c", Version: 0})
			r.create("/p/c")
			return ErrBadArguments
		},
		"left alone": func(*tester) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newTester(t)
			r.create("/p")
			r.must(Op{Kind: OpCreate, Path: "/p/c", Node: Container})
			found := r.tree.Expired(1<<60, 10)
			want := touch(r)
			digest := r.tree.Digest()
			tx := r.begin()
			tx.Cause = ByReaper
			err := r.tree.Reap(tx, found[0])
			if !errors.Is(err, want) {
				t.Fatalf("%v, want %v", err, want)
			}
			r.check()
			if want != nil {
				if r.tree.Digest() != digest || len(tx.Changes) != 0 {
					t.Error("a refused reap left something")
				}
				return
			}
			if c := tx.Changes[0]; c.Type != Deleted || c.Cause != ByReaper || c.Path != "/p/c" {
				t.Errorf("change %+v", c)
			}
			if st := r.stat("/p"); st.NumChildren != 0 || st.Cversion != 2 || st.Pzxid != tx.Zxid {
				t.Errorf("the parent is %+v", st)
			}
		})
	}
}

func TestReapWithChildrenIsRefusedByItself(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/c", Node: Container})
	r.create("/c/x")
	st := r.stat("/c")
	err := r.tree.Reap(r.begin(), Reap{Path: "/c", Mzxid: st.Mzxid, Pzxid: st.Pzxid})
	if !errors.Is(err, ErrNotEmpty) {
		t.Errorf("%v, want ErrNotEmpty", err)
	}
}
