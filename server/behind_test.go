package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// A server that was just started does not know the sessions yet that were opened
// since its snapshot. When it stops, or the client goes, before the log has
// answered, it must not say that such a session is unknown: the client would give
// it up.
func TestServerThatIsBehindSaysOfNoSessionThatItHasEnded(t *testing.T) {
	s, n := fakeServer(t)
	_, w := connect(t, s)
	n.hold()
	attach := func(id uint64) (*coordpb.Welcome, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		p := &pipe{context.Background(), make(chan *coordpb.SessionRequest, 1), make(chan *coordpb.SessionReply, 16)}
		p.in <- &coordpb.SessionRequest{Hello: &coordpb.Hello{
			Mode: coordpb.Hello_MODE_ATTACH, SessionId: id, Secret: nonce(), Connection: 2,
		}}
		o := s.open(ctx, p)
		select {
		case m := <-p.out:
			return m.GetWelcome(), o.err
		default:
			return nil, o.err
		}
	}
	got, err := attach(w.GetSessionId() + 1000)
	if got.GetError().GetCode() == coordpb.Code_CODE_UNKNOWN_SESSION || errors.Is(err, session.ErrUnknown) {
		t.Errorf("a session that this server may not know yet: %v, %v", got, err)
	}
	got, err = attach(w.GetSessionId() - 1)
	if got.GetError().GetCode() != coordpb.Code_CODE_UNKNOWN_SESSION && !errors.Is(err, session.ErrUnknown) {
		t.Errorf("a session that there is not: %v, %v", got, err)
	}
}
