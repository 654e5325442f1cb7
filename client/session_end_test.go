package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

// TestEndOfASessionNamesItsReason: on the stream, and when the client comes back
// after the end.
func TestEndOfASessionNamesItsReason(t *testing.T) {
	for why, want := range map[coordpb.SessionEnd]struct {
		reason Reason
		text   string
	}{
		coordpb.SessionEnd_SESSION_END_UNSPECIFIED: {Silent, "silent for the timeout of 10s"},
		coordpb.SessionEnd_SESSION_END_CLOSED:      {Killed, "ended by another: closed over another connection"},
		coordpb.SessionEnd_SESSION_END_EXPIRED:     {Silent, "silent for the timeout of 10s: the cluster heard nothing from it"},
		coordpb.SessionEnd_SESSION_END_KILLED:      {Killed, "ended by another: killed by an administrator"},
		coordpb.SessionEnd_SESSION_END_TAKEN_OVER:  {Killed, "ended by another: taken over by a newer session"},
		coordpb.SessionEnd_SESSION_END_RESTORED:    {Restore, "unknown to the cluster: the cluster's state was replaced by a backup"},
		coordpb.SessionEnd(99):                     {Silent, "silent for the timeout of 10s"},
	} {
		for _, away := range []bool{false, true} {
			fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
				s := connect(t, c, WithSessionTimeout(10*time.Second)).Session()
				if away {
					c.Server("n1").Stop()
				}
				c.End(uint64(s.ID()), why)
				c.Server("n1").Start()
				select {
				case <-s.Context().Done():
				case <-time.After(5 * time.Second): // the deadline is later
					t.Fatalf("%s, away %v: not told", why, away)
				}
				var se *SessionError
				cause := context.Cause(s.Context())
				if !errors.As(cause, &se) || se.Reason != want.reason || !strings.Contains(se.Error(), want.text) || !errors.Is(cause, ErrSessionExpired) {
					t.Errorf("%s, away %v: %v", why, away, cause)
				}
			})
		}
	}
}

func TestTakenOverSessionIsToldSo(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		old := connect(t, c, WithIdentity("worker")).Session()
		connect(t, c, WithIdentity("worker"))
		<-old.Context().Done()
		var se *SessionError
		if !errors.As(context.Cause(old.Context()), &se) || se.Reason != Killed || !strings.Contains(se.Error(), "taken over") {
			t.Fatalf("cause %v", context.Cause(old.Context()))
		}
	})
}

// TestWriteAfterTheEndIsNotInDoubt: the last words of the connection come while the
// session waits for them, since another server has said that it is over and where.
func TestWriteAfterTheEndIsNotInDoubt(t *testing.T) {
	for _, last := range []bool{true, false} {
		fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
			cl := connect(t, c)
			must[Stat](t)(cl.Set(t.Context(), "/", nil, AnyVersion))
			id := uint64(cl.Session().ID())
			old := c.Server(c.Connected(id))
			old.Mute()
			c.End(id, coordpb.SessionEnd_SESSION_END_KILLED)
			before := c.Counts().Attaches
			go func() {
				for c.Counts().Attaches == before {
					time.Sleep(time.Millisecond)
				}
				if last {
					old.Unmute()
				}
			}()
			_, err := cl.Set(t.Context(), "/", nil, AnyVersion)
			var e *Error
			if !errors.Is(err, ErrSessionExpired) || !errors.As(err, &e) || e.Outcome != NotDone {
				t.Fatalf("last words %t: %v", last, err)
			}
			old.Unmute()
		})
	}
}
