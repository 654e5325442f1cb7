package znode

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestFreshTreeIsZooKeepers(t *testing.T) {
	tree := New()
	if err := tree.Check(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Stat{
		"/":                 {Cversion: -1, NumChildren: 1},
		"/zookeeper":        {Cversion: -2, NumChildren: 2},
		"/zookeeper/quota":  {},
		"/zookeeper/config": {Version: -1, Aversion: -1},
	} {
		if got, ok := tree.Exists(path); !ok || got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if n, err := tree.CountDescendants("/", nil); n != 3 || err != nil {
		t.Errorf("%d nodes below the root, want 3 (%v)", n, err)
	}
	list, _, err := tree.ACL("/zookeeper/config", nil)
	if want := []ACL{{PermRead, "world", "anyone"}}; err != nil || !slices.Equal(list, want) {
		t.Errorf("ACL of the configuration is %v, want %v (%v)", list, want, err)
	}
}

func TestLeafHasAnEmptyListOfChildren(t *testing.T) {
	r := newTester(t)
	empty := func(when string, tree *Tree) {
		t.Helper()
		names, _, err := tree.Children("/a", nil)
		if err != nil || names == nil || len(names) != 0 {
			t.Errorf("%s: children %#v (%v), want an empty list", when, names, err)
		}
	}
	r.create("/a")
	empty("fresh", r.tree)
	r.create("/a/b")
	r.must(Op{Kind: OpDelete, Path: "/a/b", Version: AnyVersion})
	empty("after its last child", r.tree)
	empty("restored", r.restored())
}

func TestNullAndEmptyDataDiffer(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/null"})
	r.must(Op{Kind: OpCreate, Path: "/empty", Data: []byte{}})
	r.must(Op{Kind: OpCreate, Path: "/set", Data: []byte("x")})
	if r.must(Op{Kind: OpSet, Path: "/set", Version: 0}); r.tx.Changes[0].Data != nil {
		t.Error("a set to null is not seen in the change")
	}
	for name, tree := range map[string]*Tree{"first": r.tree, "restored": r.restored()} {
		for path, null := range map[string]bool{"/null": true, "/empty": false, "/set": true, "/": false} {
			data, st, err := tree.Get(path, nil)
			if err != nil || len(data) != 0 || st.DataLength != 0 || (data == nil) != null {
				t.Errorf("%s: %s is %#v (%v), null: %v", name, path, data, err, null)
			}
		}
	}
	before := r.tree.Digest()
	r.must(Op{Kind: OpSet, Path: "/null", Data: []byte{}, Version: 0})
	after := *r.tree.nodes.at(r.tree.find("/null"))
	null := after
	null.setNull(true)
	if r.tree.Digest() == before || r.tree.statDigest(&after, 1) == r.tree.statDigest(&null, 1) {
		t.Error("the digest does not tell null from empty")
	}
}

func TestTreeKeepsNothingOfTheCallersMemory(t *testing.T) {
	r := newTester(t)
	batch := []byte("payload")
	acl := []ACL{{PermAll, "world", "anyone"}, {PermAll, "digest", "a:b"}}
	r.must(Op{Kind: OpCreate, Path: "/a", Data: batch[:3], ACL: acl})
	r.must(Op{Kind: OpCreate, Path: "/b", Data: batch, ACL: acl})
	r.must(Op{Kind: OpSet, Path: "/b", Data: batch[3:], Version: AnyVersion})
	change := r.tx.Changes[0]
	digest := r.tree.Digest()
	copy(batch, "XXXXXXX")
	acl[1].ID = "x:y"
	if r.data("/a") != "pay" || r.data("/b") != "load" || string(change.Data) != "load" {
		t.Errorf("data is %q %q %q", r.data("/a"), r.data("/b"), change.Data)
	}
	if list, _, _ := r.tree.ACL("/a", &Caller{Trusted: true}); list[1].ID != "a:b" {
		t.Errorf("ACL is %v", list)
	}
	if r.check(); r.tree.Digest() != digest {
		t.Error("digest has changed")
	}
}

func TestReadDataStaysAsItIs(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/a", Data: []byte("old")})
	r.create("/b")
	data, _, _ := r.tree.Get("/a", nil)
	if cap(data) != len(data) {
		t.Error("an append to the data would write into the tree")
	}
	r.must(Op{Kind: OpSet, Path: "/a", Data: []byte("new"), Version: AnyVersion})
	r.must(Op{Kind: OpDelete, Path: "/a", Version: AnyVersion})
	r.must(Op{Kind: OpCreate, Path: "/c", Data: []byte("xxx")})
	if string(data) != "old" {
		t.Errorf("data became %q", data)
	}
}

// TestHugeParent makes lists of many chunks, and every shard of the index grow
// and shrink.
func TestHugeParent(t *testing.T) {
	r := newTester(t)
	rnd := rand.New(rand.NewPCG(3, 4))
	const n = 20_000
	r.create("/p")
	order := rnd.Perm(n)
	want := make([]string, n)
	for _, k := range order {
		want[k] = fmt.Sprintf("child-%07d", k*7)
		r.create("/p/" + want[k])
	}
	r.check()
	names, st, err := r.tree.Children("/p", nil)
	if err != nil || !slices.Equal(names, want) || st.NumChildren != n {
		t.Fatalf("children are wrong (%d, %v)", len(names), err)
	}
	if got := pages(t, r.tree, "/p", 999); !slices.Equal(got, want) {
		t.Fatal("pages do not make the list")
	}
	restored := r.restored()
	if got := pages(t, restored, "/p", 5000); !slices.Equal(got, want) {
		t.Fatal("pages of the restored tree do not make the list")
	}
	for i, k := range rnd.Perm(n) {
		r.must(Op{Kind: OpDelete, Path: "/p/" + want[k], Version: 0})
		if i%5000 == 0 {
			r.check()
		}
	}
	r.check()
	if used := slices.DeleteFunc(slices.Clone(r.tree.nodes.pages), func(p *[pageSize]node) bool { return p == nil }); len(used) > 2 {
		t.Errorf("an empty tree holds %d pages", len(used))
	}
}

func pages(t *testing.T, tree *Tree, path string, limit int) (all []string) {
	t.Helper()
	for after, more := "", true; more; after = all[len(all)-1] {
		names, m, _, err := tree.ChildrenPage(path, after, limit, nil)
		if err != nil || len(names) == 0 || m && len(names) != limit {
			t.Fatalf("page behind %q: %d names, more %v, %v", after, len(names), m, err)
		}
		all, more = append(all, names...), m
	}
	return all
}

func TestPageGoesOnBehindANameThatIsGone(t *testing.T) {
	r := newTester(t)
	for _, p := range []string{"/a", "/b", "/c", "/d"} {
		r.create(p)
	}
	r.must(Op{Kind: OpDelete, Path: "/b", Version: AnyVersion})
	names, more, _, err := r.tree.ChildrenPage("/", "b", 1, nil)
	if err != nil || !slices.Equal(names, []string{"c"}) || !more {
		t.Errorf("behind b: %v, more %v, %v", names, more, err)
	}
	names, more, _, err = r.tree.ChildrenPage("/", "zookeeper", 10, nil)
	if err != nil || names == nil || len(names) != 0 || more {
		t.Errorf("behind the last: %#v, more %v, %v", names, more, err)
	}
}

func TestRestoredTreeNumbersOnLikeTheFirst(t *testing.T) {
	r := newTester(t)
	for k := range 600 {
		r.create(fmt.Sprintf("/n%d", k))
	}
	for k := 0; k < 600; k += 3 {
		r.must(Op{Kind: OpDelete, Path: fmt.Sprintf("/n%d", k), Version: 0})
	}
	other := *r
	other.tree = r.restored()
	for k := range 300 {
		r.create(fmt.Sprintf("/m%d", k))
		other.create(fmt.Sprintf("/m%d", k))
	}
	if !bytes.Equal(encode(t, r.tree), encode(t, other.tree)) {
		t.Error("the images differ")
	}
}
