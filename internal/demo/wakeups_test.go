package demo

import (
	"testing"

	"github.com/coordd/coord/api/coordpb"
)

// What counts is who else has heard of a change: not its maker, and no marks.
func TestWakeupsCountWhoHeardOfAnothersChange(t *testing.T) {
	const maker, next, far = 1, 2, 3
	deleted := func(by uint64) *coordpb.Event {
		return &coordpb.Event{Type: coordpb.EventType_EVENT_DELETED, Path: "/l/a", Zxid: 70, Session: by}
	}
	w := newWakeups()
	w.count(maker, []*coordpb.Event{deleted(maker)})
	if n := w.of(70); n != 0 {
		t.Errorf("its maker alone: %d", n)
	}
	w.count(next, []*coordpb.Event{deleted(maker)})
	if n := w.of(70); n != 1 {
		t.Errorf("one waiter: %d", n)
	}
	w.count(far, []*coordpb.Event{
		deleted(maker),
		{Type: coordpb.EventType_EVENT_ABSENT, Path: "/l/a", Zxid: 70},
		{Type: coordpb.EventType_EVENT_RESYNC, Zxid: 70},
	})
	if n := w.of(70); n != 2 || w.missed() != 1 || w.of(71) != 0 {
		t.Errorf("two waiters and a resync: %d, %d missed, %d of another change", n, w.missed(), w.of(71))
	}
}

// A znode is watched once somebody else than its owner has been told that it is
// there.
func TestWakeupsKnowWhoWatches(t *testing.T) {
	present := []*coordpb.Event{{Type: coordpb.EventType_EVENT_PRESENT, Path: "/l/a", Stat: &coordpb.Stat{EphemeralOwner: 1}}}
	w := newWakeups()
	w.count(1, present)
	if n := w.watchers("/l/a"); n != 0 {
		t.Errorf("its owner alone: %d", n)
	}
	w.count(2, present)
	if n := w.watchers("/l/a"); n != 1 {
		t.Errorf("its owner and another: %d", n)
	}
}
