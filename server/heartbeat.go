package server

import (
	"errors"
	"sync"

	"google.golang.org/grpc"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// maxBeatSessions bounds the sessions of one heartbeat stream whose answers
// wait to be sent.
const maxBeatSessions = 100_000

// Heartbeat keeps sessions alive: those of one client process, on a connection
// of their own. It takes no lock of the machine and shares no queue with
// requests, so nothing there can delay it.
func (cs coordService) Heartbeat(stream grpc.BidiStreamingServer[coordpb.HeartbeatRequest, coordpb.HeartbeatReply]) error {
	s := cs.s
	if !s.streams.begin() {
		return statusOf(fsm.ErrShuttingDown)
	}
	defer s.streams.done()
	b := newBeats()
	received := make(chan error, 1)
	s.workers.Go(func() {
		received <- s.guarded("heartbeat", func() error { return b.receive(s, stream) })
	})
	for {
		select {
		case <-b.wake:
			for _, r := range b.take() {
				if err := stream.Send(r); err != nil {
					return err
				}
			}
		case err := <-received:
			s.log.Debug("heartbeat stream ended", "err", err)
			return nil
		case <-stream.Context().Done():
			return nil
		case <-s.stopping:
			return statusOf(fsm.ErrShuttingDown)
		}
	}
}

// beats are the answers of one heartbeat stream: the newest for each session.
type beats struct {
	wake chan struct{} // has room for one

	mu      sync.Mutex // guards below
	answers map[session.ID]*coordpb.HeartbeatReply
}

func newBeats() *beats {
	return &beats{wake: make(chan struct{}, 1), answers: make(map[session.ID]*coordpb.HeartbeatReply)}
}

// beatSource is the receiving half of a heartbeat stream.
type beatSource interface {
	Recv() (*coordpb.HeartbeatRequest, error)
}

func (b *beats) receive(s *Server, in beatSource) error {
	for {
		req, err := in.Recv()
		if err != nil {
			return err
		}
		b.beat(s, req)
	}
}

// beat passes one heartbeat on. It is answered when the leader has counted it.
func (b *beats) beat(s *Server, req *coordpb.HeartbeatRequest) {
	id, number := session.ID(req.GetSessionId()), req.GetNumber()
	if err := s.hub.beat(id, req.GetSecret(), req.GetConnection(), s.clock.now(), &s.metrics.silence); err != nil {
		b.answer(id, number, err)
		return
	}
	s.node.Beat(id, max(req.GetConnection(), 1), func(err error) { b.answer(id, number, err) })
}

// answer queues the answer to a heartbeat. One that a later heartbeat has
// overtaken needs none.
func (b *beats) answer(id session.ID, number uint64, err error) {
	if errors.Is(err, cluster.ErrSuperseded) {
		return
	}
	b.mu.Lock()
	old := b.answers[id]
	if old == nil && len(b.answers) < maxBeatSessions || old != nil && (old.Number <= number || err != nil) {
		b.answers[id] = &coordpb.HeartbeatReply{SessionId: uint64(id), Number: number, Error: wireError(err)}
	}
	b.mu.Unlock()
	poke(b.wake)
}

func (b *beats) take() []*coordpb.HeartbeatReply {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]*coordpb.HeartbeatReply, 0, len(b.answers))
	for _, r := range b.answers {
		out = append(out, r)
	}
	clear(b.answers)
	return out
}
