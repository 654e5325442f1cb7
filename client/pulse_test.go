package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client/fakecoord"
)

// more opens n further sessions of a client.
func more(t *testing.T, cl *Client, n int, opts ...Option) []*Session {
	t.Helper()
	var out []*Session
	for range n {
		out = append(out, must[*Session](t)(cl.NewSession(t.Context(), opts...)))
	}
	return out
}

// alive fails unless each session is connected, and was heard of of late.
func alive(t *testing.T, c *fakecoord.Cluster, sessions ...*Session) {
	t.Helper()
	for _, s := range sessions {
		if left := s.DeadlineAt() - s.Now(); s.State() != Connected || left < s.Timeout()/2 {
			t.Fatalf("session %s at %s: %s, %s left of %s", s.ID(), s.Server(), s.State(), left, s.Timeout())
		}
	}
	if n := c.ExpireSilent(); n != 0 {
		t.Fatalf("%d sessions expired", n)
	}
}

// TestSessionsOfOneClientShareTheirHeartbeatConnection: each keeps its own
// rhythm, whatever the other's timeout.
func TestSessionsOfOneClientShareTheirHeartbeatConnection(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c, WithSessionTimeout(12*time.Second))
		sessions := append(more(t, cl, 9), cl.Session())
		slow := more(t, cl, 1, WithSessionTimeout(10*time.Minute))
		time.Sleep(time.Second)
		before := c.Counts()
		time.Sleep(time.Minute)
		n := c.Counts()
		if beats := n.Beats - before.Beats; beats < 250 || beats > 350 {
			t.Fatalf("%d heartbeats of ten sessions in a minute, want about 300", beats)
		}
		if n.BeatStreams != 1 || c.Server("n1").BeatStreams() != 1 {
			t.Fatalf("%d heartbeat streams", n.BeatStreams)
		}
		if n.BeatMessages != n.Beats {
			t.Fatal("a server that does not say that it takes several heartbeats at once got them")
		}
		alive(t, c, append(sessions, slow...)...)
		for _, s := range sessions[1:] {
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		alive(t, c, sessions[0])
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if c.Server("n1").BeatStreams() != 0 {
			t.Fatal("the heartbeat connection outlives the client")
		}
	})
}

// TestHeartbeatsTravelTogether: what is due at about the same time goes in one
// message, and never more than the server takes.
func TestHeartbeatsTravelTogether(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.SetLimits(&coordpb.Limits{BeatsPerMessage: 30})
		cl := connect(t, c, WithSessionTimeout(12*time.Second))
		sessions := more(t, cl, 200)
		time.Sleep(10 * time.Second)
		before := c.Counts()
		time.Sleep(time.Minute)
		n := c.Counts()
		beats, messages := n.Beats-before.Beats, n.BeatMessages-before.BeatMessages
		if beats < 5000 || beats > 8000 || messages > beats/8 {
			t.Fatalf("%d heartbeats in %d messages", beats, messages)
		}
		alive(t, c, sessions...)
		// All are due when a connection is new.
		before = c.Counts()
		c.Server("n1").CutBeats()
		time.Sleep(100 * time.Millisecond)
		n = c.Counts()
		if beats, messages := n.Beats-before.Beats, n.BeatMessages-before.BeatMessages; beats < 201 || messages > 12 {
			t.Fatalf("%d heartbeats in %d messages right after a new connection", beats, messages)
		}
	})
}

// TestBrokenHeartbeatConnectionIsRenewed: no session notices.
func TestBrokenHeartbeatConnectionIsRenewed(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		sessions := append(more(t, cl, 5), cl.Session())
		for range 5 {
			time.Sleep(5 * time.Second)
			c.Server("n1").CutBeats()
		}
		time.Sleep(5 * time.Second)
		alive(t, c, sessions...)
		n := c.Counts()
		if n.BeatStreams != 6 || n.Attaches != 0 {
			t.Fatalf("%d heartbeat streams, %d attaches", n.BeatStreams, n.Attaches)
		}
	})
}

// TestDeadHeartbeatConnectionIsNotShared: where there is no other server, a
// connection that brings no answers must not take its sessions with it.
func TestDeadHeartbeatConnectionIsNotShared(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		sessions := append(more(t, cl, 5, WithSessionTimeout(30*time.Second)), cl.Session())
		for range 3 {
			time.Sleep(20 * time.Second)
			c.Server("n1").LoseBeats()
		}
		time.Sleep(20 * time.Second)
		alive(t, c, sessions...)
		if n := c.Counts().BeatStreams; n != 4 {
			t.Fatalf("%d heartbeat streams, want one for each that died and one", n)
		}
	})
}

// TestOneSessionsEndIsNotTheOthers: a session that is told that it is over, or
// elsewhere, leaves the others' heartbeats alone.
func TestOneSessionsEndIsNotTheOthers(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		c.SetLimits(&coordpb.Limits{BeatsPerMessage: 100})
		cl := connect(t, c)
		sessions := append(more(t, cl, 5), cl.Session())
		time.Sleep(5 * time.Second)
		over := more(t, cl, 1)[0]
		c.Expire(uint64(over.ID()))
		<-over.Context().Done()
		if !errors.Is(context.Cause(over.Context()), ErrSessionExpired) {
			t.Fatal(context.Cause(over.Context()))
		}
		time.Sleep(30 * time.Second)
		alive(t, c, sessions...)
		if n := c.Counts(); n.BeatStreams != 1 || n.Attaches > 1 { // over may have asked once
			t.Fatalf("%d heartbeat streams, %d attaches", n.BeatStreams, n.Attaches)
		}
	})
}

// TestSessionsLeaveASilentServerTogetherWithTheirHeartbeats: nothing of the client
// hangs on the old server afterwards.
func TestSessionsLeaveASilentServerTogetherWithTheirHeartbeats(t *testing.T) {
	fake(t, 2, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		sessions := append(more(t, cl, 10), cl.Session())
		for _, name := range []string{"n1", "n2", "n1"} {
			time.Sleep(5 * time.Second)
			c.Server(name).Mute()
			time.Sleep(6 * time.Second)
			for _, s := range sessions {
				if s.Server() == name {
					t.Fatalf("session %s still hangs on %s", s.ID(), name)
				}
			}
			c.Server(name).Unmute()
			synctest.Wait()
			if c.Server(name).BeatStreams() != 0 {
				t.Fatalf("heartbeats are still sent to %s", name)
			}
			alive(t, c, sessions...)
		}
	})
}

// TestLateRefusalIsNotForTheNextConnection: the answer to a heartbeat that was
// under way while the session came back to the same server says nothing about
// its new connection.
func TestLateRefusalIsNotForTheNextConnection(t *testing.T) {
	fake(t, 1, func(t *testing.T, c *fakecoord.Cluster) {
		cl := connect(t, c)
		s := cl.Session()
		time.Sleep(5 * time.Second)
		moved := &coordpb.Error{Code: coordpb.Code_CODE_SESSION_MOVED}
		s.mu.Lock()
		old := s.beats.number
		s.mu.Unlock()
		c.Server("n1").CutAll()
		time.Sleep(50 * time.Millisecond)
		s.mu.Lock()
		m := s.conn.member
		s.mu.Unlock()
		if s.State() != Connected || m.first <= old {
			t.Fatalf("%s, first heartbeat %d after %d", s.State(), m.first, old)
		}
		for _, tt := range []struct {
			answer *coordpb.BeatAnswer
			want   verdict
		}{
			{&coordpb.BeatAnswer{Number: old, Error: moved}, uncounted},
			{&coordpb.BeatAnswer{Number: m.first, Error: moved}, refused},
			{&coordpb.BeatAnswer{Number: m.first, Error: &coordpb.Error{Code: coordpb.Code_CODE_OVERLOADED}}, uncounted},
			{&coordpb.BeatAnswer{Number: m.first}, counted},
		} {
			if got := m.judge(tt.answer); got != tt.want {
				t.Errorf("%v: verdict %d, want %d", tt.answer, got, tt.want)
			}
		}
	})
}
