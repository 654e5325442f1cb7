package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
)

// linearizer is the part of a node that reads need.
type linearizer interface {
	Linearize(ctx context.Context) error
	StaleAge() time.Duration
}

// reader takes readings to their answer. A linearizable one waits for a round
// that begins after it arrived; all that wait share the next round, and none
// holds up a write or a read of another kind. It is safe for concurrent use.
type reader struct {
	s *Server

	// Each has room for one: a signal that is there already serves all.
	roundWake, readyWake chan struct{}

	long bulk // what may take long is executed apart

	mu     sync.Mutex // guards below
	rounds []*reading // wait for the next round
	ready  []*reading // may be executed
	byZxid parking    // wait for a transaction
}

const (
	// rounders is how many rounds may be under way: one can begin while the
	// answer to the one before is awaited. More would make smaller batches.
	rounders = 3
	// runners is how many long reads can be executed side by side.
	runners = 4
	// roundTime bounds one attempt at a round, so that what came later is not
	// stuck behind it.
	roundTime = 2 * time.Second
	// roundPause keeps a server without a leader from spinning.
	roundPause = 20 * time.Millisecond
	// viewChunk is how many reads share one read lock.
	viewChunk = 32
)

func newReader(s *Server) *reader {
	return &reader{
		s: s, roundWake: make(chan struct{}, 1), readyWake: make(chan struct{}, 1), long: bulk{wake: make(chan struct{}, 1)},
	}
}

// run works until ctx ends.
func (r *reader) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range rounders {
		wg.Go(func() { r.runRounds(ctx) })
	}
	for range runners {
		wg.Go(func() { r.runReady(ctx) })
	}
	wg.Go(func() { r.runLong(ctx) })
	wg.Wait()
}

// submit takes new readings, in order. Those that need nothing but this
// server's state are answered before it returns, unless they may take long.
func (r *reader) submit(qs []*reading) {
	var local, rounds []*reading
	for _, q := range qs {
		if q.mode() == coordpb.ReadMode_READ_MODE_LINEARIZABLE {
			rounds = append(rounds, q)
		} else {
			local = append(local, q)
		}
	}
	if len(rounds) > 0 {
		r.mu.Lock()
		r.rounds = append(r.rounds, rounds...)
		r.mu.Unlock()
		poke(r.roundWake)
	}
	r.execute(local, false)
}

// poke leaves a signal in a channel with room for one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runRounds runs one round after the other as long as somebody waits for one.
func (r *reader) runRounds(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.roundWake:
		}
		r.mu.Lock()
		qs := r.rounds
		r.rounds = nil
		r.mu.Unlock()
		if len(qs) == 0 {
			continue
		}
		rctx, cancel := context.WithTimeout(ctx, roundTime)
		err := r.s.node.Linearize(rctx)
		cancel()
		if err != nil {
			r.retry(ctx, qs, err)
			continue
		}
		r.executeGuarded(qs, false)
	}
}

// retry puts readings whose round failed back in front, except those that have
// waited long enough: a change of leader is a delay, not an error.
func (r *reader) retry(ctx context.Context, qs []*reading, err error) {
	final := errors.Is(err, cluster.ErrStopped) || errors.Is(err, cluster.ErrNotFormed) || ctx.Err() != nil
	kept := qs[:0]
	for _, q := range qs {
		switch {
		case q.gone():
		case final || q.expired(r.s.clock):
			q.fail(r.s.hub.firedZxid(), r.s.faults.wire(unavailable(err), q.id, q.op))
		default:
			kept = append(kept, q)
		}
	}
	if len(kept) == 0 {
		return
	}
	select {
	case <-time.After(roundPause):
	case <-ctx.Done():
	}
	r.mu.Lock()
	r.rounds = append(kept, r.rounds...)
	r.mu.Unlock()
	poke(r.roundWake)
}

// wake executes qs soon, on another goroutine: the caller holds locks.
func (r *reader) wake(qs []*reading) {
	if len(qs) == 0 {
		return
	}
	r.mu.Lock()
	r.ready = append(r.ready, qs...)
	r.mu.Unlock()
	poke(r.readyWake)
}

func (r *reader) runReady(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.readyWake:
		}
		r.mu.Lock()
		n := min(len(r.ready), viewChunk)
		qs := r.ready[:n:n]
		if r.ready = r.ready[n:]; len(r.ready) == 0 {
			r.ready = nil
		} else {
			poke(r.readyWake)
		}
		r.mu.Unlock()
		r.executeGuarded(qs, false)
	}
}

// runLong executes long reads, one at a time.
func (r *reader) runLong(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.long.wake:
		}
		switch q := r.long.next(); {
		case q == nil:
		case q.expired(r.s.clock) && !q.gone():
			r.s.metrics.throttled.overload.Add(1)
			q.fail(r.s.hub.firedZxid(), r.s.faults.wire(errManyLong, q.id, q.op))
		default:
			r.executeGuarded([]*reading{q}, true)
		}
	}
}

// executeGuarded is execute on the reader's own goroutines: a panic ends the
// streams whose reads were among these, and nothing else.
func (r *reader) executeGuarded(qs []*reading, long bool) {
	err := r.s.guarded("read", func() error { r.execute(qs, long); return nil })
	for _, q := range qs {
		if err != nil && q.c != nil {
			q.c.end(err)
		}
	}
}

// execute answers the readings whose time has come and sets the others aside, also
// those that may take long if this is not where they are executed.
func (r *reader) execute(qs []*reading, long bool) {
	for len(qs) > 0 {
		chunk := qs[:min(len(qs), viewChunk)]
		qs = qs[len(chunk):]
		r.s.machine.View(func(v *fsm.View) {
			for _, q := range chunk {
				switch {
				case q.gone() || r.park(q, v):
				case !long && r.isBulk(q, v):
					r.long.add(q)
				case !q.postpone():
					r.s.answer(q, v)
				}
			}
		})
	}
}

// park lets q wait if the state is not far enough. The machine's read lock is
// held, so what q waits for cannot be applied in between.
func (r *reader) park(q *reading, v *fsm.View) bool {
	if q.need > v.Zxid {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.byZxid.add(uint64(q.need), q)
		return true
	}
	return q.c != nil && q.after != 0 && q.c.parkUntil(q)
}

// reached is called when the state has come to z, under the machine's lock.
func (r *reader) reached(z uint64) {
	r.mu.Lock()
	due := r.byZxid.due(z)
	r.mu.Unlock()
	r.wake(due)
}

// sweep answers the parked reads that have waited too long and forgets those
// nobody waits for.
func (r *reader) sweep() {
	r.mu.Lock()
	out := r.byZxid.remove(func(q *reading) bool { return q.gone() || q.expired(r.s.clock) })
	r.mu.Unlock()
	for _, q := range out {
		if !q.gone() {
			q.fail(r.s.hub.firedZxid(), r.s.faults.wire(errBehind, q.id, q.op))
		}
	}
}
