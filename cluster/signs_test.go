package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/session"
)

// heardClock is a clock that the test moves.
type heardClock struct{ now time.Duration }

func newTestSigns() (*signs, *heardClock) {
	c := &heardClock{}
	return newSigns(func() time.Duration { return c.now }, 100*time.Millisecond), c
}

type told struct{ errs []error }

func (x *told) beat(err error) { x.errs = append(x.errs, err) }

func TestBeatIsAnsweredOnlyFromAReportThatContainedIt(t *testing.T) {
	s, _ := newTestSigns()
	var early, late told
	s.heard(1, 1, early.beat)
	if got := s.take(); len(got) != 1 || got[0].id != 1 {
		t.Fatalf("report %v", got)
	}
	s.heard(1, 1, late.beat) // while the report is under way
	s.acked(nil)
	if len(early.errs) != 1 || early.errs[0] != nil {
		t.Errorf("contained: told %v", early.errs)
	}
	if len(late.errs) != 0 {
		t.Errorf("not contained: told %v", late.errs)
	}
	s.take()
	s.acked(nil)
	if len(late.errs) != 1 {
		t.Error("the next report did not answer it")
	}
}

func TestFailedReportIsMadeAgain(t *testing.T) {
	s, c := newTestSigns()
	var x told
	s.heard(1, 1, x.beat)
	s.take()
	c.now = 50 * time.Millisecond
	s.heard(1, 1, nil)
	s.failed()
	if got := s.take(); len(got) != 1 || got[0].last != 50*time.Millisecond {
		t.Errorf("the second report has %v", got)
	}
	if len(x.errs) != 0 {
		t.Error("answered by a report that failed")
	}
	s.acked(nil)
	if len(x.errs) != 1 || x.errs[0] != nil {
		t.Errorf("told %v", x.errs)
	}
}

func TestDroppedSignIsReportedAgainUnlessItIsKnownWhy(t *testing.T) {
	s, _ := newTestSigns()
	var gone, again told
	s.heard(1, 1, gone.beat)
	s.heard(2, 1, again.beat)
	s.take()
	s.acked(map[session.ID]error{1: session.ErrExpired, 2: nil})
	if len(gone.errs) != 1 || !errors.Is(gone.errs[0], session.ErrExpired) {
		t.Errorf("gone: told %v", gone.errs)
	}
	if got := s.take(); len(got) != 1 || got[0].id != 2 || len(again.errs) != 0 {
		t.Errorf("reported again: %v", got)
	}
}

func TestBeatOfAnOlderConnectionIsToldThatTheSessionMoved(t *testing.T) {
	s, _ := newTestSigns()
	var first, second, ghost told
	s.heard(1, 1, first.beat)
	s.heard(1, 2, second.beat)
	s.heard(1, 1, ghost.beat)
	for _, x := range []told{first, ghost} {
		if len(x.errs) != 1 || !errors.Is(x.errs[0], session.ErrMoved) {
			t.Errorf("told %v", x.errs)
		}
	}
	if got := s.take(); len(got) != 1 || got[0].generation != 2 || len(second.errs) != 0 {
		t.Errorf("report %v", got)
	}
}

func TestBeatsOfASessionAreBounded(t *testing.T) {
	s, _ := newTestSigns()
	all := make([]told, 3*maxBeatsWaiting)
	for i := range all {
		s.heard(1, 1, all[i].beat)
		if i%5 == 0 {
			s.take()
			s.failed()
		}
	}
	s.take()
	s.acked(nil)
	for i := range all {
		want := ErrSuperseded
		if i >= len(all)-maxBeatsWaiting {
			want = nil
		}
		if len(all[i].errs) != 1 || !errors.Is(all[i].errs[0], want) {
			t.Errorf("beat %d was told %v, want %v", i, all[i].errs, want)
		}
	}
}

func TestClosedSignsTellEveryBeat(t *testing.T) {
	s, _ := newTestSigns()
	var sent, fresh told
	s.heard(1, 1, sent.beat)
	s.take()
	s.heard(2, 1, fresh.beat)
	s.close(ErrStopped)
	for _, x := range []told{sent, fresh} {
		if len(x.errs) != 1 || !errors.Is(x.errs[0], ErrStopped) {
			t.Errorf("told %v", x.errs)
		}
	}
}

// A server that did not run has not been listening: the age it tells does not
// count that time.
func TestAgeDoesNotCountAPauseOfTheServer(t *testing.T) {
	s, c := newTestSigns()
	s.heard(1, 1, nil)
	c.now += 10 * time.Second
	now := s.advance()
	if got := s.take()[0]; now-got.last > 200*time.Millisecond {
		t.Errorf("after a pause of 10 s the sign is %v old", now-got.last)
	}
	// In normal running it is exact.
	for range 10 {
		s.advance()
		c.now += 100 * time.Millisecond
	}
	s.heard(2, 1, nil)
	c.now += 30 * time.Millisecond
	for _, r := range s.take() {
		if r.id == 2 && s.time()-r.last != 30*time.Millisecond {
			t.Errorf("a sign of 30 ms ago is %v old", s.time()-r.last)
		}
	}
}
