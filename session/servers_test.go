package session

import (
	"fmt"
	"testing"
)

func TestBootStartsTheServersLineAnew(t *testing.T) {
	tab := NewTable()
	if tab.ServerLine("n1~a") != nil || tab.EditServerLine("n1~a") != nil {
		t.Fatal("a server that never started has a line")
	}
	if got := tab.Boot("n1~a", 100); got != Booted {
		t.Fatalf("first boot: %d", got)
	}
	tab.EditServerLine("n1~a").Line.Record(1, answer("opened"), true)
	if got := tab.Boot("n1~a", 100); got != BootRepeated {
		t.Errorf("the same boot again: %d, want repeated", got)
	}
	if next := tab.ServerLine("n1~a").Line.Next(); next != 2 {
		t.Errorf("a repeated boot left next at %d, want 2", next)
	}
	if got := tab.Boot("n1~a", 200); got != Booted {
		t.Errorf("a new boot: %d", got)
	}
	l := tab.ServerLine("n1~a")
	if l.Boot != 200 || l.Line.Next() != 1 {
		t.Errorf("after the new boot: boot %d, next %d", l.Boot, l.Line.Next())
	}
	mustCheck(t, tab)
}

// A copy of an old Boot that commits late must not bring the old process back:
// copies of its commands would be done a second time.
func TestLateCopyOfAnOldBootChangesNothing(t *testing.T) {
	tab := NewTable()
	tab.Boot("n1~a", 1)
	for boot := uint64(2); boot <= 200; boot++ {
		tab.Boot("n1~a", boot)
		tab.EditServerLine("n1~a").Line.Record(1, answer("x"), true)
		for back := uint64(1); back <= min(boot-1, maxPastBoots); back++ {
			if got := tab.Boot("n1~a", boot-back); got != BootStale {
				t.Fatalf("boot %d while %d is current: %d, want stale", boot-back, boot, got)
			}
		}
		if l := tab.ServerLine("n1~a"); l.Boot != boot || l.Line.Next() != 2 {
			t.Fatalf("boot %d, next %d after late copies, want %d, 2", l.Boot, l.Line.Next(), boot)
		}
	}
	mustCheck(t, tab)
}

func TestRemovedServerIsForgotten(t *testing.T) {
	tab := NewTable()
	empty := tab.Digest()
	for i := range 300 {
		tab.Boot(fmt.Sprintf("n%03d", i), 1)
	}
	mustCheck(t, tab)
	tab.EditServerLine("n007").Line.Record(1, nil, false)
	for i := range 300 {
		tab.RemoveServer(fmt.Sprintf("n%03d", i))
		tab.RemoveServer("n000")
	}
	if got := tab.Digest(); got != empty {
		t.Errorf("digest %#x, want that of the empty table %#x", got, empty)
	}
	mustCheck(t, tab)
}
