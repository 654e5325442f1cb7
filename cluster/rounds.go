package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// errRound is returned when a round could not show that this server leads: it
// does not, or a majority did not answer. Nothing was promised.
var errRound = errors.New("a majority did not confirm this leader")

// roundTimeout is how long a round waits for a majority, in election timeouts.
// A leader without a majority steps down before.
const roundTimeout = 5

// proof is what a round that succeeded has shown: this server led term at some
// moment after the round was asked for, so no later leader had been elected
// then.
type proof struct {
	term uint64
	// commit is the commit index of the leader, read after the round was asked
	// for and before any answer. Nothing that any server had applied by then
	// lies behind it.
	commit uint64
	// clocks are the wall clocks (ms since 1970) of the majority that answered.
	clocks []int64
}

// roundHost is what a round asks of the node.
type roundHost interface {
	leads() (term uint64, ok bool)
	voters() []serverID
	commitIndex() uint64
	clockMS() int64
}

// rounds runs term rounds: a leader of term T asks the other voters for their
// current term, and if with itself a majority is still at T, then nobody else
// had been elected when the round began. Everything that waits when a round
// begins shares it. There is one round at a time.
//
// A term only grows, and a vote is written down with its term before it is
// given, so a voter at T has not voted in any later term. No clock is involved.
type rounds struct {
	self    serverID
	host    roundHost
	askers  func(serverID) termAsker
	timeout time.Duration
	changed *beacon

	wake    nudge // somebody waits
	arrived nudge // an answer came

	mu      sync.Mutex // guards what follows
	waiting []chan roundOutcome
	armed   bool   // fire is going to be called
	number  uint64 // of the present or last round
	term    uint64 // that it is about
	open    bool   // a round runs
	answers map[serverID]termAnswer
	asking  map[serverID]*roundPeer
}

// termAsker asks one server for its term. A call must end with its context.
type termAsker func(ctx context.Context, round uint64) (termAnswer, error)

// termAnswer is what a voter said to the round it names.
type termAnswer struct {
	round uint64
	term  uint64
	clock int64
}

type roundOutcome struct {
	proof proof
	err   error
}

// maxRoundWaiters bounds who waits for a round; one more is refused.
const maxRoundWaiters = 1 << 16

func newRounds(self serverID, host roundHost, askers func(serverID) termAsker, timeout time.Duration, changed *beacon) *rounds {
	return &rounds{
		self: self, host: host, askers: askers, timeout: timeout, changed: changed,
		wake: newNudge(), arrived: newNudge(),
		answers: make(map[serverID]termAnswer), asking: make(map[serverID]*roundPeer),
	}
}

// join waits for a round that begins after the call, at once unless one is under
// way. It returns errRound if the round failed, ErrOverloaded if too many wait.
func (r *rounds) join(ctx context.Context) (proof, error) { return r.joinWithin(ctx, 0) }

// joinWithin is join for who has time: the round begins after patience at the
// latest, so that several share it.
func (r *rounds) joinWithin(ctx context.Context, patience time.Duration) (proof, error) {
	if _, ok := r.host.leads(); !ok {
		return proof{}, errRound
	}
	done := make(chan roundOutcome, 1)
	r.mu.Lock()
	if len(r.waiting) >= maxRoundWaiters {
		r.mu.Unlock()
		return proof{}, ErrOverloaded
	}
	r.waiting = append(r.waiting, done)
	if patience > 0 && !r.armed {
		r.armed = true
		time.AfterFunc(patience, r.fire)
	}
	r.mu.Unlock()
	if patience == 0 {
		r.wake.push()
	}
	select {
	case out := <-done:
		return out.proof, out.err
	case <-ctx.Done():
		return proof{}, ctx.Err()
	}
}

// fire begins the round for those who had time.
func (r *rounds) fire() {
	r.mu.Lock()
	r.armed = false
	r.mu.Unlock()
	r.wake.push()
}

// run holds rounds until ctx ends.
func (r *rounds) run(ctx context.Context) {
	var peers sync.WaitGroup
	defer peers.Wait()
	for {
		select {
		case <-ctx.Done():
			r.fail()
			return
		case <-r.wake:
		}
		waiting := r.takeWaiting()
		if len(waiting) == 0 {
			continue
		}
		p, err := r.round(ctx, &peers)
		for _, w := range waiting {
			w <- roundOutcome{p, err} // has room for one
		}
	}
}

func (r *rounds) fail() {
	for _, w := range r.takeWaiting() {
		w <- roundOutcome{err: errRound}
	}
}

func (r *rounds) takeWaiting() []chan roundOutcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.waiting
	r.waiting = nil
	return w
}

// round holds one round.
func (r *rounds) round(ctx context.Context, peers *sync.WaitGroup) (proof, error) {
	term, ok := r.host.leads()
	if !ok {
		return proof{}, errRound
	}
	p := proof{term: term, commit: r.host.commitIndex()}
	r.begin(ctx, peers, term)
	defer r.end()
	deadline := time.NewTimer(r.timeout)
	defer deadline.Stop()
	for {
		changed := r.changed.C()
		clocks, majority, deposed := r.count(term)
		// The own vote counts only if this server leads the term at the end.
		if now, ok := r.host.leads(); !ok || now != term || deposed {
			return proof{}, errRound
		}
		if majority {
			p.clocks = clocks
			return p, nil
		}
		select {
		case <-r.arrived:
		case <-changed:
		case <-deadline.C:
			return proof{}, errRound
		case <-ctx.Done():
			return proof{}, errRound
		}
	}
}

// begin opens the next round and asks all other voters.
func (r *rounds) begin(ctx context.Context, peers *sync.WaitGroup, term uint64) {
	voters := r.host.voters()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number++
	r.term = term
	r.open = true
	for _, v := range voters {
		if v == r.self {
			continue
		}
		p := r.asking[v]
		if p == nil {
			peerCtx, cancel := context.WithCancel(ctx)
			p = &roundPeer{rounds: r, id: v, wake: newNudge(), leave: cancel}
			r.asking[v] = p
			peers.Go(func() { p.run(peerCtx) })
		}
		p.wake.push()
	}
	for id, p := range r.asking {
		if !slices.Contains(voters, id) {
			p.leave()
			delete(r.asking, id)
			delete(r.answers, id)
		}
	}
}

func (r *rounds) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
}

// count says whether a majority of the voters of the latest configuration, this
// server among them, is at term; and whether one is beyond it.
func (r *rounds) count(term uint64) (clocks []int64, majority, deposed bool) {
	voters := r.host.voters()
	r.mu.Lock()
	defer r.mu.Unlock()
	yes := 0
	for _, v := range voters {
		if v == r.self {
			yes++
			clocks = append(clocks, r.host.clockMS())
			continue
		}
		a, ok := r.answers[v]
		if !ok || a.round < r.number { // of an earlier round: counts for nothing
			continue
		}
		if a.term > term {
			return nil, false, true
		}
		if a.term == term {
			yes++
			clocks = append(clocks, a.clock)
		}
	}
	return clocks, yes > len(voters)/2, false
}

// present returns the number of the round that is open, if one is, and the term
// it is about.
func (r *rounds) present() (number, term uint64, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.number, r.term, r.open
}

func (r *rounds) answered(from serverID, a termAnswer) {
	r.mu.Lock()
	r.answers[from] = a
	r.mu.Unlock()
	r.arrived.push()
}

// lowerMedian is the middle one, of an even number the lower of the two. One
// clock that is wrong, in either direction, is not chosen out of three; out of
// two, one that is ahead is not.
func lowerMedian(clocks []int64) int64 {
	c := slices.Clone(clocks)
	slices.Sort(c)
	return c[(len(c)-1)/2]
}
