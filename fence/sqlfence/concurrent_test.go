package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// TestWritersNeverGoBack has many writers with tokens of their own write at
// once. Each write is made under the lock of its admission, so the order of the
// writes is the order of the admissions: tokens must not fall along it.
func TestWritersNeverGoBack(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for name, level := range b.levels {
			t.Run(name, func(t *testing.T) { writersNeverGoBack(t, b.migrated(t), level) })
		}
	})
}

// MariaDB can refuse to change what is newer than the transaction's view.
func TestWritersNeverGoBackWithSnapshotIsolation(t *testing.T) {
	b := mariadb("MariaDB", "?innodb_snapshot_isolation=ON")
	for name, level := range b.levels {
		t.Run(name, func(t *testing.T) { writersNeverGoBack(t, b.migrated(t), level) })
	}
}

// Without a time to wait SQLite answers at once that it is busy.
func TestWritersNeverGoBackWhereNobodyWaits(t *testing.T) {
	b := sqlite("SQLite", "wal")
	create := b.create
	b.create = func(t *testing.T) string {
		return strings.Replace(create(t), "busy_timeout(20000)", "busy_timeout(0)", 1)
	}
	writersNeverGoBack(t, b.migrated(t), sql.LevelDefault)
}

// With a time to wait nobody has to begin again: an admission that is the first
// statement waits for its turn, as BEGIN IMMEDIATE does, and does not find that
// its view is too old.
func TestSQLiteWritersWaitForTheirTurn(t *testing.T) {
	for _, journal := range []string{"wal", "delete"} {
		t.Run(journal, func(t *testing.T) {
			db := sqlite("SQLite", journal).migrated(t)
			db.wantWrites(t, writeConcurrently(t, db, sqlfence.Attempts(1)))
		})
	}
}

func writersNeverGoBack(t *testing.T, db *database, level sql.IsolationLevel) {
	t.Helper()
	admitted := writeConcurrently(t, db, sqlfence.TxOptions(&sql.TxOptions{Isolation: level}), sqlfence.Attempts(1000))
	db.wantWrites(t, admitted)
	const fallen = `SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY seq) AS earlier FROM writes) w WHERE token < earlier`
	if n := db.number(t, fallen); n != 0 {
		t.Errorf("%d writes came after one with a larger token", n)
	}
	if mark, last := db.number(t, "SELECT token FROM coord_fence"), db.number(t, "SELECT max(token) FROM writes"); mark != last {
		t.Errorf("the mark is %d, the largest token that wrote %d", mark, last)
	}
}

// writeConcurrently returns the number of writes that were reported as done. It
// lets tokens rise by a few for each write, so that most attempts are close to
// the mark, some below it.
func writeConcurrently(t *testing.T, db *database, opts ...sqlfence.Option) int64 {
	t.Helper()
	const workers, rounds = 6, 25
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for round := range rounds {
				token := fence.Token(1 + 10*round + (worker*7+round*3)%29)
				err := db.withTx(context.Background(), token, db.write(context.Background(), token), opts...)
				switch {
				case err == nil:
					admitted.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				default:
					t.Errorf("token %s: %v", token, err)
				}
			}
		})
	}
	wg.Wait()
	if admitted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d admitted, %d refused: the writers did not meet", admitted.Load(), refused.Load())
	}
	return admitted.Load()
}

func TestStrictStoreAdmitsEachTokenOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		store := b.migrated(t).store(sqlfence.Strict())
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				err := store.Admit(context.Background(), "r", 7)
				if err == nil {
					admitted.Add(1)
				} else if !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := admitted.Load(); n != 1 {
			t.Errorf("token 7 was admitted %d times", n)
		}
	})
}

// A paused worker comes back again and again, each time after a newer one.
func TestHundredOfHundredLateWritesAreRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		for i := range 100 {
			late, newer := fence.Token(2*i+1), fence.Token(2*i+2)
			if err := db.withTx(t.Context(), newer, db.write(t.Context(), newer)); err != nil {
				t.Fatal(err)
			}
			wantStale(t, db.withTx(t.Context(), late, db.write(t.Context(), late)), late, newer)
		}
		db.wantWrites(t, 100)
		if n := db.number(t, "SELECT count(*) FROM writes WHERE token % 2 = 1"); n != 0 {
			t.Errorf("%d late writes are there", n)
		}
	})
}
