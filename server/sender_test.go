package server

import (
	"testing"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// sinkFunc is what a stream's messages go to.
type sinkFunc func(*coordpb.SessionReply) error

func (f sinkFunc) Send(m *coordpb.SessionReply) error { return f(m) }

// A stream that ends while its sender is about to find nothing to do: the last
// reply and the goodbye were lost, and the client saw a stream that ended without
// a word.
func TestLastReplyAndGoodbyeAreSentHoweverTheStreamEnds(t *testing.T) {
	r := start(t, oneServer(t))
	c := newConn(r.Server, guest{})
	var replies int
	var goodbye *coordpb.Error
	out := sender{c: c, out: sinkFunc(func(m *coordpb.SessionReply) error {
		replies += len(m.GetReplies())
		if g := m.GetGoodbye(); g != nil {
			goodbye = g.GetError()
		}
		if replies == 0 { // this is the progress mark: the outbox was seen to be empty
			c.refuse(1, opGet, r.clock.now(), session.ErrClosed)
			c.end(session.ErrClosed)
		}
		return nil
	})}
	c.out.mark()
	if err := out.run(c.stopped); err != nil {
		t.Fatal(err)
	}
	if replies != 1 {
		t.Errorf("%d replies", replies)
	}
	wantCode(t, goodbye, coordpb.Code_CODE_SESSION_CLOSED)
}

// A stream takes no events any more once it is told to end. What is still sent on
// it must not say that they were among it: the client would resume its watches
// behind them, and never hear of them.
func TestStreamThatEndsClaimsNoEventsThatItHasNotTaken(t *testing.T) {
	r := start(t, oneServer(t))
	for _, marked := range []bool{false, true} {
		c := newConn(r.Server, guest{})
		var claimed uint64
		out := sender{c: c, out: sinkFunc(func(m *coordpb.SessionReply) error {
			claimed = max(claimed, m.GetZxid())
			return nil
		})}
		before := max(r.hub.firedZxid(), 1)
		if marked {
			c.out.mark()
		} else {
			c.out.event(1, before, &event{kind: coordpb.EventType_EVENT_CHANGED, path: "/a"})
		}
		c.end(session.ErrMoved)
		r.hub.fired.Store(uint64(before) + 1) // and its event came too late for the stream
		c.out.event(1, before+1, &event{kind: coordpb.EventType_EVENT_CHANGED, path: "/b"})
		if err := out.run(c.stopped); err != nil {
			t.Fatal(err)
		}
		if claimed > uint64(before) {
			t.Errorf("marked %v: the client hears that it has everything up to %x, and was told nothing behind %x", marked, claimed, uint64(before))
		}
		r.hub.fired.Store(uint64(before))
	}
}
