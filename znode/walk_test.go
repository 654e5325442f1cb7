package znode

import (
	"errors"
	"slices"
	"testing"
)

func paths(entries []Entry) (ps []string) {
	for _, e := range entries {
		ps = append(ps, e.Path)
	}
	return ps
}

func walkSample(t *testing.T) (*tester, []string) {
	r := newTester(t)
	want := []string{"/a", "/a/b", "/a/b/c", "/a/b/d", "/a/b-", "/a/c", "/a/c/x"}
	for _, p := range want {
		r.must(Op{Kind: OpCreate, Path: p, Data: []byte(p)})
	}
	r.create("/a2")
	return r, want
}

func TestWalkGoesParentsFirstInPagesOfAnySize(t *testing.T) {
	r, want := walkSample(t)
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after, more := "", true; more; {
			page, m, err := r.tree.Walk("/a", nil, after, limit)
			if err != nil || len(page) == 0 || len(page) > limit {
				t.Fatalf("limit %d, behind %q: %d entries, %v", limit, after, len(page), err)
			}
			for _, e := range page {
				if string(e.Data) != e.Path || e.Denied || e.Stat != r.stat(e.Path) {
					t.Errorf("entry %+v", e)
				}
			}
			got, more = append(got, paths(page)...), m
			after = got[len(got)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}

func TestWalkGoesOnWhereItWas(t *testing.T) {
	r, _ := walkSample(t)
	for _, x := range []struct{ after, first string }{
		{"/a/b/c/gone", "/a/b/d"}, {"/a/b/cc", "/a/b/d"}, {"/a/b/zzz/x/y", "/a/b-"}, {"/a/b", "/a/b/c"}, {"/a/a", "/a/b"}, {"/a/", "/a/b"},
	} {
		page, _, err := r.tree.Walk("/a", nil, x.after, 1)
		if err != nil || len(page) != 1 || page[0].Path != x.first {
			t.Errorf("behind %s: %v, want %s (%v)", x.after, paths(page), x.first, err)
		}
	}
	page, more, err := r.tree.Walk("/a", nil, "/a/zzz", 5)
	if err != nil || len(page) != 0 || more {
		t.Errorf("behind the last: %v, more %v, %v", paths(page), more, err)
	}
	page, more, err = r.tree.Walk("/", nil, "/a2", 1)
	if err != nil || len(page) != 1 || page[0].Path != "/zookeeper" || !more {
		t.Errorf("in the root: %v, more %v, %v", paths(page), more, err)
	}
	if page, _, err := r.tree.Walk("/", nil, "/", 1); err != nil || len(page) != 1 || page[0].Path != "/a" {
		t.Errorf("behind the root: %v, %v", paths(page), err)
	}
	for _, after := range []string{"/a2", "/b", "x", "/"} {
		if _, _, err := r.tree.Walk("/a", nil, after, 5); !errors.Is(err, ErrBadArguments) {
			t.Errorf("behind %q, which is outside: %v", after, err)
		}
	}
	if _, _, err := r.tree.Walk("/no", nil, "", 5); !errors.Is(err, ErrNoNode) {
		t.Errorf("of a missing node: %v", err)
	}
	if page, more, err := r.tree.Walk("/a", nil, "", 0); len(page) != 0 || !more || err != nil {
		t.Errorf("limit 0: %v, more %v, %v", page, more, err)
	}
}

func TestWalkShowsButDoesNotEnterWhatMayNotBeRead(t *testing.T) {
	r, _ := walkSample(t)
	r.must(Op{Kind: OpSetACL, Path: "/a/b", Version: 0, ACL: []ACL{{PermAll, "digest", "a:b"}}})
	want := []string{"/a", "/a/b", "/a/b-", "/a/c", "/a/c/x"}
	page, more, err := r.tree.Walk("/a", nil, "", 100)
	if err != nil || more || !slices.Equal(paths(page), want) {
		t.Fatalf("%v, want %v (%v)", paths(page), want, err)
	}
	if e := page[1]; !e.Denied || e.Data != nil || e.Stat.NumChildren != 2 {
		t.Errorf("entry is %+v", e)
	}
	page, _, _ = r.tree.Walk("/a", nil, "/a/b/c", 1)
	if got := paths(page); !slices.Equal(got, []string{"/a/b-"}) {
		t.Errorf("behind a hidden node: %v", got)
	}
	if page, _, _ = r.tree.Walk("/a", who("digest", "a:b"), "", 100); len(page) != 7 {
		t.Errorf("the owner sees %v", paths(page))
	}
}

func TestDescendantsAreCounted(t *testing.T) {
	r, _ := walkSample(t)
	for path, want := range map[string]int{"/a": 6, "/a/b": 2, "/a/b/c": 0, "/": 11} {
		if got, err := r.tree.CountDescendants(path, nil); err != nil || got != want {
			t.Errorf("%d below %s, want %d (%v)", got, path, want, err)
		}
	}
	if _, err := r.tree.CountDescendants("/no", nil); !errors.Is(err, ErrNoNode) {
		t.Error(err)
	}
}
