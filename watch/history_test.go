package watch

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// since resumes and writes down what came, or "resync".
func since(h *History, z zxid.ID, k Kind, path string) string {
	var lines []string
	ok := h.Since(z, k, path, func(e Event) {
		line := fmt.Sprintf("%d.%d %s %s", e.Change.Zxid, e.Index, e.Type, e.Path)
		if e.Last {
			line += "!"
		}
		lines = append(lines, line)
	})
	if !ok {
		if lines != nil {
			return "resync after events"
		}
		return "resync"
	}
	return strings.Join(lines, ", ")
}

func TestResumedWatchSeesEveryChangeAfterItsZxid(t *testing.T) {
	h := NewHistory(100, 1<<20)
	h.Append(tx(1, "created /a"))
	h.Append(tx(2, "created /a/x", "created /a/y", "changed /a"))
	h.Append(nil) // a transaction that changed nothing
	h.Append(tx(5, "deleted /a/x"))
	tests := []struct {
		z    zxid.ID
		k    Kind
		path string
		want string
	}{
		{0, Recursive, "/a", "1.0 created /a!, 2.0 created /a/x, 2.1 created /a/y, 2.2 changed /a!, 5.0 deleted /a/x!"},
		{1, Recursive, "/a", "2.0 created /a/x, 2.1 created /a/y, 2.2 changed /a!, 5.0 deleted /a/x!"},
		{2, Recursive, "/a", "5.0 deleted /a/x!"},
		{4, Recursive, "/a", "5.0 deleted /a/x!"},
		{5, Recursive, "/a", ""},
		{1, Children, "/a", "2.0 children /a, 2.1 children /a!, 5.0 children /a!"},
		{1, Node, "/a", "2.2 changed /a!"},
		{1, Persistent, "/a/x", "2.0 created /a/x!, 5.0 deleted /a/x!"},
		{0, Node, "/other", ""},
	}
	for _, tt := range tests {
		if g := since(h, tt.z, tt.k, tt.path); g != tt.want {
			t.Errorf("%s %s since %d:\n  %s\nwant\n  %s", tt.k, tt.path, tt.z, g, tt.want)
		}
	}
	if h.Floor() != 0 || h.Last() != 5 {
		t.Errorf("covers (%d, %d], want (0, 5]", h.Floor(), h.Last())
	}
}

// etcd 18089: a delete was lost when the history was trimmed exactly at it.
// Whatever is trimmed, the delete is seen or the client is told.
func TestDeleteExactlyAtTheTrimIsSeenOrHistoryIsGone(t *testing.T) {
	for bound := 1; bound <= 6; bound++ {
		h := NewHistory(bound, 1<<20)
		h.Append(tx(10, "created /a"))
		h.Append(tx(11, "deleted /a"))
		for z := zxid.ID(12); z <= 16; z++ {
			for from := zxid.ID(9); from <= 11; from++ {
				got := since(h, from, Node, "/a")
				want := "resync"
				if from >= h.Floor() {
					want = map[zxid.ID]string{9: "10.0 created /a!, 11.0 deleted /a!", 10: "11.0 deleted /a!", 11: ""}[from]
				}
				if got != want {
					t.Errorf("bound %d, floor %d, since %d: %q, want %q", bound, h.Floor(), from, got, want)
				}
			}
			h.Append(tx(z, "changed /b"))
		}
		if want := zxid.ID(16 - min(bound, 6)); bound < 6 && h.Floor() != want {
			t.Errorf("bound %d: floor %d, want %d, the last one dropped", bound, h.Floor(), want)
		}
	}
}

// A session's end deletes many znodes in one transaction: it is there as a
// whole or not at all (F14).
func TestTransactionsAreDroppedWhole(t *testing.T) {
	h := NewHistory(1000, 1<<20)
	var many []string
	for i := range 600 {
		many = append(many, fmt.Sprint("deleted /a/", i))
	}
	h.Append(tx(1, many...))
	h.Append(tx(2, many[:400]...))
	if h.Len() != 1000 || h.Floor() != 0 {
		t.Fatalf("%d changes above %d, want 1000 above 0", h.Len(), h.Floor())
	}
	h.Append(tx(3, "created /b"))
	if h.Len() != 401 || h.Floor() != 1 {
		t.Errorf("%d changes above %d, want 401 above 1", h.Len(), h.Floor())
	}
	if got := since(h, 0, Recursive, "/a"); got != "resync" {
		t.Errorf("the dropped transaction gives %.60q", got)
	}
	if got := since(h, 1, Recursive, "/a"); strings.Count(got, ",") != 399 || strings.Count(got, "!") != 1 {
		t.Errorf("the kept one gives %.60q", got)
	}
}

// One transaction larger than the whole history is not kept in part.
func TestTransactionLargerThanTheHistoryRaisesTheFloor(t *testing.T) {
	h := NewHistory(3, 1<<20)
	h.Append(tx(1, "created /a"))
	h.Append(tx(2, "created /a/1", "created /a/2", "created /a/3", "created /a/4"))
	if h.Len() != 0 || h.Floor() != 2 || h.Last() != 2 || h.Bytes() != 0 {
		t.Errorf("%d changes, (%d, %d], %d bytes, want none in (2, 2]", h.Len(), h.Floor(), h.Last(), h.Bytes())
	}
	if got := since(h, 1, Recursive, "/a"); got != "resync" {
		t.Errorf("since 1: %q", got)
	}
	h.Append(tx(3, "created /b"))
	if got := since(h, 2, Recursive, "/"); got != "3.0 created /b!" {
		t.Errorf("since 2: %q", got)
	}
}

func TestDataGoesBeforeCauses(t *testing.T) {
	h := NewHistory(1000, 10_000)
	for z := zxid.ID(1); z <= 100; z++ {
		c := tx(z, "changed /a")
		c[0].Data = make([]byte, 1000)
		c[0].Session = 7
		c[0].Cause = znode.BySessionExpiry
		h.Append(c)
	}
	if h.Len() != 100 || h.Floor() != 0 || h.Bytes() > 10_000 {
		t.Fatalf("%d changes above %d, %d bytes; want 100 above 0 in 10,000 bytes", h.Len(), h.Floor(), h.Bytes())
	}
	z, kept := zxid.ID(0), 0
	h.Since(0, Node, "/a", func(e Event) {
		z++
		if e.Change.Zxid != z || e.Change.Session != 7 || e.Change.Cause != znode.BySessionExpiry {
			t.Errorf("change %d: %+v", z, e.Change)
		}
		if e.DataDropped == (e.Change.Data != nil) || !e.DataDropped && len(e.Change.Data) != 1000 {
			t.Errorf("change %d: %d bytes, dropped %v", z, len(e.Change.Data), e.DataDropped)
		}
		if !e.DataDropped {
			kept++
		} else if kept > 0 {
			t.Errorf("change %d lost its data before an older one", z)
		}
	})
	if kept < 8 || kept > 10 {
		t.Errorf("%d changes have data, want those that fit", kept)
	}
	// Nil and empty data are not "dropped".
	c := tx(101, "changed /a", "changed /a")
	c[1].Data = []byte{}
	h.Append(c)
	h.Since(100, Node, "/a", func(e Event) {
		if e.DataDropped || (e.Change.Data == nil) != (e.Index == 0) {
			t.Errorf("index %d: data %v, dropped %v", e.Index, e.Change.Data, e.DataDropped)
		}
	})
}

func TestPathsCountAgainstTheBytesToo(t *testing.T) {
	h := NewHistory(1_000_000, 100_000)
	path := "created /" + strings.Repeat("x", 4000)
	for z := zxid.ID(1); z <= 200; z++ {
		h.Append(tx(z, path))
	}
	if h.Bytes() > 100_000 || h.Len() != 24 || h.Floor() != 176 {
		t.Errorf("%d changes above %d, %d bytes", h.Len(), h.Floor(), h.Bytes())
	}
	h.Append(tx(201, "created /"+strings.Repeat("y", 200_000)))
	if h.Len() != 0 || h.Floor() != 201 || h.Bytes() != 0 {
		t.Errorf("a path larger than the history: %d changes above %d, %d bytes", h.Len(), h.Floor(), h.Bytes())
	}
}

// The two bounds meet: what the count has dropped must not confuse the bytes.
func TestBytesAreCountedFromTheOldestKept(t *testing.T) {
	h := NewHistory(100, 20_000)
	for z := zxid.ID(1); z <= 2000; z++ {
		h.Append(tx(z, "changed /a"))
	}
	for z := zxid.ID(2001); z <= 2100; z++ {
		c := tx(z, "changed /a")
		c[0].Data = make([]byte, 1000)
		h.Append(c)
	}
	if h.Len() != 100 || h.Floor() != 2000 || h.Bytes() > 20_000 || h.Bytes() < 19_000 {
		t.Errorf("%d changes above %d, %d bytes", h.Len(), h.Floor(), h.Bytes())
	}
}

// What is dropped is not held: its path and data are free.
func TestDroppedChangesAreNotHeld(t *testing.T) {
	h := NewHistory(10, 1<<20)
	for z := zxid.ID(1); z <= 600; z++ {
		c := tx(z, "changed /a")
		c[0].Data = make([]byte, 10)
		h.Append(c)
		held := 0
		for _, b := range append([]*block{h.spare}, h.blocks...) {
			for i := 0; b != nil && i < blockSize; i++ {
				if b[i].change.Path != "" || b[i].change.Data != nil {
					held++
				}
			}
		}
		if held != h.Len() {
			t.Fatalf("after %d: %d changes are held, %d are kept", z, held, h.Len())
		}
	}
}

// When the state is replaced, nobody may resume from before.
func TestResetForgetsEverything(t *testing.T) {
	h := NewHistory(100, 1<<20)
	h.Append(tx(1, "created /a"))
	h.Reset(50)
	if got := since(h, 1, Node, "/a"); got != "resync" {
		t.Errorf("since 1 after a reset to 50: %q", got)
	}
	if got := since(h, 50, Node, "/a"); got != "" {
		t.Errorf("since 50: %q", got)
	}
	h.Append(tx(51, "changed /a"))
	if got := since(h, 50, Node, "/a"); got != "51.0 changed /a!" {
		t.Errorf("since 50: %q", got)
	}
}

func TestAppendOfAnOldTransactionPanics(t *testing.T) {
	for name, changes := range map[string][]znode.Change{
		"older":    tx(4, "created /a"),
		"the same": tx(5, "created /a"),
		"mixed":    append(tx(6, "created /a"), tx(7, "created /b")...),
	} {
		h := NewHistory(100, 1<<20)
		h.Append(tx(5, "created /x"))
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: was taken", name)
				}
			}()
			h.Append(changes)
		}()
	}
}

func TestHistoryDoesNotKeepTheCallersSlice(t *testing.T) {
	h := NewHistory(100, 1<<20)
	changes := tx(1, "created /a")
	h.Append(changes)
	changes[0] = change("deleted /b")
	if got := since(h, 0, Recursive, "/"); got != "1.0 created /a!" {
		t.Errorf("after the slice was reused: %q", got)
	}
}

// The history neither grows with its age nor keeps what it has dropped.
func TestHistoryDoesNotGrowWithAge(t *testing.T) {
	h := NewHistory(1000, 1<<20)
	for z := zxid.ID(1); z <= 50_000; z++ {
		h.Append(tx(z, "changed /a", "changed /b", "changed /c"))
	}
	if h.Len() != 999 || len(h.blocks) > 1000/blockSize+2 || cap(h.blocks) > 64 {
		t.Errorf("%d changes in %d blocks, room for %d", h.Len(), len(h.blocks), cap(h.blocks))
	}
	if size := unsafe.Sizeof(past{}); size > 200 {
		t.Errorf("a change takes %d bytes, the comment says 190", size)
	}
	changes := tx(0, "changed /a", "changed /b", "changed /c")
	z := zxid.ID(60_000)
	if n := testing.AllocsPerRun(10_000, func() {
		z++
		for i := range changes {
			changes[i].Zxid = z
		}
		h.Append(changes)
	}); n > 0.5 {
		t.Errorf("%v allocations to append a transaction", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	h := NewHistory(100_000, 64<<20)
	changes := tx(1, "changed /a/b")
	changes[0].Data = make([]byte, 100)
	b.ReportAllocs()
	for z := zxid.ID(1); b.Loop(); z++ {
		changes[0].Zxid = z
		h.Append(changes)
	}
}

func BenchmarkSince100kChanges(b *testing.B) {
	h := NewHistory(100_000, 64<<20)
	for z := zxid.ID(1); z <= 100_000; z++ {
		h.Append(tx(z, fmt.Sprint("changed /a/b", z%1000)))
	}
	n := 0
	for b.Loop() {
		h.Since(0, Recursive, "/a/b77", func(Event) { n++ })
	}
}
