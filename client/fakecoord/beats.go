package fakecoord

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
)

// beatStream is one heartbeat stream. Its fields are guarded by the cluster's
// lock.
type beatStream struct {
	server *Server
	cancel context.CancelCauseFunc
	deaf   bool
}

// CutBeats breaks the heartbeat streams of this server.
func (s *Server) CutBeats() {
	s.eachBeats(func(b *beatStream) { b.cancel(status.Error(codes.Unavailable, "connection reset")) })
}

// LoseBeats makes the heartbeat streams of this server that are there now get no
// answer any more, as if their connection were dead without anybody knowing.
// Later ones are not concerned.
func (s *Server) LoseBeats() {
	s.eachBeats(func(b *beatStream) { b.deaf = true })
}

// BeatStreams counts the heartbeat streams of this server.
func (s *Server) BeatStreams() (n int) {
	s.eachBeats(func(*beatStream) { n++ })
	return n
}

func (s *Server) eachBeats(f func(*beatStream)) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for b := range s.c.beatStreams {
		if b.server == s {
			f(b)
		}
	}
}

// Heartbeat implements coordpb.CoordServer.
func (s *Server) Heartbeat(g grpc.BidiStreamingServer[coordpb.HeartbeatRequest, coordpb.HeartbeatReply]) error {
	ctx, cancel := context.WithCancelCause(g.Context())
	b := &beatStream{server: s, cancel: cancel}
	s.c.mu.Lock()
	s.c.beatStreams[b] = struct{}{}
	s.c.counts.BeatStreams++
	s.c.mu.Unlock()
	defer func() {
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		delete(s.c.beatStreams, b)
	}()
	go func() { // ends with the stream, at the latest when the server stops
		for {
			m, err := g.Recv()
			if err != nil {
				cancel(err)
				return
			}
			s.hold(ctx)
			if reply := s.beats(b, m); reply != nil && ctx.Err() == nil {
				_ = g.Send(reply)
			}
		}
	}()
	<-ctx.Done()
	return context.Cause(ctx)
}

// beats takes one message and returns the answer, nil for none.
func (s *Server) beats(b *beatStream, m *coordpb.HeartbeatRequest) *coordpb.HeartbeatReply {
	s.mu.Lock()
	deaf := s.deaf
	s.mu.Unlock()
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.deaf {
		return nil
	}
	c.counts.BeatMessages++
	reply := &coordpb.HeartbeatReply{}
	if len(m.Beats) == 0 {
		one := coordpb.Beat{SessionId: m.SessionId, Secret: m.Secret, Connection: m.Connection, Number: m.Number}
		if a := c.beat(s.name, &one); a != nil && !deaf {
			reply.SessionId, reply.Number, reply.Error = a.SessionId, a.Number, a.Error
			return reply
		}
		return nil
	}
	// Only a server that says so takes several, and then in this form.
	if most := c.limits.GetBeatsPerMessage(); m.SessionId != 0 || int64(len(m.Beats)) > most {
		c.t.Errorf("a message with %d heartbeats and session %x; %d are allowed", len(m.Beats), m.SessionId, most)
	}
	for _, one := range m.Beats {
		if a := c.beat(s.name, one); a != nil && !deaf {
			reply.Answers = append(reply.Answers, a)
		}
	}
	if len(reply.Answers) == 0 {
		return nil
	}
	return reply
}

// beat takes one heartbeat; c.mu is held.
func (c *Cluster) beat(server string, m *coordpb.Beat) *coordpb.BeatAnswer {
	c.counts.Beats++
	s := c.sessions[m.SessionId]
	r := &coordpb.BeatAnswer{SessionId: m.SessionId, Number: m.Number}
	switch {
	case c.frozen:
		return nil
	case s == nil:
		r.Error = c.ended(m.SessionId)
	case s.secret != string(m.Secret):
		r.Error = code(coordpb.Code_CODE_AUTH_FAILED, "")
	case s.connection != m.Connection || s.server != server:
		r.Error = code(coordpb.Code_CODE_SESSION_MOVED, "")
	default:
		s.heard = time.Now()
	}
	return r
}
