package watch

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// plainTable is the slow and obvious table: a list of watches, each asked about
// each change.
type plainTable struct{ watches []plainWatch }

type plainWatch struct {
	sub  *Subscriber
	id   uint64
	path string
	kind Kind
}

// seen is an event as the two tables are compared by it.
type seen struct {
	sub     string
	id      uint64
	index   int
	parent  bool // of the change's parent, which comes second
	typ     EventType
	path    string
	last    bool
	oneShot bool
}

func (a seen) compare(b seen) int {
	n := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(n(a.parent), n(b.parent)),
		strings.Compare(a.sub, b.sub), cmp.Compare(a.id, b.id), cmp.Compare(a.typ, b.typ))
}

func (p *plainTable) remove(match func(plainWatch) bool) bool {
	n := len(p.watches)
	p.watches = slices.DeleteFunc(p.watches, match)
	return len(p.watches) < n
}

// add keeps to what Add promises, in other words.
func (p *plainTable) add(w plainWatch) bool {
	if !w.sub.Merge {
		if slices.ContainsFunc(p.watches, func(x plainWatch) bool { return x.sub == w.sub && x.id == w.id }) {
			return false
		}
		p.watches = append(p.watches, w)
		return true
	}
	kinds := []Kind{w.kind}
	if w.kind == Persistent {
		kinds = []Kind{Node, Children}
	}
	if w.kind == OneShotExists {
		kinds = []Kind{OneShotData}
	}
	added := false
	for _, k := range kinds {
		w.id, w.kind = 0, k
		if !slices.Contains(p.watches, w) {
			p.watches = append(p.watches, w)
			added = true
		}
	}
	return added
}

func (p *plainTable) fire(changes []znode.Change) []seen {
	var out []seen
	lastOf := map[plainWatch]int{}
	for i := range changes {
		for _, parent := range []bool{false, true} {
			merged := map[*Subscriber]bool{}
			var used []plainWatch
			for _, w := range p.watches {
				for _, typ := range Match(w.kind, w.path, &changes[i]) {
					if (typ == ChildrenChanged) != parent {
						continue
					}
					path := changes[i].Path
					if parent {
						path = w.path
					}
					e := seen{fmt.Sprint(w.sub.Data), w.id, i, parent, typ, path, false, w.kind.OneShot()}
					if w.kind.OneShot() {
						used = append(used, w)
						e.last = true
					}
					if w.sub.Merge {
						e.last, e.oneShot = false, false
						if merged[w.sub] || typ == ACLChanged {
							continue
						}
						merged[w.sub] = true
					} else if !e.oneShot {
						lastOf[w] = len(out)
					}
					out = append(out, e)
				}
			}
			p.remove(func(w plainWatch) bool { return slices.Contains(used, w) })
		}
	}
	for _, at := range lastOf {
		out[at].last = true
	}
	return out
}

var paths = []string{"/", "/a", "/a/b", "/a/b/c", "/a/b/c/d", "/a/bc", "/ab", "/a/b2", "/a/b2/c"}

func randomTx(rng *rand.Rand, z zxid.ID) []znode.Change {
	n := 1
	if rng.IntN(2) == 0 {
		n = 1 + rng.IntN(6)
	}
	out := make([]znode.Change, n)
	for i := range out {
		out[i] = znode.Change{
			Type: znode.ChangeType(rng.IntN(4) + 1), Path: paths[rng.IntN(len(paths))], Zxid: z,
			Data: make([]byte, rng.IntN(50)), Cause: znode.Cause(rng.IntN(3)),
		}
	}
	return out
}

// both is a table and its model.
type both struct {
	t     *testing.T
	rng   *rand.Rand
	table *Table
	plain *plainTable
	subs  []*Subscriber
}

func (b *both) step() {
	s := b.subs[b.rng.IntN(len(b.subs))]
	w := plainWatch{s, uint64(b.rng.IntN(12)), paths[b.rng.IntN(len(paths))], Kind(b.rng.IntN(NumKinds))}
	switch b.rng.IntN(12) {
	case 0:
		b.table.RemoveAll(s)
		b.plain.remove(func(x plainWatch) bool { return x.sub == s })
	case 1:
		if !s.Merge {
			b.same("remove", b.table.Remove(s, w.id), b.plain.remove(func(x plainWatch) bool { return x.sub == s && x.id == w.id }))
		}
	case 2:
		if s.Merge {
			kinds := []Kind{w.kind, Kind(b.rng.IntN(NumKinds))}
			match := func(x plainWatch) bool { return x.sub == s && x.path == w.path && mergedMatch(x.kind, kinds) }
			b.same("has", b.table.Has(s, w.path, kinds...), slices.ContainsFunc(b.plain.watches, match))
			b.same("remove path", b.table.RemovePath(s, w.path, kinds...), b.plain.remove(match))
		}
	default:
		b.same("add", b.table.Add(s, w.id, w.path, w.kind), b.plain.add(w))
	}
}

func mergedMatch(have Kind, asked []Kind) bool {
	for _, k := range asked {
		if have == k || have == OneShotData && k == OneShotExists ||
			k == Persistent && (have == Node || have == Children) {
			return true
		}
	}
	return false
}

func (b *both) same(what string, got, want bool) {
	if got != want {
		b.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (b *both) fire(changes []znode.Change) {
	want := b.plain.fire(changes)
	var got []seen
	b.table.Fire(changes, func(e Event) {
		if e.Change != &changes[e.Index] {
			b.t.Fatal("an event names another change")
		}
		got = append(got, seen{
			fmt.Sprint(e.Sub.Data), e.Watch, int(e.Index), e.Type == ChildrenChanged,
			e.Type, e.Path, e.Last, e.OneShot && !e.Sub.Merge,
		})
	})
	if !slices.IsSortedFunc(got, func(x, y seen) int {
		x.sub, y.sub, x.id, y.id, x.typ, y.typ = "", "", 0, 0, 0, 0
		return x.compare(y)
	}) {
		b.t.Fatalf("events out of order: %+v", got)
	}
	slices.SortFunc(got, seen.compare)
	slices.SortFunc(want, seen.compare)
	if !slices.Equal(got, want) {
		b.t.Fatalf("%+v\ngive  %+v\nwant  %+v", changes, got, want)
	}
}

func (b *both) check() {
	var counts [NumKinds]int
	of := map[*Subscriber]int{}
	for _, w := range b.plain.watches {
		counts[w.kind]++
		of[w.sub]++
	}
	for k, n := range counts {
		if got := b.table.Count(Kind(k)); got != n {
			b.t.Fatalf("%d watches of kind %s, want %d", got, Kind(k), n)
		}
	}
	for _, s := range b.subs {
		if got := b.table.CountOf(s); got != of[s] {
			b.t.Fatalf("%d watches of %v, want %d", got, s.Data, of[s])
		}
	}
	linked := 0
	for l, m := range b.table.lists {
		for path, w := range m {
			if w == nil || w.prev != nil {
				b.t.Fatalf("list %d of %s has a broken head", l, path)
			}
			for ; w != nil; w = w.next {
				linked++
				if w.path != path || w.list != list(l) || w.next != nil && w.next.prev != w {
					b.t.Fatalf("list %d of %s is broken", l, path)
				}
			}
		}
	}
	if want := b.table.Len() + b.table.counts[Persistent]; linked != want {
		b.t.Fatalf("%d watches in the lists, want %d", linked, want)
	}
}

func TestTableIsTheObviousOne(t *testing.T) {
	b := &both{t: t, rng: seed.Rand(t), table: NewTable(), plain: &plainTable{}}
	for i := range 6 {
		b.subs = append(b.subs, &Subscriber{Data: fmt.Sprint("s", i), Merge: i%2 == 0})
	}
	steps := 60_000
	if testing.Short() {
		steps = 15_000
	}
	for i := range steps {
		if b.rng.IntN(4) == 0 {
			b.fire(randomTx(b.rng, zxid.ID(i+1)))
		} else {
			b.step()
		}
		if i%50 == 0 {
			b.check()
		}
	}
	for _, s := range b.subs {
		b.table.RemoveAll(s)
	}
	expectEmpty(t, b.table)
}

// TestResumedWatchSeesWhatTheLiveOneSaw has a live watch of each lasting kind on
// each path from the beginning, and resumes at every zxid: the same events,
// with the same marks, or false; never anything between.
func TestResumedWatchSeesWhatTheLiveOneSaw(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	rng := seed.Rand(t)
	for range rounds {
		resumeRound(t, rng)
	}
}

type live struct {
	z     zxid.ID
	index uint32
	typ   EventType
	path  string
	last  bool
	data  string
	cause znode.Cause
}

func resumeRound(t *testing.T, rng *rand.Rand) {
	h := NewHistory(1+rng.IntN(400), int64(rng.IntN(6000)))
	table := NewTable()
	watches := map[uint64]plainWatch{}
	s := &Subscriber{}
	for k := Node; k < Kind(NumKinds); k++ {
		for i, p := range paths {
			id := uint64(k)*100 + uint64(i)
			watches[id] = plainWatch{s, id, p, k}
			table.Add(s, id, p, k)
		}
	}
	saw := map[uint64][]live{}
	z := zxid.ID(0)
	for range 100 + rng.IntN(200) {
		z += zxid.ID(1 + rng.IntN(3)) // failed ones take a zxid too
		changes := randomTx(rng, z)
		if rng.IntN(10) == 0 {
			changes = nil
		}
		table.Fire(changes, func(e Event) {
			saw[e.Watch] = append(saw[e.Watch], live{e.Change.Zxid, e.Index, e.Type, e.Path, e.Last, string(e.Change.Data), e.Change.Cause})
		})
		h.Append(changes)
	}
	for id, w := range watches {
		for from := zxid.ID(0); from <= z; from += zxid.ID(1 + rng.IntN(5)) {
			compareResumed(t, h, w, from, saw[id])
		}
	}
}

func compareResumed(t *testing.T, h *History, w plainWatch, from zxid.ID, saw []live) {
	t.Helper()
	var got []live
	ok := h.Since(from, w.kind, w.path, func(e Event) {
		got = append(got, live{e.Change.Zxid, e.Index, e.Type, e.Path, e.Last, string(e.Change.Data), e.Change.Cause})
		if e.DataDropped {
			got[len(got)-1].data = "dropped"
		}
	})
	if ok != (from >= h.Floor()) || !ok && got != nil {
		t.Fatalf("since %d with floor %d: %v, %d events", from, h.Floor(), ok, len(got))
	}
	if !ok {
		return
	}
	want := slices.DeleteFunc(slices.Clone(saw), func(l live) bool { return l.z <= from })
	if len(got) != len(want) {
		t.Fatalf("%s %s since %d: %d events, live saw %d", w.kind, w.path, from, len(got), len(want))
	}
	for i := range got {
		if got[i].data == "dropped" {
			want[i].data = "dropped"
		}
		if got[i] != want[i] {
			t.Fatalf("%s %s since %d, event %d: %+v, live saw %+v", w.kind, w.path, from, i, got[i], want[i])
		}
	}
}
