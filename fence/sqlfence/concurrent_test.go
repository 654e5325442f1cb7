package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// TestWritersNeverGoBack has many writers with tokens of their own write at
// once. Each write is made under the row lock of its admission, so the order of
// the writes is the order of the admissions: tokens must not fall along it.
func TestWritersNeverGoBack(t *testing.T) {
	for name, level := range map[string]sql.IsolationLevel{
		"read committed":  sql.LevelReadCommitted,
		"repeatable read": sql.LevelRepeatableRead,
		"serializable":    sql.LevelSerializable,
	} {
		t.Run(name, func(t *testing.T) {
			db := database(t)
			admitted := writeConcurrently(t, db,
				sqlfence.TxOptions(&sql.TxOptions{Isolation: level}), sqlfence.Attempts(1000))
			if n := number(t, db, "SELECT count(*) FROM writes"); n != admitted {
				t.Errorf("%d writes are there, %d were reported", n, admitted)
			}
			const fallen = `SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY seq) AS before FROM writes) w WHERE token < before`
			if n := number(t, db, fallen); n != 0 {
				t.Errorf("%d writes came after one with a larger token", n)
			}
		})
	}
}

// writeConcurrently returns the number of writes that were reported as done. It
// lets tokens rise by a few for each write, so that most attempts are close to
// the mark, some below it.
func writeConcurrently(t *testing.T, db *sql.DB, opts ...sqlfence.Option) int64 {
	t.Helper()
	const workers, rounds = 6, 30
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for round := range rounds {
				token := fence.Token(1 + 10*round + (worker*7+round*3)%29)
				err := sqlfence.WithTx(context.Background(), db, "r", token, func(tx *sql.Tx) error {
					_, err := tx.Exec("INSERT INTO writes (token) VALUES ($1)", int64(token))
					return err
				}, opts...)
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
	db := database(t)
	store := sqlfence.NewStore(db, sqlfence.Strict())
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
}
