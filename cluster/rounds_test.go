package cluster

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeHost is a leader with the servers a (itself), b, c, ...
type fakeHost struct {
	mu     sync.Mutex
	term   uint64
	leader bool
	all    []serverID
	commit uint64
}

func (h *fakeHost) leads() (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.term, h.leader
}

func (h *fakeHost) voters() []serverID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

func (h *fakeHost) commitIndex() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commit
}

func (h *fakeHost) clockMS() int64 { return 1000 }

func (h *fakeHost) set(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// roundsWith runs rounds whose askers are given by name.
func roundsWith(t *testing.T, h *fakeHost, ask func(ctx context.Context, to serverID, round uint64) (termAnswer, error)) *rounds {
	r := newRounds("a", h, func(to serverID) termAsker {
		return func(ctx context.Context, round uint64) (termAnswer, error) { return ask(ctx, to, round) }
	}, time.Second, &beacon{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return r
}

func never2(ctx context.Context) (termAnswer, error) {
	<-ctx.Done()
	return termAnswer{}, ctx.Err()
}

func TestRoundNeedsAMajorityOfTheVotersInTheSameTerm(t *testing.T) {
	five := []serverID{"a", "b", "c", "d", "e"}
	for _, c := range []struct {
		name   string
		voters []serverID
		terms  map[serverID]uint64 // 0: no answer
		ok     bool
	}{
		{"alone", []serverID{"a"}, nil, true},
		{"one of two", []serverID{"a", "b"}, nil, false},
		{"two of three", []serverID{"a", "b", "c"}, map[serverID]uint64{"b": 7}, true},
		{"two of five", five, map[serverID]uint64{"b": 7}, false},
		{"three of five", five, map[serverID]uint64{"b": 7, "e": 7}, true},
		{"one is behind", []serverID{"a", "b", "c"}, map[serverID]uint64{"b": 6}, false},
		{"one is beyond", five, map[serverID]uint64{"b": 7, "c": 8, "d": 7}, false},
		{"it has no vote itself", []serverID{"b", "c", "d"}, map[serverID]uint64{"b": 7}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &fakeHost{term: 7, leader: true, all: c.voters, commit: 42}
				r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
					if c.terms[to] == 0 {
						return never2(ctx)
					}
					if c.terms[to] == 7 {
						time.Sleep(time.Millisecond) // so that a later term is seen first
					}
					return termAnswer{round: round, term: c.terms[to], clock: 1}, nil
				})
				p, err := r.join(t.Context())
				if (err == nil) != c.ok {
					t.Fatalf("round: %v, want success %v", err, c.ok)
				}
				if c.ok && (p.term != 7 || p.commit != 42) {
					t.Errorf("proof %+v", p)
				}
			})
		})
	}
}

// The answer to a question of an earlier round was given before this round
// began: somebody may have been elected in between.
func TestAnswerOfAnEarlierRoundCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{term: 7, leader: true, all: []serverID{"a", "b", "c"}}
		var mu sync.Mutex
		silent := false
		r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
			mu.Lock()
			no := silent || to == "c"
			mu.Unlock()
			if no {
				return never2(ctx)
			}
			return termAnswer{round: round, term: 7}, nil
		})
		if _, err := r.join(t.Context()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		silent = true
		mu.Unlock()
		if _, err := r.join(t.Context()); !errors.Is(err, errRound) {
			t.Errorf("a round without answers: %v", err)
		}
	})
}

func TestLeaderDeposedDuringTheRoundProvesNothing(t *testing.T) {
	for _, regained := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := &fakeHost{term: 7, leader: true, all: []serverID{"a", "b", "c"}}
			r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
				time.Sleep(100 * time.Millisecond)
				return termAnswer{round: round, term: 7}, nil
			})
			time.AfterFunc(50*time.Millisecond, func() {
				h.set(func() { h.term, h.leader = 9, regained })
			})
			if p, err := r.join(t.Context()); err == nil {
				t.Errorf("regained %v: proof of term %d", regained, p.term)
			}
		})
	}
}

// What is asked while a round runs needs a round that begins later.
func TestWaitersShareTheNextRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{term: 7, leader: true, all: []serverID{"a", "b", "c"}, commit: 1}
		var mu sync.Mutex
		asked := map[uint64]bool{}
		r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
			mu.Lock()
			asked[round] = true
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return termAnswer{round: round, term: 7}, nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { _, _ = r.join(t.Context()) })
		time.Sleep(5 * time.Millisecond)
		h.set(func() { h.commit = 2 })
		for range 100 {
			wg.Go(func() {
				if p, err := r.join(t.Context()); err != nil || p.commit != 2 {
					t.Errorf("%+v, %v: the round began before the question", p, err)
				}
			})
		}
		wg.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 2 {
			t.Errorf("%d rounds for 101 questions, want 2", len(asked))
		}
	})
}

func TestFrozenVoterHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{term: 7, leader: true, all: []serverID{"a", "b", "c"}}
		r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
			if to == "b" {
				return never2(ctx)
			}
			return termAnswer{round: round, term: 7}, nil
		})
		start := time.Now()
		for range 10 {
			if _, err := r.join(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("ten rounds took %v", took)
		}
	})
}

// A voter may not have heard of a new leader's term yet. It is asked again, in
// the same round: it must not cost a timeout.
func TestVoterThatIsBehindIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeHost{term: 7, leader: true, all: []serverID{"a", "b", "c"}}
		start := time.Now()
		r := roundsWith(t, h, func(ctx context.Context, to serverID, round uint64) (termAnswer, error) {
			if to == "c" {
				return never2(ctx)
			}
			term := uint64(6)
			if time.Since(start) > 10*time.Millisecond {
				term = 7
			}
			return termAnswer{round: round, term: term}, nil
		})
		if _, err := r.join(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("the round took %v", took)
		}
	})
}

func TestLowerMedian(t *testing.T) {
	for _, c := range []struct {
		clocks []int64
		want   int64
	}{
		{[]int64{5}, 5},
		{[]int64{9, 5}, 5},
		{[]int64{5, 1 << 50}, 5},
		{[]int64{1 << 50, 5, 6}, 6},
		{[]int64{6, -1 << 50, 5}, 5},
		{[]int64{4, 1, 3, 2}, 2},
	} {
		if got := lowerMedian(c.clocks); got != c.want {
			t.Errorf("lowerMedian(%v) = %d, want %d", c.clocks, got, c.want)
		}
	}
}
