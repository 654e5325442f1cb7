package cluster

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/session"
)

const (
	signShards = 16
	// maxBeatsWaiting bounds the heartbeats of one session that wait for an
	// acknowledged report. With one more, the oldest is given up.
	maxBeatsWaiting = 8
)

// signs collects the signs of life of the sessions connected here, until the
// leader has counted them. It is safe for concurrent use; Heard is called for
// every request.
//
// Bound: one mark for each session that was heard and not counted, so at most
// as many as there are sessions connected here.
type signs struct {
	now    func() time.Duration
	tick   time.Duration
	clock  atomic.Pointer[signClock]
	shards [signShards]signShard
}

// signClock is a session.ExpiryClock as it was last advanced: ages are measured
// on it, because a server that did not run has not been listening, and must not
// tell the leader that its sessions were silent all that time.
type signClock struct {
	shows session.ExpiryClock
	at    time.Duration // on the node's clock
}

type signShard struct {
	mu    sync.Mutex
	fresh map[session.ID]*sign // not reported
	sent  map[session.ID]*sign // in the report that is under way
}

// sign is what is to be told of one session.
type sign struct {
	generation uint64
	first      time.Duration // oldest sign of life that was not counted, on the sign clock
	last       time.Duration
	beats      []func(error)
}

func newSigns(now func() time.Duration, tick time.Duration) *signs {
	s := &signs{now: now, tick: tick}
	s.clock.Store(&signClock{at: now()})
	for i := range s.shards {
		s.shards[i].fresh = make(map[session.ID]*sign)
	}
	return s
}

func (s *signs) shard(id session.ID) *signShard { return &s.shards[uint64(id)%signShards] }

// time is the sign clock, read without moving it on.
func (s *signs) time() time.Duration {
	c := s.clock.Load()
	shows := c.shows
	return shows.Advance(s.now()-c.at, s.tick)
}

// run moves the sign clock on until ctx ends. It is a goroutine of its own: one
// that waits for the leader's answer would miss ticks, and signs of life would
// grow old too slowly just when nobody counts them.
func (s *signs) run(ctx context.Context) {
	every(ctx, s.tick, func() { s.advance() })
}

// advance moves the sign clock on. One goroutine calls it, once in a tick.
func (s *signs) advance() time.Duration {
	c := *s.clock.Load()
	now := s.now()
	shows := c.shows.Advance(now-c.at, s.tick)
	c.at = now
	s.clock.Store(&c)
	return shows
}

// heard notes a sign of life. With beat set, that is called once: with nil when
// the leader has counted this sign or a later one, or with the reason why it
// will not be.
func (s *signs) heard(id session.ID, generation uint64, beat func(error)) {
	var told tidings
	sh := s.shard(id)
	sh.mu.Lock()
	at := s.time() // under the lock: nothing that is reported later may be older
	m := sh.fresh[id]
	switch {
	case m == nil || m.generation < generation:
		if m != nil {
			told.add(session.ErrMoved, m.beats...)
		}
		m = &sign{generation: generation, first: at, last: at}
		sh.fresh[id] = m
	case m.generation > generation:
		told.add(session.ErrMoved, beat)
		beat = nil
	default:
		m.last = max(m.last, at)
	}
	if beat != nil {
		m.beats = append(m.beats, beat)
		m.trim(&told)
	}
	sh.mu.Unlock()
	told.tell()
}

// trim keeps the beats within their bound.
func (m *sign) trim(told *tidings) {
	if n := len(m.beats) - maxBeatsWaiting; n > 0 {
		told.add(ErrSuperseded, m.beats[:n]...)
		m.beats = slices.Clone(m.beats[n:])
	}
}

// reported is a sign as it goes into a report.
type reported struct {
	id         session.ID
	generation uint64
	last       time.Duration
}

// take begins a report of everything that is fresh. It ends with acked or
// failed; there is one report at a time.
func (s *signs) take() []reported {
	var out []reported
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		sh.sent, sh.fresh = sh.fresh, make(map[session.ID]*sign)
		for id, m := range sh.sent {
			out = append(out, reported{id, m.generation, m.last})
		}
		sh.mu.Unlock()
	}
	return out
}

// none says that there is nothing to report.
func (s *signs) none() bool {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		n := len(sh.fresh)
		sh.mu.Unlock()
		if n > 0 {
			return false
		}
	}
	return true
}

// acked ends the report: the leader has counted everything but dropped. What it
// dropped for no reason that is known here (nil) is reported again: the leader
// may not have applied yet what this server has.
func (s *signs) acked(dropped map[session.ID]error) {
	s.endReport(func(id session.ID, _ *sign) (bool, error) {
		err, ok := dropped[id]
		return ok && err == nil, err
	})
}

// failed ends a report of which it is not known whether it arrived.
func (s *signs) failed() {
	s.endReport(func(session.ID, *sign) (bool, error) { return true, nil })
}

// close gives up all beats. Nothing is heard afterwards.
func (s *signs) close(err error) {
	s.failed()
	s.take()
	s.endReport(func(session.ID, *sign) (bool, error) { return false, err })
}

// endReport asks for each reported sign whether to report it again, and tells
// the beats of the others.
func (s *signs) endReport(verdict func(session.ID, *sign) (again bool, err error)) {
	for i := range s.shards {
		sh := &s.shards[i]
		var told tidings
		sh.mu.Lock()
		for id, m := range sh.sent {
			if again, err := verdict(id, m); again {
				sh.putBackLocked(id, m, &told)
			} else {
				told.add(err, m.beats...)
			}
		}
		sh.sent = nil
		sh.mu.Unlock()
		told.tell()
	}
}

func (sh *signShard) putBackLocked(id session.ID, old *sign, told *tidings) {
	m := sh.fresh[id]
	switch {
	case m == nil:
		sh.fresh[id] = old
	case m.generation > old.generation:
		told.add(session.ErrMoved, old.beats...)
	case m.generation < old.generation: // a late sign of an older connection
		told.add(session.ErrMoved, m.beats...)
		sh.fresh[id] = old
	default:
		m.first = min(m.first, old.first)
		m.beats = append(old.beats, m.beats...)
		m.trim(told)
	}
}

// uncounted returns how old the oldest sign of life is that the leader has not
// counted, 0 if there is none.
func (s *signs) uncounted(id session.ID, generation uint64) time.Duration {
	now := s.time()
	sh := s.shard(id)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var oldest time.Duration
	for _, m := range []*sign{sh.sent[id], sh.fresh[id]} {
		if m != nil && m.generation == generation {
			oldest = max(oldest, now-m.first)
		}
	}
	return oldest
}

// oldestUncounted is the largest uncounted of all sessions.
func (s *signs) oldestUncounted() time.Duration {
	now := s.time()
	first := now
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for _, marks := range []map[session.ID]*sign{sh.sent, sh.fresh} {
			for _, m := range marks {
				first = min(first, m.first)
			}
		}
		sh.mu.Unlock()
	}
	return now - first
}

// tidings are what beats are to be told once no lock is held.
type tidings []struct {
	beat func(error)
	err  error
}

func (t *tidings) add(err error, beats ...func(error)) {
	for _, b := range beats {
		if b != nil {
			*t = append(*t, struct {
				beat func(error)
				err  error
			}{b, err})
		}
	}
}

func (t tidings) tell() {
	for _, x := range t {
		x.beat(x.err)
	}
}
