package demo

import (
	"context"

	"github.com/coordd/coord/fence"
)

// naiveStore is a lock as a store with one primary and one replica has it: the
// primary answers at once and tells the replica a moment later, which does not
// come here. The counter of tokens is in the store, too.
type naiveStore struct {
	primary, replica naiveState
}

type naiveState struct {
	holder  string // "" nobody
	counter fence.Token
}

// acquire answers before the replica knows of it.
func (s *naiveStore) acquire(who string) (fence.Token, bool) {
	if s.primary.holder != "" {
		return 0, false
	}
	s.primary.holder = who
	s.primary.counter++
	return s.primary.counter, true
}

// failover makes the replica the primary, with what it knows.
func (s *naiveStore) failover() { s.primary = s.replica }

// naiveFailover is the schedule of [Failover] against a naiveStore.
func naiveFailover(ctx context.Context, s *stage) error {
	ledger, err := s.startLedger(ctx)
	if err != nil {
		return err
	}
	store := naiveStore{replica: naiveState{counter: firstNaive - 1}}
	store.failover() // both know the same
	s.say("store", "a primary and a replica: the primary answers first and tells the replica later")
	first, _ := store.acquire("A")
	s.say("A", "has the lock: token %s; at once the primary is killed, the replica untold", first)
	a, err := ledger.enter(ctx, "A", first)
	if err != nil {
		return err
	}
	store.failover()
	s.say("store", "the replica takes over; it has never heard of A")
	second, ok := store.acquire("B")
	if !ok {
		return s.broken(ErrUnexpected, "the replica knew of A's lock")
	}
	s.say("B", "gets the lock, too: token %s", second)
	b, err := ledger.enter(ctx, "B", second)
	if err != nil {
		return err
	}
	for _, id := range []int64{a, b} {
		if err := ledger.leave(ctx, id); err != nil {
			return err
		}
	}
	overlaps, err := ledger.overlaps(ctx)
	if err != nil {
		return err
	}
	s.say("database", "%d times two owners at once", overlaps)
	if overlaps == 0 {
		return s.kept("there was no second owner")
	}
	if first == second {
		s.say("database", "both have token %s: no fence can tell them apart", first)
	}
	return s.broken(ErrDoubleOwner, "A's grant was acknowledged and forgotten, and B was in at the same time")
}

// firstNaive is the first token of the naive store, as the story has it.
const firstNaive fence.Token = 33
