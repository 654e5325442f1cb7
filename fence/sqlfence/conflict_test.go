package sqlfence_test

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fence/sqlfence"
)

// TestDeadlockIsResolved crosses two resources, which the server ends for one of
// the two; both must succeed in the end.
func TestDeadlockIsResolved(t *testing.T) {
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		bothIn := make(chan struct{}, 2)
		met := make(chan struct{})
		go func() { <-bothIn; <-bothIn; close(met) }()
		var runs atomic.Int64
		cross := func(first, second string) <-chan error {
			done := make(chan error, 1)
			go func() {
				meet := sync.OnceFunc(func() { bothIn <- struct{}{}; <-met })
				done <- sqlfence.WithTx(context.Background(), db.DB, first, 1, func(tx *sql.Tx) error {
					runs.Add(1)
					meet()
					return db.admit(context.Background(), tx, second, 1)
				}, db.opts(nil)...)
			}()
			return done
		}
		one, other := cross("a", "b"), cross("b", "a")
		for _, done := range []<-chan error{one, other} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if runs.Load() < 3 {
			t.Error("neither had to begin again: they did not meet")
		}
	})
}

// A server may give up the wait for a row, which is no answer to an admission.
func TestLockWaitTimeoutIsRepeated(t *testing.T) {
	skipIfShort(t)
	onServers(t, func(t *testing.T, b *backend) {
		dsn := b.create(t)
		switch {
		case b.kind == sqlfence.PostgreSQL:
			dsn += " lock_timeout=300ms"
		case strings.Contains(dsn, "?"):
			dsn += "&innodb_lock_wait_timeout=1"
		default:
			dsn += "?innodb_lock_wait_timeout=1"
		}
		db := &database{DB: b.open(t, dsn), backend: b}
		if err := db.migrate(t); err != nil {
			t.Fatal(err)
		}
		exec(t, db, b.createWrites)
		repeatsAfterTimeout(t, db)
	})
}

func repeatsAfterTimeout(t *testing.T, db *database) {
	t.Helper()
	holder := db.begin(t)
	if err := db.admit(t.Context(), holder, "r", 43); err != nil {
		t.Fatal(err)
	}
	var gaveUp atomic.Int64
	count := sqlfence.Classify(func(error) sqlfence.Verdict { gaveUp.Add(1); return sqlfence.Unclear })
	verdict := make(chan error, 1)
	go func() { verdict <- db.withTx(context.Background(), 42, db.write(context.Background(), 42), count) }()
	eventually(t, "the end of the first wait", func() bool { return gaveUp.Load() > 0 })
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	wantStale(t, <-verdict, 42, 43)
}

// At the first use two that wait for a row that is then rolled back can meet in
// the gap it leaves.
func TestFirstUseSurvivesARollbackWithManyWaiters(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		holder := db.begin(t)
		if err := db.admit(t.Context(), holder, "r", 43); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		const waiters = 5
		for range waiters {
			wg.Go(func() {
				if err := db.withTx(context.Background(), 42, db.write(context.Background(), 42)); err != nil {
					t.Error(err)
				}
			})
		}
		db.waitBlocked(t, waiters)
		if err := holder.Rollback(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		db.wantWrites(t, waiters)
	})
}

// An admission after a read may come too late for SQLite. It must not wait in
// vain, and the error is one of those that WithTx begins again for.
func TestAdmissionAfterAnOldReadHasToBeginAgain(t *testing.T) {
	b := sqlite("SQLite", "wal")
	db := b.migrated(t)
	if err := db.store().Admit(t.Context(), "r", 1); err != nil {
		t.Fatal(err)
	}
	runs := 0
	// Another database lends its way of beginning again.
	err := b.migrated(t).withTx(t.Context(), 1, func(*sql.Tx) error {
		runs++
		tx := db.begin(t)
		defer func() { _ = tx.Rollback() }()
		var before int64
		if err := tx.QueryRow("SELECT token FROM coord_fence WHERE resource = 'r'").Scan(&before); err != nil {
			return err
		}
		if runs == 1 { // somebody is faster
			if err := db.store().Admit(t.Context(), "r", 2); err != nil {
				return err
			}
		}
		if err := db.admit(t.Context(), tx, "r", 3); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil || runs != 2 {
		t.Errorf("%d runs, %v, want success in the second", runs, err)
	}
}

func TestStoreWaitsForAWriterAndAnswers(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		store := db.store(sqlfence.TxOptions(&sql.TxOptions{Isolation: b.strictest()}))
		holder := db.begin(t)
		if err := db.admit(t.Context(), holder, "r", 43); err != nil {
			t.Fatal(err)
		}
		verdict := make(chan error, 1)
		go func() { verdict <- store.Admit(context.Background(), "r", 42) }()
		db.waitBlocked(t, 1)
		if err := holder.Commit(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-verdict:
			wantStale(t, err, 42, 43) // not that it cannot be serialized, which it was given at first
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
	})
}

// TestAFirstReadAfterAdmitSeesTheHolderBefore is why the mark comes first: what
// the transaction sees must not be older than its admission.
func TestAFirstReadAfterAdmitSeesTheHolderBefore(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for name, level := range b.levels {
			t.Run(name, func(t *testing.T) {
				db := b.migrated(t)
				holder := db.begin(t)
				if err := db.admit(t.Context(), holder, "r", 43); err != nil {
					t.Fatal(err)
				}
				var seen atomic.Int64
				done := make(chan error, 1)
				go func() {
					done <- db.withTx(context.Background(), 44, func(tx *sql.Tx) error {
						var n int64
						err := tx.QueryRow("SELECT count(*) FROM writes").Scan(&n)
						seen.Store(n)
						return err
					}, sqlfence.TxOptions(&sql.TxOptions{Isolation: level}))
				}()
				db.waitBlocked(t, 1)
				if err := db.write(t.Context(), 43)(holder); err != nil {
					t.Fatal(err)
				}
				if err := holder.Commit(); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if n := seen.Load(); n != 1 {
					t.Errorf("the newer holder saw %d writes, not the one before it", n)
				}
			})
		}
	})
}

func (b *backend) strictest() sql.IsolationLevel {
	strictest := sql.LevelDefault
	for _, level := range b.levels {
		strictest = max(strictest, level)
	}
	return strictest
}
