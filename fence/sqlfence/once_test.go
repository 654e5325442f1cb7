package sqlfence_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// pay returns an fn that leaves a row behind and returns data.
func (d *database) pay(token fence.Token, data []byte) func(*sql.Tx) ([]byte, error) {
	return func(tx *sql.Tx) ([]byte, error) { return data, d.write(context.Background(), token)(tx) }
}

func unreachable(t *testing.T) func(*sql.Tx) ([]byte, error) {
	return func(*sql.Tx) ([]byte, error) { t.Error("fn ran"); return nil, nil }
}

func wantResult(t *testing.T, got sqlfence.Result, err error, data []byte, token fence.Token, repeated bool) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("have %v, want a result", err)
	case !bytes.Equal(got.Data, data), (got.Data == nil) != (data == nil):
		t.Errorf("data %.80q (nil: %v), want %.80q (nil: %v)", got.Data, got.Data == nil, data, data == nil)
	case got.Token != token || got.Repeated != repeated:
		t.Errorf("token %s, repeated %v, want %s, %v", got.Token, got.Repeated, token, repeated)
	}
}

func TestRepeatReturnsTheStoredResult(t *testing.T) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		for name, data := range map[string][]byte{
			"nil": nil, "empty": {}, "every byte": every, "the largest": bytes.Repeat([]byte{'\'', 0}, sqlfence.MaxResultBytes/2),
		} {
			t.Run(name, func(t *testing.T) {
				op := sqlfence.Operation{ID: name, Resource: "r " + name, Token: 34}
				got, err := db.once(t.Context(), op, db.pay(34, data))
				wantResult(t, got, err, data, 34, false)
				for _, token := range []fence.Token{34, 35, 33} {
					op.Token = token
					got, err := db.once(t.Context(), op, unreachable(t))
					wantResult(t, got, err, data, 34, true)
				}
			})
		}
		db.wantWrites(t, 4)
	})
}

func TestTooLargeResultIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 34}
		if _, err := db.once(t.Context(), op, db.pay(34, make([]byte, sqlfence.MaxResultBytes+1))); !errors.Is(err, sqlfence.ErrResultTooLarge) {
			t.Errorf("have %v, want ErrResultTooLarge", err)
		}
		db.wantWrites(t, 0)
		got, err := db.once(t.Context(), op, db.pay(34, []byte("shorter")))
		wantResult(t, got, err, []byte("shorter"), 34, false)
	})
}

// A double click: two attempts, each with a token that is good.
func TestConcurrentRepeatsRunOnce(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		for name, level := range b.levels {
			t.Run(name, func(t *testing.T) { repeatAtOnce(t, b.migrated(t), level) })
		}
	})
}

func TestConcurrentRepeatsRunOnceWithSnapshotIsolation(t *testing.T) {
	b := mariadb("MariaDB", "?innodb_snapshot_isolation=ON")
	repeatAtOnce(t, b.migrated(t), sql.LevelRepeatableRead)
}

func repeatAtOnce(t *testing.T, db *database, level sql.IsolationLevel) {
	t.Helper()
	opts := []sqlfence.Option{sqlfence.TxOptions(&sql.TxOptions{Isolation: level}), sqlfence.Attempts(100)}
	const calls = 16
	var runs, first atomic.Int64
	var wg sync.WaitGroup
	for i := range calls {
		token := fence.Token(34 + i%2)
		wg.Go(func() {
			op := sqlfence.Operation{ID: "pay-7", Resource: "r", Token: token}
			got, err := db.once(context.Background(), op, func(tx *sql.Tx) ([]byte, error) {
				runs.Add(1)
				return db.pay(token, []byte("receipt"))(tx)
			}, opts...)
			if err != nil || string(got.Data) != "receipt" {
				t.Errorf("%+v, %v", got, err)
			}
			if !got.Repeated {
				first.Add(1)
			}
		})
	}
	wg.Wait()
	if runs.Load() != 1 || first.Load() != 1 {
		t.Errorf("fn ran %d times, %d calls say that they applied it", runs.Load(), first.Load())
	}
	db.wantWrites(t, 1)
}

func TestStaleTokenIsRefusedOnlyWhereThereIsSomethingToApply(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		got, err := db.once(t.Context(), sqlfence.Operation{ID: "done", Resource: "r", Token: 12}, db.pay(12, []byte("paid")))
		wantResult(t, got, err, []byte("paid"), 12, false)
		if err := db.store().Admit(t.Context(), "r", 13); err != nil {
			t.Fatal(err)
		}
		got, err = db.once(t.Context(), sqlfence.Operation{ID: "done", Resource: "r", Token: 12}, unreachable(t))
		wantResult(t, got, err, []byte("paid"), 12, true)
		late := sqlfence.Operation{ID: "not done", Resource: "r", Token: 12}
		_, err = db.once(t.Context(), late, unreachable(t))
		wantStale(t, err, 12, 13)
		// The refusal has left nothing: the rightful holder applies it.
		late.Token = 13
		got, err = db.once(t.Context(), late, db.pay(13, nil))
		wantResult(t, got, err, nil, 13, false)
		db.wantWrites(t, 2)
	})
}

func TestFailedAttemptLeavesTheOperationToTheNext(t *testing.T) {
	failure := errors.New("failure of the caller")
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 35}
		first := make(chan error, 1)
		in, fail := make(chan struct{}), make(chan struct{})
		go func() {
			_, err := db.once(context.Background(), op, func(tx *sql.Tx) ([]byte, error) {
				close(in)
				<-fail
				_, err := db.pay(35, nil)(tx)
				return []byte("lost"), errors.Join(failure, err)
			})
			first <- err
		}()
		<-in
		second := make(chan sqlfence.Result, 1)
		older := op
		older.Token = 34 // nobody with 35 has been there in the end
		go func() {
			got, err := db.once(context.Background(), older, db.pay(34, []byte("second")))
			if err != nil {
				t.Error(err)
			}
			second <- got
		}()
		db.waitBlocked(t, 1)
		close(fail)
		if err := <-first; !errors.Is(err, failure) {
			t.Errorf("have %v, want the caller's error", err)
		}
		got := <-second
		wantResult(t, got, nil, []byte("second"), 34, false)
		db.wantWrites(t, 1)
	})
}

func TestReusedIDIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		got, err := db.once(t.Context(), sqlfence.Operation{ID: "o", Resource: "r", Token: 1}, db.pay(1, nil))
		wantResult(t, got, err, nil, 1, false)
		for _, other := range []string{"s", "R", "r ", ""} {
			_, err := db.once(t.Context(), sqlfence.Operation{ID: "o", Resource: other, Token: 1}, unreachable(t))
			if !errors.Is(err, sqlfence.ErrOperationReused) {
				t.Errorf("resource %q: %v, want ErrOperationReused", other, err)
			}
		}
		// One space of IDs for each table.
		other := sqlfence.OperationsTable("other_operations")
		if err := db.migrate(t, other); err != nil {
			t.Fatal(err)
		}
		got, err = db.once(t.Context(), sqlfence.Operation{ID: "o", Resource: "s", Token: 1}, db.pay(1, nil), other)
		wantResult(t, got, err, nil, 1, false)
		db.wantWrites(t, 2)
	})
}

// Where fn admits by itself, and where no lock is in play.
func TestOperationWithoutResource(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		got, err := db.once(t.Context(), sqlfence.Operation{ID: "unlocked"}, db.pay(1, nil))
		wantResult(t, got, err, nil, 0, false)
		got, err = db.once(t.Context(), sqlfence.Operation{ID: "unlocked"}, unreachable(t))
		wantResult(t, got, err, nil, 0, true)

		transfer := func(ctx context.Context, from, to fence.Token) (sqlfence.Result, error) {
			return db.once(ctx, sqlfence.Operation{ID: "transfer", Token: from}, func(tx *sql.Tx) ([]byte, error) {
				if err := db.admit(ctx, tx, "wallet/a", from, sqlfence.Lock("/locks/a")); err != nil {
					return nil, err
				}
				if err := db.admit(ctx, tx, "wallet/b", to, sqlfence.Lock("/locks/b")); err != nil {
					return nil, err
				}
				return []byte("moved"), db.write(ctx, from)(tx)
			})
		}
		if err := db.store(sqlfence.Lock("/locks/b")).Admit(t.Context(), "wallet/b", 9); err != nil {
			t.Fatal(err)
		}
		if _, err := transfer(t.Context(), 20, 8); !errors.Is(err, fence.ErrStale) {
			t.Errorf("have %v, want it refused by the second wallet", err)
		}
		got, err = transfer(t.Context(), 19, 9)
		wantResult(t, got, err, []byte("moved"), 19, false)
		db.wantWrites(t, 2)
	})
}

func TestBadOperationIsRefused(t *testing.T) {
	for name, id := range map[string]string{"empty": "", "zero byte": "a\x00", "not UTF-8": "\xff", "long": string(make([]byte, 1025))} {
		op := sqlfence.Operation{ID: id, Resource: "r", Token: 1}
		if _, err := sqlfence.Once(t.Context(), nil, op, unreachable(t)); !errors.Is(err, sqlfence.ErrInvalidOperation) {
			t.Errorf("%s: %v, want ErrInvalidOperation", name, err)
		}
	}
	for _, token := range []fence.Token{fence.MaxToken + 1} {
		if _, err := sqlfence.Once(t.Context(), nil, sqlfence.Operation{ID: "o", Token: token}, unreachable(t)); !errors.Is(err, fence.ErrInvalidToken) {
			t.Errorf("token %s without resource: %v, want ErrInvalidToken", token, err)
		}
	}
}

func TestLostLockEndsAnOperationAndSaysWhy(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		op := sqlfence.Operation{ID: "o", Resource: "r", Token: 34}
		_, err := db.once(ctx, op, func(tx *sql.Tx) ([]byte, error) {
			data, err := db.pay(34, []byte("late"))(tx)
			cancel(errLockLost)
			return data, err
		})
		if !errors.Is(err, errLockLost) || errors.Is(err, sqlfence.ErrUnknownOutcome) {
			t.Errorf("have %v, want the cause of the context's end", err)
		}
		db.wantWrites(t, 0)
		got, err := db.once(t.Context(), op, db.pay(34, nil))
		wantResult(t, got, err, nil, 34, false)
	})
}
