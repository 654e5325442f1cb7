package recipetest

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
)

// probe sees the messages of a client's sessions and lets a strike decide about
// them. Heartbeats go other ways and are no steps.
type probe struct {
	strike atomic.Pointer[strike]
}

func (p *probe) option() client.Option {
	return client.WithGRPCOptions(grpc.WithChainStreamInterceptor(p.stream))
}

func (p *probe) stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil || method != coordpb.Coord_Session_FullMethodName {
		return s, err
	}
	return &probed{ClientStream: s, probe: p}, nil
}

// probed is the stream of a session.
type probed struct {
	grpc.ClientStream
	probe   *probe
	session atomic.Uint64
}

var errLost = status.Error(codes.Unavailable, "the message was lost")

// SendMsg implements grpc.ClientStream.
func (s *probed) SendMsg(m any) error {
	if q, ok := m.(*coordpb.SessionRequest); ok && len(q.GetRequests()) > 0 {
		if err := s.step(); err != nil {
			return err
		}
	}
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *probed) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	a, ok := m.(*coordpb.SessionReply)
	if !ok {
		return nil
	}
	if w := a.GetWelcome(); w != nil {
		s.session.Store(w.GetSessionId())
	}
	if len(a.GetReplies())+len(a.GetEvents()) == 0 {
		return nil
	}
	return s.step()
}

// step is one message. It returns an error if the message is not to go on.
func (s *probed) step() error {
	k := s.probe.strike.Load()
	if k == nil {
		return nil
	}
	switch k.at(client.SessionID(s.session.Load())) {
	case isLost:
		return errLost
	case waits:
		select {
		case <-k.over:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	case never:
		<-s.Context().Done()
		return s.Context().Err()
	case passes:
	}
	return nil
}
