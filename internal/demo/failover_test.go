package demo

import (
	"errors"
	"io"
	"slices"
	"testing"
)

// The store that answers before it tells its replica grants a lock twice, under
// one token.
func TestNaiveStoreForgetsAGrant(t *testing.T) {
	s := naiveStore{replica: naiveState{counter: 32}}
	s.failover()
	first, ok := s.acquire("A")
	if _, again := s.acquire("B"); !ok || again {
		t.Fatal("it is not even a lock")
	}
	s.failover()
	if second, ok := s.acquire("B"); !ok || second != first {
		t.Errorf("after the failover: %s, %t; the first had %s", second, ok, first)
	}
}

// The database sees two that were in at once, and none where one came after the
// other.
func TestLedgerSeesTwoAtOnce(t *testing.T) {
	ctx := t.Context()
	l := ledger{testDatabase(t, ledgerSchema).DB}
	enter := func(who string) int64 {
		id, err := l.enter(ctx, who, 1)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	leave := func(id int64) {
		if err := l.leave(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, overlaps int64) {
		t.Helper()
		if n, err := l.overlaps(ctx); err != nil || n != overlaps {
			t.Errorf("%s: %d overlaps, want %d (%v)", when, n, overlaps, err)
		}
	}
	leave(enter("A"))
	leave(enter("B"))
	want("one after the other", 0)
	a := enter("A")
	want("one is in", 0)
	leave(enter("B"))
	want("one in the other's time", 1)
	leave(a)
	leave(enter("C"))
	want("and one after both", 1)
}

// Without a quorum the demonstration has no cluster to ask, and shows it always.
func TestFailoverWithoutQuorumHasTwoOwners(t *testing.T) {
	postgres.Get(t) // skips visibly where there is none
	err := Failover(t.Context(), FailoverOptions{Options: Options{Without: []Layer{Quorum}, Out: io.Discard}, Rounds: 1})
	if !errors.Is(err, ErrDoubleOwner) || errors.Is(err, ErrGrantLost) {
		t.Errorf("%v", err)
	}
}

// Names of queue entries begin with random parts, and numbers get longer.
func TestEntriesStandInTheOrderOfTheirNumbers(t *testing.T) {
	names := []string{"_c_b-lock-10000000000", "_c_z-lock-0000000002", "_c_a-lock-9999999999", "lock-0000000001"}
	slices.SortFunc(names, byNumber)
	want := []string{"lock-0000000001", "_c_z-lock-0000000002", "_c_a-lock-9999999999", "_c_b-lock-10000000000"}
	if !slices.Equal(names, want) {
		t.Errorf("%v", names)
	}
}
