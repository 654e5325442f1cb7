package znode

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// node returns the node at path for writing, behind the tree's back.
func (t *tester) node(path string) *node {
	t.Helper()
	i := t.tree.find(path)
	if i == 0 {
		t.Fatalf("%s is not there", path)
	}
	return t.tree.nodes.own(i)
}

// TestUnsoundImageIsRefused encodes trees that no tree can be. Checksum and
// format are right; the contents are not.
func TestUnsoundImageIsRefused(t *testing.T) {
	rename := func(path, name string) func(*tester) {
		return func(r *tester) {
			n := r.node(path)
			n.setBlob(name, n.data())
		}
	}
	for _, x := range []struct {
		name, want string
		damage     func(*tester)
	}{
		{"no nodes", "no root", func(r *tester) { r.tree.nodes = slab[node]{} }},
		{"no root", "no root", func(r *tester) { r.tree.nodes.own(rootNumber).flags = 0; r.tree.nodes.n-- }},
		{"root below", "no root", func(r *tester) { r.tree.nodes.own(rootNumber).parent = 2 }},
		{"root with a name", "root is not one", rename("/", "x")},
		{"root with a TTL", "root is not one", func(r *tester) { n := r.node("/"); n.kind, n.life = TTL, 1 }},
		{"no system", "there is no /zookeeper", rename("/zookeeper/quota", "other")},
		{"missing parent", "parent of node", func(r *tester) { r.node("/a/null").parent = 5000 }},
		{"parent in a hole", "parent of node", func(r *tester) { r.node("/a/null").parent = r.hole() }},
		{"second root", "parent of node", func(r *tester) { r.node("/a").parent = 0 }},
		{"own parent", "not below the root", func(r *tester) { r.node("/a").parent = r.tree.find("/a") }},
		{"circle", "not below the root", func(r *tester) { r.node("/a").parent = r.tree.find("/a/c") }},
		{"child of an ephemeral", "ephemeral node has children", func(r *tester) { r.node("/a/null").parent = r.tree.owners[7].chunks[0][0] }},
		{"two of a name", "with the name", rename("/a/null", "mine")},
		{"name with a slash", "U+002F", rename("/a/null", "x/y")},
		{"empty name", "element is empty", rename("/a/null", "")},
		{"bad name", "..", rename("/a/null", "..")},
		{"unknown kind", "node of kind", func(r *tester) { r.node("/a/null").kind = TTL + 1 }},
		{"ephemeral of nobody", "without a session", func(r *tester) { r.node("/a/null").kind = Ephemeral }},
		{"TTL of nothing", "TTL of 0 ms", func(r *tester) { r.node("/a/null").kind = TTL }},
		{"TTL of too much", "TTL of", func(r *tester) { r.node("/a/t").life = 1 << 40 }},
		{"ephemeral that lingers too long", "with the limits", func(r *tester) {
			r.tree.nodes.own(r.tree.owners[7].chunks[0][0]).creates = MaxLinger.Milliseconds() + 1
		}},
		{"ephemeral with a TTL of too much", "with the limits", func(r *tester) {
			r.tree.nodes.own(r.tree.owners[7].chunks[0][0]).creates = 1 << (lingerBits + 40)
		}},
		{"ephemeral with children created", "with the limits", func(r *tester) {
			r.tree.nodes.own(r.tree.owners[7].chunks[0][0]).creates = -1
		}},
		{"creates below zero", "children created", func(r *tester) { r.node("/a").creates = -1 }},
		{"null of something", "null data", func(r *tester) { r.node("/a").flags |= flagNull }},
		{"other count", "nodes instead of", func(r *tester) { r.tree.nodes.n++ }},
		{"other digest", "digest", func(r *tester) { r.node("/a").version++ }},
		{"data changed", "digest", func(r *tester) { r.node("/a/t").setData([]byte("y")) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := sample(t)
			x.damage(r)
			_, err := Decode(bytes.NewReader(encode(t, r.tree)))
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), x.want) {
				t.Errorf("error is %v, want %q in it", err, x.want)
			}
		})
	}
}

// hole is a number between others that no node has.
func (t *tester) hole() uint32 {
	i, _ := t.tree.nodes.free.lowest()
	if i > uint32(t.tree.nodes.n) {
		t.Fatal("the sample has no hole")
	}
	return i
}

// TestUnsoundRecordsAreRefused is about what no encoder writes.
func TestUnsoundRecordsAreRefused(t *testing.T) {
	head := imageMagic + "\x01"
	big := "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
	for name, x := range map[string]struct{ payload, want string }{
		"no magic":            {"something else", "does not begin"},
		"cut head":            {imageMagic[:3], "too early"},
		"huge number":         {head + big, "too large"},
		"number past all":     {head + "\xff\xff\xff\x7f\x00", "too large"},
		"huge parent":         {head + "\x01\x00" + big, "parent"},
		"list before another": {head + "\x01\x00\x00\x05", "ACL list 5"},
		"huge permissions":    {head + "\x01\x00\x00\x00\x01" + big, "permissions"},
		"huge scheme":         {head + "\x01\x00\x00\x00\x01\x1f" + big, "scheme"},
		"endless number":      {head + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "too many bytes"},
		"65th bit":            {head + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00", "too many bytes"},
		"bytes behind":        {head + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00more", "behind the last record"},
	} {
		_, err := Decode(bytes.NewReader(seal([]byte(x.payload))))
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v, want %q in it", name, err, x.want)
		}
	}
	for _, chunk := range []string{"", "\x00", "\x00\x00\x00\x00", "\x01\x00\x01\x00x", "\xff\xff\xff\xff"} {
		if _, err := Decode(strings.NewReader(chunk)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("chunk %q: %v", chunk, err)
		}
	}
}

// TestLengthAloneAllocatesNothing: an image of some bytes may say that a
// gigabyte of data follows.
func TestLengthAloneAllocatesNothing(t *testing.T) {
	payload := imageMagic + "\x01" + "\x01\x00\x00\x00\x00" + strings.Repeat("\x00", 8) + "\x00" + "\xff\xff\xff\xff\x03"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Decode(bytes.NewReader(seal([]byte(payload))))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "too early") {
		t.Fatal(err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 4<<20 {
		t.Errorf("%d bytes allocated for an image of %d", allocated, len(payload))
	}
}

func TestLargeDataGoesThroughAnImage(t *testing.T) {
	r := newTester(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*trusted/16)
	r.must(Op{Kind: OpCreate, Path: "/large", Data: data})
	r.tree = r.restored()
	if r.data("/large") != string(data) {
		t.Error("the data has changed")
	}
}

// TestCheckFindsWhatIsBroken: a check that finds nothing would be a comfort only.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for name, damage := range map[string]func(*tester){
		"data":             func(r *tester) { r.node("/a/t").setData([]byte("y")) },
		"counter":          func(r *tester) { r.node("/a").creates++ },
		"negative counter": func(r *tester) { r.node("/a").creates = -1 },
		"kind":             func(r *tester) { r.node("/a").kind = 9 },
		"null":             func(r *tester) { r.node("/a").flags |= flagNull },
		"dead node":        func(r *tester) { r.node("/a").flags = 0 },
		"parent":           func(r *tester) { r.node("/a/t").parent = rootNumber },
		"name":             func(r *tester) { n := r.node("/a/t"); n.setBlob("..", n.data()) },
		"order":            func(r *tester) { c := r.tree.children(r.node("/a")).chunks[0]; c[0], c[1] = c[1], c[0] },
		"length":           func(r *tester) { r.tree.children(r.node("/a")).n++ },
		"empty list":       func(r *tester) { n := r.node("/a/null"); n.kids = r.tree.kids.alloc() },
		"lost list":        func(r *tester) { r.tree.kids.alloc() },
		"index":            func(r *tester) { n := r.node("/a/t"); r.tree.index.remove(n.parent, "t", r.tree.find("/a/t")) },
		"index too long":   func(r *tester) { r.tree.index.add(rootNumber, "ghost", 2) },
		"counts":           func(r *tester) { r.tree.counts.DataBytes++ },
		"digest":           func(r *tester) { r.tree.digest++ },
		"nodes":            func(r *tester) { r.tree.nodes.n++ },
		"free number":      func(r *tester) { r.tree.nodes.free.take(r.hole()) },
		"used number":      func(r *tester) { r.tree.nodes.free.put(r.tree.find("/a")) },
		"owner lost":       func(r *tester) { delete(r.tree.owners, 7) },
		"owner wrong":      func(r *tester) { r.tree.owners[7].chunks[0][0] = r.tree.find("/a") },
		"owner length":     func(r *tester) { l := r.tree.owners[7]; l.chunks[0] = append(l.chunks[0], l.chunks[0][0]) },
		"references":       func(r *tester) { r.tree.acls.refs[r.node("/a").acl]++ },
		"unused list":      func(r *tester) { r.tree.acls.intern([]ACL{{9, "world", "anyone"}}) },
		"reaper order":     func(r *tester) { c := r.tree.mortals.chunks[0]; c[0], c[1] = c[1], c[0] },
		"reaper missing":   func(r *tester) { r.tree.mortals.remove(place{}) },
		"reaper too many":  func(r *tester) { r.tree.mortals.chunks[0][0] = r.tree.find("/a") },
		"quota count":      func(r *tester) { r.tree.quotas.byTop["/a"].count++ },
		"quota stats":      func(r *tester) { r.tree.quotas.byTop["/a"].stats = 0 },
		"quota limits":     func(r *tester) { r.tree.quotas.byTop["/a"].limited = false },
		"open undo":        func(r *tester) { r.tree.beginUndo() },
	} {
		r := sample(t)
		damage(r)
		if err := r.tree.Check(); err == nil {
			t.Errorf("%s: nothing found", name)
		}
	}
}
