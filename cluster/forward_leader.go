package cluster

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
)

// intake is what the leader remembers of the forward streams: one for each
// server is read. A newer one is read only when the reader of the older has
// ended, so what a server offers never enters the log out of order.
type intake struct {
	mu      sync.Mutex
	current map[serverID]*intakeStream
}

type intakeStream struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of this stream is read any more
}

// begin makes the caller the one reader of a server, once the reader before has
// ended. The caller must call the returned function at the end.
func (in *intake) begin(ctx context.Context, from serverID, cancel context.CancelFunc) (end func(), err error) {
	s := &intakeStream{cancel: cancel, done: make(chan struct{})}
	in.mu.Lock()
	if in.current == nil {
		in.current = make(map[serverID]*intakeStream)
	}
	old := in.current[from]
	in.current[from] = s
	in.mu.Unlock()
	end = func() {
		close(s.done)
		in.mu.Lock()
		defer in.mu.Unlock()
		if in.current[from] == s {
			delete(in.current, from)
		}
	}
	if old == nil {
		return end, nil
	}
	old.cancel()
	<-old.done // its reader ends at once: its context has ended
	if ctx.Err() != nil {
		end()
		return nil, ctx.Err()
	}
	return end, nil
}

// Forward implements peerpb.PeerServer: it reads what another server offers to
// the leadership it names.
func (s *peerService) Forward(stream grpc.BidiStreamingServer[peerpb.ForwardRequest, peerpb.ForwardReply]) error {
	n := s.node
	from := callerID(stream.Context())
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if serverID(first.GetId()) != from {
		return status.Errorf(codes.PermissionDenied, "%s speaks for %s", from, clip(first.GetId()))
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	r, err := n.awaitReign(ctx, first.GetTerm())
	if err != nil {
		return stream.Send(&peerpb.ForwardReply{Refused: err.Error()})
	}
	end, err := n.intake.begin(ctx, from, cancel)
	if err != nil {
		return err
	}
	// gRPC ends a stream when its handler returns; the reader below may be in
	// Recv then, and hands over nothing more once ctx has ended.
	reading := make(chan error, 1)
	n.wg.Go(func() {
		defer end()
		reading <- readOffers(ctx, stream, r)
	})
	if err := stream.Send(&peerpb.ForwardReply{Ready: true}); err != nil {
		return err
	}
	select {
	case err := <-reading:
		return err
	case <-r.over:
		return stream.Send(&peerpb.ForwardReply{Refused: errReignOver.Error()})
	case <-ctx.Done():
		return status.Error(codes.Aborted, "a newer stream took the place of this one")
	}
}

// readOffers hands what comes over the stream to the batcher, in order. It waits
// while that is full, and the sender waits with it. A command that no honest
// server sends ends the stream before anything of its message is taken.
func readOffers(ctx context.Context, stream grpc.BidiStreamingServer[peerpb.ForwardRequest, peerpb.ForwardReply], r *reign) error {
	for ctx.Err() == nil {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		cmds := req.GetCommands()
		for _, c := range cmds {
			if err := fsm.Validate(c); err != nil {
				return status.Errorf(codes.InvalidArgument, "command refused: %v", err)
			}
		}
		if len(cmds) == 0 {
			continue
		}
		if err := r.batch.offer(ctx, cmds); err != nil {
			return status.Error(codes.Aborted, err.Error())
		}
	}
	return ctx.Err()
}
