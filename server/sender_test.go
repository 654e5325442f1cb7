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
