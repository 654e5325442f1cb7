package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

func TestReasonsOfEndsAreKeptForTheNewest(t *testing.T) {
	s, _ := fakeServer(t)
	for id := range session.ID(maxRecentEnds + 10) {
		s.hub.SessionEnded(id+1, session.GRPC, session.Killed)
	}
	if s.hub.howEnded(10) != 0 || s.hub.howEnded(11) != session.Killed || s.hub.howEnded(maxRecentEnds+10) != session.Killed {
		t.Error("not the newest are kept")
	}
	if n := len(s.hub.ends.reasons); n != maxRecentEnds || len(s.hub.ends.ring) != n {
		t.Errorf("%d ends are kept", n)
	}
	if err := s.hub.withReason(11, session.ErrMoved); !errors.Is(err, session.ErrMoved) || wireError(err).GetSessionEnd() != 0 {
		t.Errorf("a session that has moved: %v", err)
	}
	if e := wireError(s.hub.withReason(5, session.ErrExpired)); e.GetCode() != coordpb.Code_CODE_SESSION_EXPIRED || e.GetSessionEnd() != 0 {
		t.Errorf("a reason that is not known: %v", e)
	}
}

// TestAnswersOfAnEndedSessionSayWhy: to a heartbeat and to a write that were on
// their way.
func TestAnswersOfAnEndedSessionSayWhy(t *testing.T) {
	s, n := fakeServer(t)
	c, w := connect(t, s)
	id := session.ID(w.GetSessionId())
	s.hub.ownMu.Lock()
	s.hub.ends.add(id, session.TakenOver)
	s.hub.ownMu.Unlock()

	n.beatErr = session.ErrExpired
	b := newBeats()
	b.beat(s, &coordpb.Beat{SessionId: uint64(id), Secret: w.GetSecret(), Connection: 1, Number: 1})
	answers, _ := b.take()
	if len(answers) != 1 || answers[0].GetError().GetSessionEnd() != coordpb.SessionEnd_SESSION_END_TAKEN_OVER {
		t.Errorf("heartbeat: %v", answers)
	}

	late := &fsm.Result{
		Line: fsm.LineRef{Session: id, Generation: 1}, Seq: 1, Kind: fsm.CmdWrite, Status: fsm.StatusGone,
		Err: fmt.Errorf("session %s was ended: %w", id, session.ErrExpired),
	}
	for _, stream := range s.hub.streams() {
		stream.(*conn).Applied(late)
	}
	got := c.reply(1).GetError()
	wantCode(t, got, coordpb.Code_CODE_SESSION_EXPIRED)
	if got.GetSessionEnd() != coordpb.SessionEnd_SESSION_END_TAKEN_OVER {
		t.Errorf("write: %v", got)
	}
}

// TestSessionThatASnapshotEndedIsToldWhy: the command that ended it was never
// applied at this server.
func TestSessionThatASnapshotEndedIsToldWhy(t *testing.T) {
	s, _ := fakeServer(t)
	c, w := connect(t, s)
	id := session.ID(w.GetSessionId())
	table := session.NewTable()
	if err := table.Open(&session.Session{ID: id, Timeout: time.Minute}); err != nil {
		t.Fatal(err)
	}
	table.End(id, session.Killed, 1<<40, 1)
	s.hub.reconcile(&fsm.View{Sessions: table})
	c.until("goodbye", func() bool { return c.bye != nil })
	if c.bye.GetSessionEnd() != coordpb.SessionEnd_SESSION_END_KILLED {
		t.Errorf("goodbye %v", c.bye)
	}
}
