package watch

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// change writes "created /a/b" as a change; tx gives a list of them one zxid.
func change(s string) znode.Change {
	word, path, _ := strings.Cut(s, " ")
	types := map[string]znode.ChangeType{
		"created": znode.Created, "deleted": znode.Deleted, "changed": znode.DataChanged, "acl-changed": znode.ACLChanged,
	}
	return znode.Change{Type: types[word], Path: path}
}

func tx(z zxid.ID, changes ...string) []znode.Change {
	var out []znode.Change
	for _, s := range changes {
		c := change(s)
		c.Zxid = z
		out = append(out, c)
	}
	return out
}

// got fires one transaction and writes down the events of each subscriber, as
// "watch type path", with ! for the last one and - for a watch that is gone.
func got(t *Table, changes ...string) string {
	var lines []string
	t.Fire(tx(1, changes...), func(e Event) {
		line := fmt.Sprintf("%v:%d %s %s", e.Sub.Data, e.Watch, e.Type, e.Path)
		if e.Last {
			line += "!"
		}
		if e.OneShot {
			line += "-"
		}
		lines = append(lines, line)
	})
	return strings.Join(lines, ", ")
}

func expect(t *testing.T, table *Table, want string, changes ...string) {
	t.Helper()
	if g := got(table, changes...); g != want {
		t.Errorf("%q fires\n  %s\nwant\n  %s", changes, g, want)
	}
}

// The table of ZooKeeper's rules, for each kind on /a/b.
func TestEachKindSeesWhatItShould(t *testing.T) {
	changes := []string{
		"created /a/b", "changed /a/b", "deleted /a/b", "acl-changed /a/b",
		"created /a/b/c", "changed /a/b/c", "deleted /a/b/c", "acl-changed /a/b/c",
		"created /a/b/c/d", "deleted /a/b/c/d", "created /a/bc", "changed /a", "deleted /a", "created /a/b2/c", "changed /",
	}
	want := map[Kind]map[string]string{
		OneShotData:     {"created /a/b": "created", "changed /a/b": "changed", "deleted /a/b": "deleted"},
		OneShotExists:   {"created /a/b": "created", "changed /a/b": "changed", "deleted /a/b": "deleted"},
		OneShotChildren: {"deleted /a/b": "deleted", "created /a/b/c": "children", "deleted /a/b/c": "children"},
		Node:            {"created /a/b": "created", "changed /a/b": "changed", "deleted /a/b": "deleted", "acl-changed /a/b": "acl-changed"},
		Children:        {"deleted /a/b": "deleted", "created /a/b/c": "children", "deleted /a/b/c": "children"},
		Persistent: {
			"created /a/b": "created", "changed /a/b": "changed", "deleted /a/b": "deleted", "acl-changed /a/b": "acl-changed",
			"created /a/b/c": "children", "deleted /a/b/c": "children",
		},
		Recursive: {
			"created /a/b": "created", "changed /a/b": "changed", "deleted /a/b": "deleted", "acl-changed /a/b": "acl-changed",
			"created /a/b/c": "created", "changed /a/b/c": "changed", "deleted /a/b/c": "deleted", "acl-changed /a/b/c": "acl-changed",
			"created /a/b/c/d": "created", "deleted /a/b/c/d": "deleted",
		},
	}
	for k := range Kind(NumKinds) {
		for _, c := range changes {
			table := NewTable()
			table.Add(&Subscriber{Data: "s"}, 1, "/a/b", k)
			line := ""
			if typ := want[k][c]; typ != "" {
				_, path, _ := strings.Cut(c, " ")
				if typ == "children" {
					path = "/a/b"
				}
				line = fmt.Sprintf("s:1 %s %s!", typ, path)
				if k.OneShot() {
					line += "-"
				}
			}
			if g := got(table, c); g != line {
				t.Errorf("%s watch on /a/b, %s: %q, want %q", k, c, g, line)
			}
			ch := change(c)
			matched := ""
			for _, typ := range Match(k, "/a/b", &ch) {
				matched += typ.String()
			}
			if matched != want[k][c] {
				t.Errorf("Match(%s, /a/b, %s) = %q, want %q", k, c, matched, want[k][c])
			}
		}
	}
}

func TestWatchesOnTheRoot(t *testing.T) {
	table := NewTable()
	s := &Subscriber{Data: "s"}
	table.Add(s, 1, "/", Recursive)
	table.Add(s, 2, "/", Children)
	table.Add(s, 3, "/", Node)
	expect(t, table, "s:1 created /a!, s:2 children /!", "created /a")
	expect(t, table, "s:1 created /a/b!", "created /a/b")
	expect(t, table, "s:3 changed /!, s:1 changed /!", "changed /")
}

// ClickHouse 28190: a child watch fired on data changes of a child.
func TestChildWatchDoesNotFireOnDataOfAChild(t *testing.T) {
	table := NewTable()
	table.Add(&Subscriber{Data: "s"}, 1, "/a", OneShotChildren)
	expect(t, table, "", "changed /a/b")
	expect(t, table, "", "changed /a")
	expect(t, table, "s:1 children /a!-", "created /a/x")
}

// ZOOKEEPER-4475: recursive watches got child-list events of descendants,
// when somebody else had a child watch there.
func TestRecursiveWatchNeverGetsChildren(t *testing.T) {
	for _, merge := range []bool{false, true} {
		table := NewTable()
		r := &Subscriber{Data: "r", Merge: merge}
		table.Add(r, 1, "/a", Recursive)
		table.Add(&Subscriber{Data: "c", Merge: merge}, 1, "/a/b", OneShotChildren)
		n := 0
		table.Fire(tx(1, "created /a/b/c", "deleted /a/b/c"), func(e Event) {
			if e.Sub != r {
				return
			}
			if n++; e.Type == ChildrenChanged || e.Path != "/a/b/c" {
				t.Errorf("merge %v: the recursive watch got %s %s", merge, e.Type, e.Path)
			}
		})
		if n != 2 {
			t.Errorf("merge %v: the recursive watch got %d events, want 2", merge, n)
		}
	}
}

func TestNodeComesBeforeItsParent(t *testing.T) {
	table := NewTable()
	s := &Subscriber{Data: "z", Merge: true}
	table.Add(s, 0, "/a", OneShotChildren)
	table.Add(s, 0, "/a/b", OneShotExists)
	expect(t, table, "z:0 created /a/b-, z:0 children /a-", "created /a/b")
}

func TestOneShotFiresOnce(t *testing.T) {
	table := NewTable()
	s := &Subscriber{Data: "s"}
	table.Add(s, 1, "/a", OneShotData)
	expect(t, table, "s:1 changed /a!-", "changed /a", "changed /a", "deleted /a")
	expect(t, table, "", "created /a")
	if table.Len() != 0 || table.CountOf(s) != 0 {
		t.Errorf("%d watches left", table.Len())
	}
}

// A ZooKeeper client with a data and a child watch on a znode gets one event
// when it goes, and both watches are used up.
func TestZooKeeperConnectionGetsOneEventForOneChange(t *testing.T) {
	table := NewTable()
	z := &Subscriber{Data: "z", Merge: true}
	table.Add(z, 0, "/a", OneShotData)
	table.Add(z, 0, "/a", OneShotChildren)
	table.Add(z, 0, "/a", OneShotExists) // the same as data
	if n := table.CountOf(z); n != 2 {
		t.Errorf("%d watches, want 2", n)
	}
	expect(t, table, "z:0 deleted /a-", "deleted /a")
	expect(t, table, "", "created /a", "deleted /a")

	table.Add(z, 0, "/a", Recursive)
	table.Add(z, 0, "/a/b", Recursive)
	table.Add(z, 0, "/a/b/c", Persistent)
	table.Add(z, 0, "/", Recursive)
	expect(t, table, "z:0 created /a/b/c, z:0 created /a/b/c/d, z:0 children /a/b/c", "created /a/b/c", "created /a/b/c/d")
	expect(t, table, "z:0 deleted /a/b/c", "deleted /a/b/c")
	expect(t, table, "", "acl-changed /a/b/c") // ZooKeeper says nothing of that
}

// Two ids of one gRPC client are two watches.
func TestWatchesWithIDsAreNotMerged(t *testing.T) {
	table := NewTable()
	s := &Subscriber{Data: "s"}
	table.Add(s, 1, "/a", Node)
	table.Add(s, 2, "/a", Recursive)
	expect(t, table, "s:1 changed /a!, s:2 changed /a!", "changed /a")
	if table.Add(s, 2, "/b", Node) {
		t.Error("an id was given twice")
	}
	expect(t, table, "", "changed /b")
}

func TestLastEventOfATransactionIsMarked(t *testing.T) {
	table := NewTable()
	s := &Subscriber{Data: "s"}
	table.Add(s, 1, "/a", Recursive)
	table.Add(s, 2, "/a", Persistent)
	table.Add(s, 3, "/a/x", Node)
	table.Add(s, 4, "/a", Children)
	expect(t, table, strings.Join([]string{
		"s:2 changed /a", "s:1 changed /a",
		"s:3 created /a/x", "s:1 created /a/x", "s:4 children /a", "s:2 children /a",
		"s:1 created /a/y", "s:4 children /a!", "s:2 children /a!",
		"s:3 changed /a/x!", "s:1 changed /a/x!",
	}, ", "), "changed /a", "created /a/x", "created /a/y", "changed /a/x")
	// Of a Persistent watch, the two halves share the mark.
	expect(t, table, "s:2 children /a, s:2 deleted /a!",
		onlyOf(table, s, 2, "deleted /a/x", "deleted /a")...)
}

// onlyOf removes all other watches of the subscriber.
func onlyOf(t *Table, s *Subscriber, id uint64, changes ...string) []string {
	for other := range s.byID {
		if other != id {
			t.Remove(s, other)
		}
	}
	return changes
}

func TestHalfOfAPersistentWatchCanBeRemoved(t *testing.T) {
	table := NewTable()
	z := &Subscriber{Data: "z", Merge: true}
	table.Add(z, 0, "/a", Persistent)
	if table.Add(z, 0, "/a", Persistent) {
		t.Error("the same persistent watch was added twice")
	}
	if !table.RemovePath(z, "/a", OneShotData, Node) {
		t.Error("the data half was not there")
	}
	if !table.Has(z, "/a", Persistent) || table.Has(z, "/a", OneShotData, Node) {
		t.Error("the child half should be left, and it alone")
	}
	expect(t, table, "", "changed /a")
	expect(t, table, "z:0 children /a", "created /a/b")
	expect(t, table, "z:0 deleted /a", "deleted /a")
	if !table.RemovePath(z, "/a", Persistent) || table.RemovePath(z, "/a", Persistent) || table.Len() != 0 {
		t.Errorf("%d watches are left", table.Len())
	}
}

// Later versions of ZooKeeper keep both; 3.8 turns the persistent one into the
// one-shot.
func TestOneShotOnAPersistentPathKeepsBoth(t *testing.T) {
	table := NewTable()
	z := &Subscriber{Data: "z", Merge: true}
	table.Add(z, 0, "/a", Persistent)
	table.Add(z, 0, "/a", OneShotData)
	expect(t, table, "z:0 changed /a-", "changed /a")
	expect(t, table, "z:0 changed /a", "changed /a")
}

func TestRemovedWatchIsSilent(t *testing.T) {
	table := NewTable()
	s, other := &Subscriber{Data: "s"}, &Subscriber{Data: "o"}
	table.Add(s, 1, "/a", Persistent)
	table.Add(other, 1, "/a", Persistent)
	if !table.Remove(s, 1) || table.Remove(s, 1) || table.HasID(s, 1) || !table.HasID(other, 1) {
		t.Error("remove took the wrong one, or twice")
	}
	expect(t, table, "o:1 changed /a!", "changed /a")
	if table.Count(Persistent) != 1 || table.Len() != 1 {
		t.Errorf("%d persistent watches of %d, want 1", table.Count(Persistent), table.Len())
	}
}

// ZOOKEEPER-1382: the server kept the watches of dead sessions.
func TestNoGrowthWhenSubscribersComeAndGo(t *testing.T) {
	table := NewTable()
	for i := range 10_000 {
		s := &Subscriber{Merge: i%2 == 0}
		for k := range Kind(NumKinds) {
			table.Add(s, uint64(k), fmt.Sprint("/p", i, "/", k), k)
			table.Add(s, uint64(k)+100, "/shared", k)
		}
		table.RemoveAll(s)
		if table.CountOf(s) != 0 || s.byID != nil || s.byPath != nil {
			t.Fatalf("subscriber %d keeps %d watches", i, table.CountOf(s))
		}
	}
	expectEmpty(t, table)
}

// curator 1293: closing a watch leaked it. Here 10,000 handles of one session.
func TestNoGrowthWhenHandlesComeAndGo(t *testing.T) {
	table := NewTable()
	s := &Subscriber{}
	for i := range uint64(10_000) {
		table.Add(s, i, fmt.Sprint("/p", i%7), Kind(i%uint64(NumKinds)))
		if i >= 100 {
			table.Remove(s, i-100)
		}
	}
	if table.Len() != 100 || table.CountOf(s) != 100 {
		t.Errorf("%d watches, want 100", table.Len())
	}
	table.RemoveAll(s)
	expectEmpty(t, table)
}

func TestNoGrowthWhenOneShotsFire(t *testing.T) {
	table := NewTable()
	s, z := &Subscriber{}, &Subscriber{Merge: true}
	for i := range uint64(10_000) {
		path := fmt.Sprint("/p", i)
		table.Add(s, i, path, Kind(i%3))
		table.Add(z, 0, path, Kind(i%3))
		table.Fire(tx(1, "deleted "+path), func(Event) {})
	}
	expectEmpty(t, table)
}

func expectEmpty(t *testing.T, table *Table) {
	t.Helper()
	for l, m := range table.lists {
		if len(m) != 0 {
			t.Errorf("list %d has %d paths", l, len(m))
		}
	}
	if table.Len() != 0 || table.counts != [NumKinds]int{} {
		t.Errorf("counts are %v", table.counts)
	}
}

// A burst of paths is given back when the last is gone.
func TestMemoryOfABurstIsGivenBack(t *testing.T) {
	table := NewTable()
	s := &Subscriber{}
	for i := range uint64(50_000) {
		table.Add(s, i, fmt.Sprint("/burst/", i), OneShotData)
	}
	table.RemoveAll(s)
	if table.peak[ownList] != 0 {
		t.Error("the map of the burst is kept")
	}
}

func TestOneShotWatchIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(watch{}); size > 64 {
		t.Errorf("a watch has %d bytes, want 64", size)
	}
	const n = 100_000
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprint("/locks/l", i)
	}
	table, s := NewTable(), &Subscriber{}
	before := heap()
	for i, p := range paths {
		table.Add(s, uint64(i), p, OneShotExists)
	}
	if per := (heap() - before) / n; per > 220 {
		t.Errorf("%d bytes for a one-shot watch of its own path, want at most 220", per)
	} else {
		t.Logf("%d bytes for a one-shot watch of its own path", per)
	}
	runtime.KeepAlive(table)
	runtime.KeepAlive(s)
	runtime.KeepAlive(paths)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestWithoutWatchesNothingIsDone(t *testing.T) {
	table := NewTable()
	changes := tx(1, "created /a", "deleted /a")
	if n := testing.AllocsPerRun(100, func() { table.Fire(changes, func(Event) {}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKindsAndTypesHaveNames(t *testing.T) {
	var names []string
	for k := range Kind(NumKinds) {
		names = append(names, k.String())
	}
	for typ := Created; typ <= ACLChanged; typ++ {
		names = append(names, typ.String())
	}
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) != len(names)-1 { // "children" is both
		t.Errorf("names are not distinct: %q", names)
	}
	if Kind(99).String() == "" || EventType(99).String() == "" {
		t.Error("an unknown kind has no text")
	}
}

func BenchmarkFire10kWatchers(b *testing.B) {
	table := NewTable()
	for range 10_000 {
		table.Add(&Subscriber{}, 1, "/a/b", Node)
	}
	changes := tx(1, "changed /a/b")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		table.Fire(changes, func(Event) { n++ })
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/event")
}

func BenchmarkFireOneShot(b *testing.B) {
	table := NewTable()
	for i := range 100_000 {
		table.Add(&Subscriber{}, 1, fmt.Sprint("/locks/l", i), OneShotExists)
	}
	s := &Subscriber{}
	changes := tx(1, "deleted /locks/x")
	b.ReportAllocs()
	for b.Loop() {
		table.Add(s, 1, "/locks/x", OneShotExists)
		table.Fire(changes, func(Event) {})
	}
}

// A write that nobody watches, beside many who watch other things.
func BenchmarkFireNobody(b *testing.B) {
	table := NewTable()
	for i := range 10_000 {
		table.Add(&Subscriber{}, 1, fmt.Sprint("/a/b", i), Recursive)
		table.Add(&Subscriber{}, 1, "/a", Node)
	}
	changes := tx(1, "created /a/c/d/e")
	b.ReportAllocs()
	for b.Loop() {
		table.Fire(changes, func(Event) {})
	}
}

// TestWatchesOfASubscriberGoInSteps, so that whoever holds a lock meanwhile can let
// it go.
func TestWatchesOfASubscriberGoInSteps(t *testing.T) {
	for _, merge := range []bool{false, true} {
		table := NewTable()
		s, other := &Subscriber{Merge: merge}, &Subscriber{}
		for i := range 10 {
			table.Add(s, uint64(i), fmt.Sprint("/", i), OneShotData)
		}
		table.Add(other, 1, "/1", OneShotData)
		for left := 10; left > 0; {
			more := table.RemoveSome(s, 4)
			left = max(left-4, 0)
			if table.CountOf(s) != left || more != (left > 0) || table.Len() != left+1 {
				t.Fatalf("%d are left of %d, more: %v", table.CountOf(s), table.Len(), more)
			}
		}
	}
}
