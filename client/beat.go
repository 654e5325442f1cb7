package client

import (
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

// nextBeat makes the heartbeat of a session that is about to be sent; nil if the
// session is over.
func (m *member) nextBeat() *coordpb.Beat {
	s := m.cn.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil {
		return nil
	}
	return &coordpb.Beat{SessionId: uint64(m.id), Secret: s.secret, Connection: m.cn.number, Number: s.beats.add(s.Now())}
}

// verdict is what an answer to a heartbeat says.
type verdict uint8

const (
	counted   verdict = iota // the leader has counted it
	uncounted                // not this one; the next may be
	refused                  // the session is over, moved, or not at this server
)

// judge takes in the answer to a heartbeat. A counted one moves the deadline: the
// leader has counted it after it was sent here. That the session is over is not
// taken from here, because answers to its last writes may still be on their way
// over the other connection: an attach finds out.
func (m *member) judge(a *coordpb.BeatAnswer) verdict {
	code := a.GetError().GetCode()
	switch {
	case failed(a.Error) && (passing(code) || a.Number < m.first):
		return uncounted // one of an earlier connection says nothing about this one
	case failed(a.Error):
		return refused
	}
	m.cn.s.counted(a.Number)
	return counted
}

// counted moves the deadline to where the heartbeats up to number n bring it.
func (s *Session) counted(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.beats.answered(n)
	if !ok || s.end != nil {
		return
	}
	s.lastAck, s.stalled, s.authLost = time.Now(), 0, false
	if until := at + trusted(s.timeout); until > time.Duration(s.deadline.Load()) {
		s.deadline.Store(int64(until))
	}
	s.established = s.established || time.Duration(s.deadline.Load()) > s.Now()
	s.accept()
}
