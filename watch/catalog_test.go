package watch

import (
	"fmt"
	"testing"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/zxid"
)

// TestCatalogFindsWhatLookingFinds resumes watches of every kind while the
// history moves on: one history has its catalog from the first watch on, the
// other never gets one.
func TestCatalogFindsWhatLookingFinds(t *testing.T) {
	rng := seed.Rand(t)
	for range 30 {
		kept, bytes := 1+rng.IntN(300), int64(rng.IntN(6000))
		quick, slow := NewHistory(kept, bytes), NewHistory(kept, bytes)
		made := 0
		for z := zxid.ID(1); z < 500; z++ {
			changes := randomTx(rng, z)
			quick.Append(changes)
			slow.Append(changes)
			if rng.IntN(20) != 0 && z%100 < 50 {
				continue // and nobody resumes for a while
			}
			for range rng.IntN(4) {
				k, path, from := Node+Kind(rng.IntN(NumKinds-int(Node))), paths[rng.IntN(len(paths))], z-zxid.ID(rng.IntN(min(kept, int(z))))
				quick.looked, slow.looked = 1<<40, 0
				if got, want := since(quick, from, k, path), since(slow, from, k, path); got != want {
					t.Fatalf("%s %s since %d at %d: %s, want %s", k, path, from, z, got, want)
				}
				if slow.cat != nil {
					t.Fatal("the other history has a catalog, too")
				}
				if quick.cat != nil {
					made++
				}
			}
		}
		if made == 0 {
			t.Fatal("there was no catalog")
		}
	}
}

func TestCatalogIsMadeOnlyWhenItPaysAndGoesAgain(t *testing.T) {
	h := NewHistory(1000, 1<<20)
	z := zxid.ID(0)
	change := func(n int) {
		for range n {
			z++
			h.Append(tx(z, fmt.Sprintf("changed /n%d", z%7)))
		}
	}
	change(1000)
	for range catalogAfter {
		since(h, 0, Node, "/n3")
	}
	if h.cat != nil {
		t.Error("a few watches made a catalog")
	}
	for range 1000 {
		since(h, z-1, Recursive, "/")
	}
	if h.cat != nil {
		t.Error("recursive watches made a catalog, which is of no use to them")
	}
	since(h, 0, Node, "/n3")
	if h.cat == nil {
		t.Fatal("many watches made no catalog")
	}
	for range 10 {
		change(300)
		since(h, z-10, Node, "/n3")
		if n := len(h.cat.entries); n > 2*1000+600 {
			t.Fatalf("it has %d entries for %d changes", n, h.Len())
		}
	}
	change(1001)
	if h.cat != nil {
		t.Error("the catalog stays although nobody resumes any more")
	}
}

// BenchmarkSinceOfManyWatches is a client that comes back with many watches.
func BenchmarkSinceOfManyWatches(b *testing.B) {
	h := NewHistory(100_000, 1<<30)
	for z := range zxid.ID(100_000) {
		h.Append(tx(z+1, fmt.Sprintf("changed /a/long/common/part/of/the/path/%06d", z)))
	}
	i := 0
	for b.Loop() {
		i++
		h.Since(0, Node, fmt.Sprintf("/a/long/common/part/of/the/path/%06d", i%100_000), func(Event) {})
	}
}
