package znode

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueueAgreesWithTheTree lets children come and go and compares with a look
// at all of them.
func TestQueueAgreesWithTheTree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	tt := newTester(t)
	tt.must(Op{Kind: OpCreate, Path: "/q"})
	var q Queue
	var names []string
	come := func(name string) {
		tt.must(Op{Kind: OpCreate, Path: "/q/" + name})
		q.Add(name)
		q.Add(name) // is there already
		names = append(names, name)
	}
	leave := func(i int) {
		tt.must(Op{Kind: OpDelete, Path: "/q/" + names[i], Version: AnyVersion})
		q.Remove(names[i])
		q.Remove(names[i])
		names = slices.Delete(names, i, i+1)
	}
	check := func() {
		t.Helper()
		var part Queue
		queuing := 0
		for i, name := range names {
			if _, ok := SequenceOf(name); ok {
				queuing++
			}
			if len(names) > 100 && i%37 != 0 {
				continue
			}
			wantBefore, wantAhead, _, err := tt.tree.Predecessor("/q", name, "", &Caller{})
			before, ahead, ok := q.Before(name)
			if ok != (err == nil) || before != wantBefore || ahead != wantAhead {
				t.Fatalf("before %s: %q, %d ahead, %v; the tree says %q, %d, %v", name, before, ahead, ok, wantBefore, wantAhead, err)
			}
			wantOdd, _, _, err := tt.tree.Predecessor("/q", name, "7", &Caller{})
			part.Fill(q.Names("7"))
			if got := part.Last(name); err == nil && got != wantOdd {
				t.Fatalf("last with a 7 before %s: %q, want %q", name, got, wantOdd)
			}
		}
		if q.Len() != queuing {
			t.Fatalf("%d in the queue, want %d", q.Len(), queuing)
		}
		for _, c := range q.chunks {
			if len(c) == 0 || len(c) > queueChunk {
				t.Fatalf("a chunk of %d", len(c))
			}
		}
	}
	number := 0
	next := func() string {
		number++
		return fmt.Sprintf("%06x-%010d", r.IntN(1<<24), number)
	}
	for range 3000 { // the last comes last
		come(next())
	}
	if want := (3000 + queueChunk - 1) / queueChunk; len(q.chunks) != want {
		t.Errorf("%d chunks for ascending numbers, want %d", len(q.chunks), want)
	}
	check()
	for i := range 4000 {
		switch r.IntN(6) {
		case 0:
			come(fmt.Sprintf("plain-%d", i))
		case 1: // somewhere in between, numbers twice
			come(fmt.Sprintf("%06x-%010d", r.IntN(1<<24), r.IntN(number)))
		case 2:
			come(next())
		default:
			leave(r.IntN(len(names)))
		}
		if i%400 == 0 {
			check()
		}
		if i%1000 == 0 { // another one, filled with what is there
			q = Queue{}
			q.Fill(names)
			check()
		}
	}
	for len(names) > 0 { // the first leaves first, mostly
		leave(r.IntN(min(3, len(names))))
		if len(names)%300 == 0 {
			check()
		}
	}
	if q.Last("a-0000000001") != "" || q.Last("plain") != "" {
		t.Fatal("somebody is in front in an empty queue")
	}
	if q.Len() != 0 || len(q.chunks) != 0 {
		t.Fatalf("an empty queue has %d chunks", len(q.chunks))
	}
	if _, _, ok := q.Before("a-0000000001"); ok {
		t.Fatal("found in an empty queue")
	}
}

// TestThinnedQueueIsSmall: stragglers must not hold a chunk each.
func TestThinnedQueueIsSmall(t *testing.T) {
	var q Queue
	for i := range 100 * queueChunk {
		q.Add(fmt.Sprintf("a-%010d", i))
	}
	for i := range 100 * queueChunk {
		if i%queueChunk != 7 {
			q.Remove(fmt.Sprintf("a-%010d", i))
		}
	}
	if q.Len() != 100 || len(q.chunks) > 10 {
		t.Fatalf("%d names in %d chunks", q.Len(), len(q.chunks))
	}
}

func BenchmarkQueue(b *testing.B) {
	const n = 10_000
	var q Queue
	name := func(i int) string { return fmt.Sprintf("_c_0123456789abcdef-lock-%010d", i) }
	for i := range n {
		q.Add(name(i))
	}
	names := make([]string, b.N+n)
	for i := range names {
		names[i] = name(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		q.Remove(names[i])
		q.Add(names[i+n])
		if _, ahead, ok := q.Before(names[i+n/2]); !ok || ahead != n/2-1 {
			b.Fatal(ahead, ok)
		}
	}
}
