package server

import (
	"errors"
	"slices"
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

// maxBeats bounds the heartbeats of one message, and the answers of one.
const maxBeats = 1000

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
			if err := b.send(stream); err != nil {
				return err
			}
		case err := <-received:
			s.log.Debug("heartbeat stream ended", "err", err)
			if errors.Is(err, fsm.ErrMalformed) {
				return statusOf(err)
			}
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
	answers map[session.ID]*coordpb.BeatAnswer
	lists   bool // the client sends several in one message, and takes them so
}

func newBeats() *beats {
	return &beats{wake: make(chan struct{}, 1), answers: make(map[session.ID]*coordpb.BeatAnswer)}
}

// beatSource and beatSink are the two halves of a heartbeat stream.
type (
	beatSource interface {
		Recv() (*coordpb.HeartbeatRequest, error)
	}
	beatSink interface {
		Send(*coordpb.HeartbeatReply) error
	}
)

func (b *beats) receive(s *Server, in beatSource) error {
	for {
		req, err := in.Recv()
		if err != nil {
			return err
		}
		several := req.GetBeats()
		switch {
		case len(several) == 0:
			one := coordpb.Beat{SessionId: req.GetSessionId(), Secret: req.GetSecret(), Connection: req.GetConnection(), Number: req.GetNumber()}
			b.beat(s, &one)
			continue
		case len(several) > maxBeats:
			return malformed("%d heartbeats in one message, at most %d are allowed", len(several), maxBeats)
		}
		b.mu.Lock()
		b.lists = true
		b.mu.Unlock()
		for _, one := range several {
			b.beat(s, one)
		}
	}
}

// beat passes one heartbeat on. It is answered when the leader has counted it.
func (b *beats) beat(s *Server, one *coordpb.Beat) {
	id, number := session.ID(one.GetSessionId()), one.GetNumber()
	if err := s.hub.beat(id, one.GetSecret(), one.GetConnection(), s.clock.now(), &s.metrics.silence); err != nil {
		b.answer(id, number, err)
		return
	}
	s.node.Beat(id, max(one.GetConnection(), 1), func(err error) { b.answer(id, number, s.hub.withReason(id, err)) })
}

// answer queues the answer to a heartbeat. One that a later heartbeat has
// overtaken needs none.
func (b *beats) answer(id session.ID, number uint64, err error) {
	if errors.Is(err, cluster.ErrSuperseded) {
		return
	}
	b.mu.Lock()
	old := b.answers[id]
	if old == nil && len(b.answers) < maxBeatSessions || old != nil && old.Number <= number {
		b.answers[id] = &coordpb.BeatAnswer{SessionId: uint64(id), Number: number, Error: wireError(err)}
	}
	b.mu.Unlock()
	poke(b.wake)
}

// take empties the queue of answers.
func (b *beats) take() (out []*coordpb.BeatAnswer, lists bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	out = make([]*coordpb.BeatAnswer, 0, len(b.answers))
	for _, a := range b.answers {
		out = append(out, a)
	}
	clear(b.answers)
	return out, b.lists
}

// send sends the answers that are there, in the form that the client takes.
func (b *beats) send(out beatSink) error {
	answers, lists := b.take()
	if !lists {
		for _, a := range answers {
			if err := out.Send(&coordpb.HeartbeatReply{SessionId: a.SessionId, Number: a.Number, Error: a.Error}); err != nil {
				return err
			}
		}
		return nil
	}
	for part := range slices.Chunk(answers, maxBeats) {
		if err := out.Send(&coordpb.HeartbeatReply{Answers: part}); err != nil {
			return err
		}
	}
	return nil
}
