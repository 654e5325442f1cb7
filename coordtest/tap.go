package coordtest

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// tap sits between a client and its connections, and drops replies.
type tap struct {
	cut func() // breaks the connections

	mu       sync.Mutex // guards below
	armed    int        // replies to drop
	sessions map[client.SessionID]bool
}

// met notes a session that was welcomed.
func (t *tap) met(id client.SessionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sessions == nil {
		t.sessions = map[client.SessionID]bool{}
	}
	t.sessions[id] = true
}

// knows says that a session was welcomed here.
func (t *tap) knows(id client.SessionID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sessions[id]
}

func (t *tap) arm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.armed++
}

// take uses up one armed drop, if there is any.
func (t *tap) take() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.armed == 0 {
		return false
	}
	t.armed--
	return true
}

var errDropped = status.Error(codes.Unavailable, "coordtest: the reply was dropped and the connection cut")

// unary is the interceptor of calls without a session.
func (t *tap) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	_, write := req.(*coordpb.WriteRequest)
	drop := write && t.take()
	err := invoke(ctx, method, req, reply, cc, opts...)
	if drop && err == nil {
		t.cut()
		return errDropped
	}
	return err
}

// stream is the interceptor of the streams of sessions.
func (t *tap) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != coordpb.Coord_Session_FullMethodName {
		return s, err
	}
	return &tappedStream{ClientStream: s, tap: t, doomed: map[uint64]bool{}}, nil
}

// tappedStream is the stream of a session.
type tappedStream struct {
	grpc.ClientStream
	tap *tap

	mu     sync.Mutex // guards below
	doomed map[uint64]bool
}

// SendMsg notes which writes are to lose their reply.
func (s *tappedStream) SendMsg(m any) error {
	if q, ok := m.(*coordpb.SessionRequest); ok {
		for _, r := range q.GetRequests() {
			if r.GetWrite() != nil && s.tap.take() {
				s.mu.Lock()
				s.doomed[r.GetSeq()] = true
				s.mu.Unlock()
			}
		}
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg ends the stream instead of handing on a reply that is to be lost.
func (s *tappedStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	a, ok := m.(*coordpb.SessionReply)
	if !ok {
		return nil
	}
	if id := a.GetWelcome().GetSessionId(); id != 0 {
		s.tap.met(client.SessionID(id))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range a.GetReplies() {
		if s.doomed[r.GetSeq()] {
			clear(s.doomed)
			s.tap.cut()
			return errDropped
		}
	}
	return nil
}
