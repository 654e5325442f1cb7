package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// beats are the heartbeats of a session that were sent and not answered, oldest
// first. Numbers rise over the whole session.
type beats struct {
	number uint64
	sent   []beat
}

type beat struct {
	number uint64
	at     time.Duration // on the deadline's clock, before it was sent
}

// maxBeats bounds what is remembered: more are unanswered only when the deadline
// is past anyway.
const maxBeats = 64

// add numbers a heartbeat that is about to be sent.
func (b *beats) add(now time.Duration) uint64 {
	b.number++
	if len(b.sent) == maxBeats {
		b.sent = b.sent[1:]
	}
	b.sent = append(b.sent, beat{b.number, now})
	return b.number
}

// answered returns when the newest heartbeat up to n was sent and forgets those
// up to it.
func (b *beats) answered(n uint64) (at time.Duration, ok bool) {
	for len(b.sent) > 0 && b.sent[0].number <= n {
		at, ok = b.sent[0].at, true
		b.sent = b.sent[1:]
	}
	return at, ok
}

// beatInterval is a sixth of the timeout, so that several may be lost, give or
// take a tenth, so that many clients do not beat in step.
func beatInterval(timeout time.Duration) time.Duration {
	return time.Duration(float64(timeout) / 6 * (0.9 + rand.Float64()/5))
}

// beatPatience is how long after the newest counted heartbeat the session looks
// for another server: an interval, the time that an answer may take, and enough
// left of the timeout to get there.
func beatPatience(timeout time.Duration) time.Duration { return timeout * 2 / 5 }

// heartbeat keeps the session alive over cn's server, on a connection of its
// own, so that no queue of requests or large replies can delay it. ctx ends with
// cn.
func (s *Session) heartbeat(ctx context.Context, cn *conn) {
	counted := time.Now()
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := s.beatOver(ctx, cn, &counted)
		if ctx.Err() != nil {
			return
		}
		s.core.opts.log.Debug("heartbeat connection lost", "peer", cn.endpoint, "err", err)
		if time.Since(began) > time.Second {
			failures = 1
		}
		if time.Since(counted) > beatPatience(s.Timeout()) {
			signal(cn.move)
		}
		sleep(ctx, min(s.core.opts.retry.wait(failures), s.Timeout()/12))
	}
}

// beatOver sends heartbeats over one connection until it fails.
func (s *Session) beatOver(ctx context.Context, cn *conn, counted *time.Time) error {
	l, err := s.core.newLink(cn.endpoint)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, cancelReady := context.WithTimeoutCause(ctx, beatPatience(s.Timeout()), errNoAnswer)
	err = l.ready(ready)
	cancelReady()
	if err != nil {
		return err
	}
	stream, err := coordpb.NewCoordClient(l.cc).Heartbeat(ctx)
	if err != nil {
		return plain(err)
	}
	answers := make(chan *coordpb.HeartbeatReply)
	broken := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		broken <- receiveBeats(ctx, stream, answers)
	}()
	err = s.beatLoop(cn, stream, counted, answers, broken)
	cancel()
	<-done
	return err
}

func receiveBeats(ctx context.Context, stream coordpb.Coord_HeartbeatClient, answers chan<- *coordpb.HeartbeatReply) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return plain(err)
		}
		select {
		case answers <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Session) beatLoop(cn *conn, stream coordpb.Coord_HeartbeatClient, counted *time.Time,
	answers <-chan *coordpb.HeartbeatReply, broken <-chan error,
) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case err := <-broken:
			return err
		case m := <-answers:
			if err := s.counted(cn, m); err != nil {
				return err
			}
			if !failed(m.Error) {
				*counted = time.Now()
			}
		case <-next.C:
			timeout := s.Timeout()
			if time.Since(*counted) > beatPatience(timeout) {
				signal(cn.move)
			}
			if err := stream.Send(s.nextBeat(cn)); err != nil {
				return <-broken
			}
			next.Reset(beatInterval(timeout))
		}
	}
}

func (s *Session) nextBeat(cn *conn) *coordpb.HeartbeatRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &coordpb.HeartbeatRequest{
		SessionId: uint64(s.id), Secret: s.secret, Connection: cn.number, Number: s.beats.add(s.Now()),
	}
}

// counted moves the deadline: the heartbeat that was answered was counted by the
// leader after it was sent here.
func (s *Session) counted(cn *conn, m *coordpb.HeartbeatReply) error {
	code := m.GetError().GetCode()
	switch {
	case failed(m.Error) && passing(code):
		return nil // not counted; the next one may be
	case failed(m.Error):
		// Over, moved, or not here: an attach finds out. That the session is
		// over is not taken from here, because answers to its last writes may
		// still be on their way over the other connection.
		signal(cn.move)
		return fmt.Errorf("not counted: %w", sentinel(code))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.beats.answered(m.Number)
	if !ok || s.end != nil {
		return nil
	}
	s.lastAck, s.stalled, s.authLost = time.Now(), 0, false
	if until := at + trusted(s.timeout); until > time.Duration(s.deadline.Load()) {
		s.deadline.Store(int64(until))
	}
	s.established = s.established || time.Duration(s.deadline.Load()) > s.Now()
	s.accept()
	return nil
}
