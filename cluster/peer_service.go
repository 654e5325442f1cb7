package cluster

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/cluster/peerpb"
)

// peerService answers other servers. Everything but Discover and Join comes
// only from members of the cluster (guard).
type peerService struct {
	peerpb.UnimplementedPeerServer
	node *Node
}

// Terms implements peerpb.PeerServer.
func (s *peerService) Terms(stream grpc.BidiStreamingServer[peerpb.TermRequest, peerpb.TermReply]) error {
	return answerAll(stream, func(_ context.Context, q *peerpb.TermRequest) *peerpb.TermReply {
		return s.node.answerTerm(q)
	})
}

// ReadIndexes implements peerpb.PeerServer.
func (s *peerService) ReadIndexes(stream grpc.BidiStreamingServer[peerpb.ReadIndexRequest, peerpb.ReadIndexReply]) error {
	return answerAll(stream, func(ctx context.Context, _ *peerpb.ReadIndexRequest) *peerpb.ReadIndexReply {
		index, err := s.node.leaderReadIndex(ctx)
		if err != nil {
			return &peerpb.ReadIndexReply{Refused: err.Error()}
		}
		return &peerpb.ReadIndexReply{Index: index}
	})
}

// Reports implements peerpb.PeerServer.
func (s *peerService) Reports(stream grpc.BidiStreamingServer[peerpb.ReportRequest, peerpb.ReportReply]) error {
	from := callerID(stream.Context())
	return answerAll(stream, func(ctx context.Context, q *peerpb.ReportRequest) *peerpb.ReportReply {
		if serverID(q.GetId()) != from {
			return &peerpb.ReportReply{Refused: "a server reports for itself only"}
		}
		return s.node.handleReport(ctx, from, q)
	})
}

// Members implements peerpb.PeerServer.
func (s *peerService) Members(context.Context, *peerpb.MembersRequest) (*peerpb.MembersReply, error) {
	return s.node.membersReply(), nil
}

// Transfer implements peerpb.PeerServer.
func (s *peerService) Transfer(ctx context.Context, q *peerpb.TransferRequest) (*peerpb.TransferReply, error) {
	name, err := s.node.transferHere(ctx, q.GetTo())
	if err != nil {
		return &peerpb.TransferReply{Refused: err.Error()}, nil
	}
	return &peerpb.TransferReply{Leader: name}, nil
}

// answerAll answers each request on the stream with one reply, in order.
func answerAll[Q, A any](stream grpc.BidiStreamingServer[Q, A], answer func(context.Context, *Q) *A) error {
	for {
		q, err := stream.Recv()
		if err != nil {
			return err
		}
		a := answer(stream.Context(), q)
		if a == nil {
			return status.Error(codes.Unavailable, ErrStopped.Error())
		}
		if err := stream.Send(a); err != nil {
			return err
		}
	}
}

// answerTerm says in which term this server is. It does not go through Raft's
// main loop, which may be in a write.
func (n *Node) answerTerm(q *peerpb.TermRequest) *peerpb.TermReply {
	r := n.raft.Load()
	if r == nil {
		return nil
	}
	return &peerpb.TermReply{Round: q.GetRound(), Term: r.CurrentTerm(), Id: string(n.id), ClockMs: n.clockMS()}
}

// termAsker asks one server over a stream of its own.
func (n *Node) termAsker(to serverID) termAsker {
	l := &dialogue[peerpb.TermRequest, peerpb.TermReply]{
		peers: n.peers, to: to, open: openTerms, timeout: roundTimeout * n.cfg.Election,
	}
	return func(ctx context.Context, round uint64) (termAnswer, error) {
		a, err := l.ask(ctx, &peerpb.TermRequest{Round: round})
		if err != nil {
			return termAnswer{}, err
		}
		if a.GetRound() != round || serverID(a.GetId()) != to {
			l.close()
			return termAnswer{}, status.Errorf(codes.Internal, "%s answers for %s in round %d", to, clip(a.GetId()), a.GetRound())
		}
		return termAnswer{round: a.GetRound(), term: a.GetTerm(), clock: a.GetClockMs()}, nil
	}
}

// handleReport is the leader's side of a report.
func (n *Node) handleReport(ctx context.Context, from serverID, q *peerpb.ReportRequest) *peerpb.ReportReply {
	r, err := n.awaitReign(ctx, q.GetTerm())
	if err != nil {
		return &peerpb.ReportReply{Refused: err.Error()}
	}
	if q.GetSelf() != nil {
		n.contacts.note(from, q.GetSelf(), n.now())
		n.learnAddress(from, clip(q.GetSelf().GetPeerAddress()))
	}
	dropped, commit, err := r.live.report(ctx, from, q)
	if err != nil {
		return &peerpb.ReportReply{Term: r.term, Refused: err.Error()}
	}
	rep := &peerpb.ReportReply{Term: r.term, Dropped: dropped, CommitIndex: commit, Formed: n.Formed() == nil}
	n.judgeDisks(rep)
	n.compareDigests(r, from, q, rep)
	return rep
}
