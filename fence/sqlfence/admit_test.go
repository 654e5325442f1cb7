package sqlfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// step is one admission: seen is the mark that refuses it, or 0.
type step struct{ token, seen fence.Token }

func TestAdmitRefusesOnlyLowerTokens(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		runSteps(t, b.migrated(t), []step{{41, 0}, {41, 0}, {42, 0}, {41, 42}, {42, 0}, {fence.MaxToken, 0}, {42, fence.MaxToken}})
	})
}

func TestStrictAdmitRefusesEqualTokensToo(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		runSteps(t, b.migrated(t), []step{{41, 0}, {41, 41}, {42, 0}, {41, 42}, {42, 42}, {43, 0}}, sqlfence.Strict())
	})
}

func runSteps(t *testing.T, db *database, steps []step, opts ...sqlfence.Option) {
	t.Helper()
	for i, s := range steps {
		tx := db.begin(t)
		err := db.admit(t.Context(), tx, "r", s.token, opts...)
		if s.seen == 0 && err != nil {
			t.Errorf("step %d: token %s: %v, want it admitted", i, s.token, err)
		}
		if s.seen != 0 {
			wantStale(t, err, s.token, s.seen)
		}
		if err := tx.Commit(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

func wantStale(t *testing.T, err error, got, seen fence.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) {
		t.Errorf("token %s: %v, want a *StaleError", got, err)
		return
	}
	if stale.Resource != "r" || stale.Got != got || stale.Seen != seen {
		t.Errorf("have %+v, want got %s seen %s", stale, got, seen)
	}
}

// admitLater admits in a goroutine and a transaction of its own and commits.
func admitLater(t *testing.T, db *database, token fence.Token) <-chan error {
	t.Helper()
	tx := db.begin(t)
	verdict := make(chan error, 1)
	go func() {
		err := db.admit(context.Background(), tx, "r", token)
		if err == nil {
			err = tx.Commit()
		} else {
			_ = tx.Rollback()
		}
		verdict <- err
	}()
	return verdict
}

func TestOlderHolderWaitsForNewerAndIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for name, before := range map[string][]step{"first use": nil, "later use": {{40, 0}}} {
			t.Run(name, func(t *testing.T) {
				db := b.migrated(t)
				runSteps(t, db, before)
				tx43 := db.begin(t)
				if err := db.admit(t.Context(), tx43, "r", 43); err != nil {
					t.Fatal(err)
				}
				older := admitLater(t, db, 42)
				db.waitBlocked(t, 1)
				if err := tx43.Commit(); err != nil {
					t.Fatal(err)
				}
				wantStale(t, <-older, 42, 43)
			})
		}
	})
}

func TestNewerHolderWaitsAndIsAdmitted(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for name, before := range map[string][]step{"first use": nil, "later use": {{40, 0}}} {
			t.Run(name, func(t *testing.T) {
				db := b.migrated(t)
				runSteps(t, db, before)
				tx43 := db.begin(t)
				if err := db.admit(t.Context(), tx43, "r", 43); err != nil {
					t.Fatal(err)
				}
				newer := admitLater(t, db, 44)
				db.waitBlocked(t, 1)
				if err := tx43.Commit(); err != nil {
					t.Fatal(err)
				}
				if err := <-newer; err != nil {
					t.Errorf("token 44: %v, want it admitted", err)
				}
				wantStale(t, <-admitLater(t, db, 43), 43, 44)
			})
		}
	})
}

// A transaction that rolls back has written nothing, so it has not been there.
func TestRolledBackHolderLeavesNoMark(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		tx43 := db.begin(t)
		if err := db.admit(t.Context(), tx43, "r", 43); err != nil {
			t.Fatal(err)
		}
		older := admitLater(t, db, 42)
		db.waitBlocked(t, 1)
		if err := tx43.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-older; err != nil {
			t.Errorf("token 42: %v, want it admitted", err)
		}
	})
}

func TestWaitForTheRowEndsWithContext(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		tx43 := db.begin(t)
		if err := db.admit(t.Context(), tx43, "r", 43); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error, 1)
		tx44 := db.begin(t)
		go func() { waiting <- db.admit(ctx, tx44, "r", 44) }()
		db.waitBlocked(t, 1)
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) {
			t.Errorf("have %v, want context.Canceled", err)
		}
	})
}
