package znode

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// The tree of the benchmarks is that of RAFT-NOTES C: a million nodes with 100
// bytes of data, 100,000 of them below one parent, the others below 900.
const benchNodes = 1_000_000

func benchPath(k int) string {
	if k < benchNodes/10 {
		return fmt.Sprintf("/big/node-%010d", k)
	}
	return fmt.Sprintf("/p%03d/node-%010d", k%900, k)
}

func benchTree(b *testing.B) *Tree {
	b.Helper()
	tree := New()
	tx := &Tx{Caller: &Caller{}, Time: 1_700_000_000_000}
	data := bytes.Repeat([]byte("x"), 100)
	create := func(path string) {
		tx.Zxid++
		tx.Time++
		tx.Changes = tx.Changes[:0]
		if _, err := tree.Apply(tx, &Op{Kind: OpCreate, Path: path, Data: data, ACL: OpenACL}); err != nil {
			b.Fatal(err)
		}
	}
	create("/big")
	for k := range 900 {
		create(fmt.Sprintf("/p%03d", k))
	}
	for k := range benchNodes {
		create(benchPath(k))
	}
	return tree
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkMillion builds the tree and reports its memory, then runs the rest
// on it.
func BenchmarkMillion(b *testing.B) {
	before, start := heap(), time.Now()
	tree := benchTree(b)
	built := time.Since(start)
	perNode := float64(heap()-before) / benchNodes
	paths := make([]string, 1<<16)
	for i := range paths {
		paths[i] = benchPath(rand.IntN(benchNodes))
	}
	b.Run("insert", func(b *testing.B) {
		for b.Loop() {
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(built.Nanoseconds())/benchNodes, "ns/insert")
		b.ReportMetric(perNode, "B/node")
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, _, err := tree.Get(paths[i%len(paths)], nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("set", func(b *testing.B) { benchSet(b, tree, paths) })
	b.Run("list100k", func(b *testing.B) {
		for b.Loop() {
			if names, _, err := tree.Children("/big", nil); err != nil || len(names) != benchNodes/10 {
				b.Fatal(len(names), err)
			}
		}
	})
	b.Run("page1000of100k", func(b *testing.B) {
		for b.Loop() {
			if _, _, _, err := tree.ChildrenPage("/big", "node-0000050000", 1000, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			tree.Snapshot()
		}
	})
	b.Run("setAfterSnapshot", func(b *testing.B) {
		tree.Snapshot()
		benchSet(b, tree, paths)
	})
	b.Run("encode", func(b *testing.B) {
		m := tree.Snapshot()
		for b.Loop() {
			if err := m.Encode(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		var image bytes.Buffer
		if err := tree.Snapshot().Encode(&image); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(image.Len()))
		for b.Loop() {
			if _, err := Decode(bytes.NewReader(image.Bytes())); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchSet(b *testing.B, tree *Tree, paths []string) {
	b.ReportAllocs()
	tx := &Tx{Caller: &Caller{}, Time: 1_800_000_000_000}
	op := Op{Kind: OpSet, Data: bytes.Repeat([]byte("y"), 100), Version: AnyVersion}
	for i := 0; b.Loop(); i++ {
		op.Path = paths[i%len(paths)]
		tx.Zxid++
		tx.Changes = tx.Changes[:0]
		if _, err := tree.Apply(tx, &op); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLock is what a lock's queue costs: a sequential ephemeral comes at
// the end of 1000, the first one goes.
func BenchmarkLock(b *testing.B) {
	tree := New()
	tx := &Tx{Caller: &Caller{Session: 1}}
	apply := func(op Op) string {
		tx.Zxid++
		tx.Changes = tx.Changes[:0]
		r, err := tree.Apply(tx, &op)
		if err != nil {
			b.Fatal(err)
		}
		return r.Path
	}
	enter := Op{Kind: OpCreate, Path: "/lock/n-", Sequential: true, Node: Ephemeral, ACL: OpenACL}
	apply(Op{Kind: OpCreate, Path: "/lock", Node: Container, ACL: OpenACL})
	var queue []string
	for range 1000 {
		queue = append(queue, apply(enter))
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		apply(Op{Kind: OpDelete, Path: queue[i%1000], Version: AnyVersion})
		queue[i%1000] = apply(enter)
	}
}
