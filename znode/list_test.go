package znode

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// check looks at the invariants of a list whose numbers ascend.
func (l *list) check(t *testing.T, want []uint32) {
	t.Helper()
	got := []uint32{}
	for _, c := range l.chunks {
		if len(c) == 0 || len(c) > chunkSize {
			t.Fatalf("a chunk of %d", len(c))
		}
		got = append(got, c...)
	}
	if !slices.Equal(got, want) || l.n != len(want) {
		t.Fatalf("list has %d numbers (n=%d), want %d", len(got), l.n, len(want))
	}
}

func TestListKeepsItsOrderThroughSplitsAndJoins(t *testing.T) {
	for name, next := range map[string]func(r *rand.Rand, k int) uint32{
		"random":     func(r *rand.Rand, _ int) uint32 { return 1 + r.Uint32N(1_000_000) },
		"ascending":  func(_ *rand.Rand, k int) uint32 { return uint32(k + 1) },
		"descending": func(_ *rand.Rand, k int) uint32 { return uint32(1_000_000 - k) },
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var l list
			want := []uint32{}
			for k := range 6000 {
				i := next(r, k)
				at, ok := slices.BinarySearch(want, i)
				if ok {
					continue
				}
				want = slices.Insert(want, at, i)
				l.insert(numberPlace(&l, i), i)
			}
			l.check(t, want)
			for k, i := range want {
				if l.get(numberPlace(&l, i)) != i {
					t.Fatalf("number %d of the list is not found", k)
				}
			}
			for len(want) > 0 {
				at := r.IntN(len(want))
				p := numberPlace(&l, want[at])
				if l.get(p) != want[at] {
					t.Fatalf("%d is not found", want[at])
				}
				l.remove(p)
				want = slices.Delete(want, at, at+1)
				if len(want)%500 == 0 {
					l.check(t, want)
				}
			}
			if len(l.chunks) != 0 {
				t.Fatalf("an empty list has %d chunks", len(l.chunks))
			}
		})
	}
}

func TestAscendingListWastesNoSpace(t *testing.T) {
	var l list
	for i := range uint32(100 * chunkSize) {
		l.insert(numberPlace(&l, i+1), i+1)
	}
	if len(l.chunks) != 100 {
		t.Errorf("%d chunks for 100 chunks' worth of ascending numbers", len(l.chunks))
	}
}

func TestSearchFindsThePlaceBetween(t *testing.T) {
	var l list
	numbers := make([]uint32, 3*chunkSize)
	for i := range numbers {
		numbers[i] = uint32(2*i + 2)
	}
	l.fill(numbers)
	for want := range uint32(6*chunkSize + 4) {
		got := l.get(l.search(func(k uint32) bool { return k < want }))
		expect := (want + 1) / 2 * 2
		if expect == 0 {
			expect = 2
		}
		if expect > 6*chunkSize {
			expect = 0 // the end
		}
		if got != expect {
			t.Fatalf("search for %d ends at %d, want %d", want, got, expect)
		}
	}
}
