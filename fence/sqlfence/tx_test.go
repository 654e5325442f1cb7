package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

func TestWithTxCommitsMarkAndWriteTogether(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		if err := db.withTx(t.Context(), 34, db.write(t.Context(), 34)); err != nil {
			t.Fatal(err)
		}
		wantStale(t, db.withTx(t.Context(), 33, db.write(t.Context(), 33)), 33, 34)
		db.wantWrites(t, 1)
	})
}

func TestWithTxRollsBackOnErrorPanicAndExit(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		failure := errors.New("failure of the caller")
		fail := func(end func() error) func(*sql.Tx) error {
			return func(tx *sql.Tx) error {
				if err := db.write(t.Context(), 34)(tx); err != nil {
					return err
				}
				return end()
			}
		}
		if err := db.withTx(t.Context(), 34, fail(func() error { return failure })); err != failure { //nolint:errorlint // it must be the very same
			t.Errorf("have %v, want the caller's error as it is", err)
		}
		func() {
			defer func() {
				if got := recover(); got != "panic of the caller" {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = db.withTx(t.Context(), 34, fail(func() error { panic("panic of the caller") }))
		}()
		exited := make(chan struct{})
		go func() {
			defer close(exited)
			_ = db.withTx(context.Background(), 34, fail(func() error { runtime.Goexit(); return nil }))
		}()
		<-exited
		db.wantWrites(t, 0)
		if n := db.number(t, "SELECT count(*) FROM coord_fence"); n != 0 {
			t.Errorf("%d marks of transactions that were rolled back", n)
		}
		if open := db.Stats().InUse; open != 0 {
			t.Errorf("%d connections still in use", open)
		}
	})
}

func TestWithTxBeginsAgainWhenAsked(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		asked := repeatables[b.kind]
		for _, failure := range asked {
			runs := 0
			err := db.withTx(t.Context(), 34, func(tx *sql.Tx) error {
				if runs++; runs < 4 {
					return fmt.Errorf("wrapped: %w", failure)
				}
				return db.write(t.Context(), 34)(tx)
			})
			if err != nil || runs != 4 {
				t.Errorf("%v: %d runs, %v, want success in the fourth", failure, runs, err)
			}
		}
		db.wantWrites(t, int64(len(asked)))
	})
}

func TestWithTxGivesUpInTheEnd(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		last := repeatables[b.kind][0]
		for want, opts := range map[int][]sqlfence.Option{
			1:                        {sqlfence.Attempts(1)},
			3:                        {sqlfence.Attempts(3)},
			sqlfence.DefaultAttempts: nil,
		} {
			runs := 0
			err := db.withTx(t.Context(), 34, func(*sql.Tx) error { runs++; return last }, opts...)
			if runs != want || !errors.Is(err, last) {
				t.Errorf("%d runs, %v, want %d and the last error", runs, err, want)
			}
		}
	})
}

func TestWithTxDoesNotRepeatOtherErrors(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		for _, failure := range append(finals[b.kind], errors.New("no code"), fence.ErrStale) {
			runs := 0
			err := db.withTx(t.Context(), 34, func(*sql.Tx) error { runs++; return failure })
			if runs != 1 || err != failure { //nolint:errorlint // it must be the very same
				t.Errorf("%v: %d runs, %v", failure, runs, err)
			}
		}
	})
}

var errLockLost = errors.New("lock lost")

func TestLostLockEndsTheTransactionAndSaysWhy(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		for name, after := range map[string]func(tx *sql.Tx) error{
			"seen at the commit":       func(*sql.Tx) error { return nil },
			"seen at a statement":      func(tx *sql.Tx) error { _, err := tx.Exec("SELECT 1"); return err },
			"seen by the caller's ctx": func(tx *sql.Tx) error { return context.Canceled },
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				err := db.withTx(ctx, 34, func(tx *sql.Tx) error {
					if err := db.write(t.Context(), 34)(tx); err != nil {
						return err
					}
					cancel(errLockLost)
					return after(tx)
				})
				if !errors.Is(err, errLockLost) || errors.Is(err, sqlfence.ErrUnknownOutcome) {
					t.Errorf("have %v, want the cause of the context's end", err)
				}
				db.wantWrites(t, 0)
			})
		}
	})
}

func TestLostLockEndsTheWaitForTheRow(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		holder := db.begin(t)
		if err := db.admit(t.Context(), holder, "r", 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- db.withTx(ctx, 2, db.write(ctx, 2)) }()
		db.waitBlocked(t, 1)
		cancel(errLockLost)
		if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, errLockLost) {
			t.Errorf("have %v, want context.Canceled and its cause", err)
		}
	})
}

func TestLostLockEndsTheRepeating(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		runs := 0
		err := db.withTx(ctx, 34, func(*sql.Tx) error {
			if runs++; runs == 2 {
				cancel(errLockLost)
			}
			return repeatables[b.kind][0]
		}, sqlfence.Attempts(1<<30))
		if runs != 2 || !errors.Is(err, errLockLost) || !errors.Is(err, repeatables[b.kind][0]) {
			t.Errorf("%d runs, %v, want the cause and the database's last word", runs, err)
		}
	})
}

func TestCallerThatCommitsHimselfIsTold(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		err := db.withTx(t.Context(), 34, func(tx *sql.Tx) error { return tx.Commit() })
		if !errors.Is(err, sqlfence.ErrUnknownOutcome) || !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("have %v, want ErrUnknownOutcome and sql.ErrTxDone", err)
		}
	})
}
