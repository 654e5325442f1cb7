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

// TestEndOfASessionComesWithWhatItDid: however long the entry takes that ends it,
// the client is not told that its ephemerals are gone before it is told why, and
// the events of others do not overtake them.
func TestEndOfASessionComesWithWhatItDid(t *testing.T) {
	for _, reason := range []session.EndReason{session.Killed, session.TakenOver, session.Expired} {
		s, n := fakeServer(t)
		c, w := connect(t, s)
		id := session.ID(w.GetSessionId())
		c.send(&coordpb.Request{Id: 1, Watch: &coordpb.Watch{Path: "/", Kind: coordpb.Watch_KIND_RECURSIVE}})
		c.reply(1)
		c.send(&coordpb.Request{Seq: 1, Write: &coordpb.Write{Ops: []*coordpb.Op{ephemeral("/mine")}}})
		c.until("event and answer of the creation", func() bool { return len(c.evs) == 1 && len(c.got) == 2 })
		n.beforeDone = func() {
			select {
			case m := <-c.p.out:
				t.Errorf("%s: told before the reason is known: %v", reason, m)
			case <-time.After(20 * time.Millisecond):
			}
		}
		other := mustWrite(t, s, create("/other", ""))
		n.apply(
			&fsm.Command{Kind: fsm.CmdKill, Kill: &fsm.Kill{Session: id, Reason: reason}},
			&fsm.Command{Kind: fsm.CmdWrite, Line: fsm.LineRef{Server: "n1~1", Boot: 1}, Seq: n.seq + 1, Write: other},
		)
		m := <-c.p.out
		if len(m.GetReplies()) != 0 || len(m.GetEvents()) != 2 || m.GetEvents()[0].GetPath() != "/mine" || m.GetEvents()[1].GetPath() != "/other" {
			t.Errorf("%s: the message has %v", reason, m)
		}
		if end := m.GetGoodbye().GetError().GetSessionEnd(); end != coordpb.SessionEnd(reason) {
			t.Errorf("%s: the goodbye says %s", reason, end)
		}
	}
}

// TestStreamIsNeverBehindItsWelcome: neither is a repeat's answer, which shows an
// old transaction, nor a goodbye.
func TestStreamIsNeverBehindItsWelcome(t *testing.T) {
	r := start(t, oneServer(t))
	c := r.open()
	first := c.must(create("/a", ""))
	r.open().must(set("/a", "2"))
	c2 := r.attach(c, 2) // has the second transaction in its welcome, and checks
	c2.seq = 0
	if again := c2.must(create("/a", "")); again.GetZxid() != first.GetZxid() {
		t.Errorf("the repeat is of %x, the first of %x", again.GetZxid(), first.GetZxid())
	}
	c3 := r.attach(c, 3)
	wantCode(t, c2.end(), coordpb.Code_CODE_SESSION_MOVED)
	r.attach(c, 4)
	wantCode(t, c3.end(), coordpb.Code_CODE_SESSION_MOVED)
}
