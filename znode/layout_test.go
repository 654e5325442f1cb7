package znode

import (
	"sync"
	"testing"
	"unsafe"
)

// TestNodeFitsItsAllocationClass guards the memory of a server: Go gives a page
// of nodes, with 8 bytes of its own, 27264 bytes. One field more and it is
// 28672 or 32768.
func TestNodeFitsItsAllocationClass(t *testing.T) {
	if size := unsafe.Sizeof(node{}); size != 104 || size*pageSize+8 > 27264 {
		t.Errorf("a node has %d bytes, a page %d", size, size*pageSize)
	}
}

func TestSetOfAnExistingNodeAllocatesItsBlobOnly(t *testing.T) {
	r := newTester(t)
	r.must(Op{Kind: OpCreate, Path: "/a"})
	r.must(Op{Kind: OpCreate, Path: "/a/b"})
	tx := r.begin()
	op := Op{Kind: OpSet, Path: "/a/b", Data: []byte("data"), Version: AnyVersion}
	if n := testing.AllocsPerRun(100, func() {
		tx.Changes = tx.Changes[:0]
		if _, err := r.tree.Apply(tx, &op); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("a set allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, _, err := r.tree.Get("/a/b", tx.Caller); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("a get allocates %v times", n)
	}
}

// TestReadersShareTheTree: with -race, no read writes anything.
func TestReadersShareTheTree(t *testing.T) {
	r := sample(t)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			c := &Caller{Trusted: true}
			for range 50 {
				for _, p := range []string{"/", "/a", "/a/e0000000002", "/no"} {
					_, _, _ = r.tree.Get(p, c)
					_, _ = r.tree.Exists(p)
					_, _, _ = r.tree.Children(p, c)
					_, _, _ = r.tree.ACL(p, nil)
					_, _ = r.tree.CountDescendants(p, c)
					_, _, _ = r.tree.Walk(p, c, "", 5)
				}
				if len(r.tree.Ephemerals(7, "")) != 1 || len(r.tree.Expired(1<<60, 9)) != 2 || r.tree.Counts().Nodes == 0 || r.tree.Digest() == 0 {
					t.Error("a reader sees something else")
				}
			}
		})
	}
	readers.Wait()
}
