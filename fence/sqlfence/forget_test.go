package sqlfence_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/fence/sqlfence"
)

// age makes the operations older by an hour.
var age = map[sqlfence.Database]string{
	sqlfence.PostgreSQL: "UPDATE coord_operations SET created_at = created_at - interval '1 hour'",
	sqlfence.MySQL:      "UPDATE coord_operations SET created_at = created_at - INTERVAL 1 HOUR",
	sqlfence.SQLite:     "UPDATE coord_operations SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', created_at, '-1 hour')",
}

func (d *database) forget(t *testing.T, olderThan time.Duration, want int64) {
	t.Helper()
	if n, err := sqlfence.Forget(t.Context(), d.DB, olderThan, d.opts(nil)...); err != nil || n != want {
		t.Errorf("forgot %d, %v, want %d", n, err, want)
	}
}

func TestForgetTakesOnlyTheOld(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		old, young := sqlfence.Operation{ID: "old"}, sqlfence.Operation{ID: "young"}
		got, err := db.once(t.Context(), old, db.pay(1, []byte("old")))
		wantResult(t, got, err, []byte("old"), 0, false)
		exec(t, db, age[b.kind])
		got, err = db.once(t.Context(), young, db.pay(1, nil))
		wantResult(t, got, err, nil, 0, false)

		db.forget(t, 61*time.Minute, 0)
		db.forget(t, 59*time.Minute, 1)
		db.forget(t, 59*time.Minute, 0)
		got, err = db.once(t.Context(), young, unreachable(t))
		wantResult(t, got, err, nil, 0, true)
		got, err = db.once(t.Context(), old, db.pay(1, []byte("anew")))
		wantResult(t, got, err, []byte("anew"), 0, false)
	})
}

func TestForgetGoesInBatches(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		const many = 2500
		numbers := fmt.Sprintf("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT ", many)
		switch b.kind {
		case sqlfence.PostgreSQL:
			exec(t, db, "INSERT INTO coord_operations (id, resource, token) "+numbers+"i::text, '', 0 FROM n")
		case sqlfence.MySQL:
			exec(t, db, "SET STATEMENT max_recursive_iterations = 10000 FOR INSERT INTO coord_operations (id, resource, token, created_at) "+numbers+"i, '', 0, UTC_TIMESTAMP(6) FROM n")
		default:
			exec(t, db, "INSERT INTO coord_operations (id, resource, token) "+numbers+"CAST(i AS TEXT), '', 0 FROM n")
		}
		exec(t, db, age[b.kind])
		db.forget(t, time.Minute, many)
		if n := db.number(t, "SELECT count(*) FROM coord_operations"); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}

func TestForgetRefusesToForgetEverything(t *testing.T) {
	for _, d := range []time.Duration{0, -1} {
		if _, err := sqlfence.Forget(t.Context(), nil, d); !errors.Is(err, sqlfence.ErrInvalidOption) {
			t.Errorf("%v: %v, want ErrInvalidOption", d, err)
		}
	}
}

// Repeats and forgetting may meet at any point: each repeat is answered, either
// with the result that is stored or by applying it anew.
func TestForgettingBesideRepeats(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := sqlfence.Forget(context.Background(), db.DB, time.Nanosecond, db.opts([]sqlfence.Option{sqlfence.Attempts(1000)})...); err != nil {
					t.Error(err)
				}
			}
		})
		var repeats sync.WaitGroup
		for range 4 {
			repeats.Go(func() {
				for range 15 {
					got, err := db.once(context.Background(), sqlfence.Operation{ID: "o"}, db.pay(1, []byte("result")), sqlfence.Attempts(1000))
					if err != nil || string(got.Data) != "result" {
						t.Errorf("%+v, %v", got, err)
					}
				}
			})
		}
		repeats.Wait()
		stop()
		wg.Wait()
	})
}
