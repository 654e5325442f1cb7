package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

// coded is an error as the drivers for PostgreSQL have it.
type coded string

func (c coded) Error() string    { return "server says " + string(c) }
func (c coded) SQLState() string { return string(c) }

func write(ctx context.Context, token fence.Token) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO writes (token) VALUES ($1)", int64(token))
		return err
	}
}

func wantWrites(t *testing.T, db *sql.DB, want int64) {
	t.Helper()
	if n := number(t, db, "SELECT count(*) FROM writes"); n != want {
		t.Errorf("%d writes, want %d", n, want)
	}
}

func TestWithTxCommitsMarkAndWriteTogether(t *testing.T) {
	db := database(t)
	if err := sqlfence.WithTx(t.Context(), db, "r", 34, write(t.Context(), 34)); err != nil {
		t.Fatal(err)
	}
	wantStale(t, sqlfence.WithTx(t.Context(), db, "r", 33, write(t.Context(), 33)), 33, 34)
	wantWrites(t, db, 1)
}

func TestWithTxRollsBackOnErrorPanicAndExit(t *testing.T) {
	db := database(t)
	failure := errors.New("failure of the caller")
	fail := func(end func() error) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			if err := write(t.Context(), 34)(tx); err != nil {
				return err
			}
			return end()
		}
	}
	if err := sqlfence.WithTx(t.Context(), db, "r", 34, fail(func() error { return failure })); err != failure { //nolint:errorlint // it must be the very same
		t.Errorf("have %v, want the caller's error as it is", err)
	}
	func() {
		defer func() {
			if got := recover(); got != "panic of the caller" {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = sqlfence.WithTx(t.Context(), db, "r", 34, fail(func() error { panic("panic of the caller") }))
	}()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = sqlfence.WithTx(context.Background(), db, "r", 34, fail(func() error { runtime.Goexit(); return nil }))
	}()
	<-exited
	wantWrites(t, db, 0)
	if n := number(t, db, "SELECT count(*) FROM coord_fence"); n != 0 {
		t.Errorf("%d marks of transactions that were rolled back", n)
	}
	if open := db.Stats().InUse; open != 0 {
		t.Errorf("%d connections still in use", open)
	}
}

func TestWithTxBeginsAgainWhenAsked(t *testing.T) {
	db := database(t)
	for _, state := range []coded{"40001", "40P01"} {
		runs := 0
		err := sqlfence.WithTx(t.Context(), db, "r", 34, func(tx *sql.Tx) error {
			if runs++; runs < 4 {
				return fmt.Errorf("wrapped: %w", state)
			}
			return write(t.Context(), 34)(tx)
		})
		if err != nil || runs != 4 {
			t.Errorf("%s: %d runs, %v, want success in the fourth", string(state), runs, err)
		}
	}
	wantWrites(t, db, 2)
}

func TestWithTxGivesUpInTheEnd(t *testing.T) {
	db := database(t)
	for want, opts := range map[int][]sqlfence.Option{
		1:                        {sqlfence.Attempts(1)},
		3:                        {sqlfence.Attempts(3)},
		sqlfence.DefaultAttempts: nil,
	} {
		runs := 0
		err := sqlfence.WithTx(t.Context(), db, "r", 34, func(*sql.Tx) error { runs++; return coded("40001") }, opts...)
		if runs != want || !errors.Is(err, coded("40001")) {
			t.Errorf("%d runs, %v, want %d and the last error", runs, err, want)
		}
	}
}

func TestWithTxDoesNotRepeatOtherErrors(t *testing.T) {
	db := database(t)
	for _, failure := range []error{coded("23505"), coded("40003"), coded("08006"), errors.New("no code"), fence.ErrStale} {
		runs := 0
		err := sqlfence.WithTx(t.Context(), db, "r", 34, func(*sql.Tx) error { runs++; return failure })
		if runs != 1 || err != failure { //nolint:errorlint // it must be the very same
			t.Errorf("%v: %d runs, %v", failure, runs, err)
		}
	}
}

// TestDeadlockIsResolved crosses two resources, which the server answers with
// 40P01 to one of the two; both must succeed in the end.
func TestDeadlockIsResolved(t *testing.T) {
	db := database(t)
	exec(t, db, "ALTER SYSTEM SET deadlock_timeout = '20ms'")
	exec(t, db, "SELECT pg_reload_conf()")
	eventually(t, "the setting", func() bool {
		return number(t, db, "SELECT setting::bigint FROM pg_settings WHERE name = 'deadlock_timeout'") == 20
	})
	bothIn := make(chan struct{}, 2)
	met := make(chan struct{})
	go func() { <-bothIn; <-bothIn; close(met) }()
	var runs atomic.Int64
	cross := func(first, second string) <-chan error {
		done := make(chan error, 1)
		go func() {
			meet := sync.OnceFunc(func() { bothIn <- struct{}{}; <-met })
			done <- sqlfence.WithTx(context.Background(), db, first, 1, func(tx *sql.Tx) error {
				runs.Add(1)
				meet()
				return sqlfence.Admit(context.Background(), tx, second, 1)
			})
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
}

var errLockLost = errors.New("lock lost")

func TestLostLockEndsTheTransactionAndSaysWhy(t *testing.T) {
	db := database(t)
	for name, after := range map[string]func(tx *sql.Tx) error{
		"seen at the commit":       func(*sql.Tx) error { return nil },
		"seen at a statement":      func(tx *sql.Tx) error { _, err := tx.Exec("SELECT 1"); return err },
		"seen by the caller's ctx": func(tx *sql.Tx) error { return context.Canceled },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			err := sqlfence.WithTx(ctx, db, "r", 34, func(tx *sql.Tx) error {
				if err := write(t.Context(), 34)(tx); err != nil {
					return err
				}
				cancel(errLockLost)
				return after(tx)
			})
			if !errors.Is(err, errLockLost) || errors.Is(err, sqlfence.ErrUnknownOutcome) {
				t.Errorf("have %v, want the cause of the context's end", err)
			}
			wantWrites(t, db, 0)
		})
	}
}

func TestLostLockEndsTheWaitForTheRow(t *testing.T) {
	db := database(t)
	holder := begin(t, db)
	if err := sqlfence.Admit(t.Context(), holder, "r", 1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- sqlfence.WithTx(ctx, db, "r", 2, write(ctx, 2)) }()
	waitBlocked(t, db, 1)
	cancel(errLockLost)
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, errLockLost) {
		t.Errorf("have %v, want context.Canceled and its cause", err)
	}
}

func TestLostLockEndsTheRepeating(t *testing.T) {
	db := database(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	runs := 0
	err := sqlfence.WithTx(ctx, db, "r", 34, func(*sql.Tx) error {
		if runs++; runs == 2 {
			cancel(errLockLost)
		}
		return coded("40001")
	}, sqlfence.Attempts(1<<30))
	if runs != 2 || !errors.Is(err, errLockLost) || !errors.Is(err, coded("40001")) {
		t.Errorf("%d runs, %v, want the cause and the database's last word", runs, err)
	}
}

// TestLostConnectionAtCommitIsUnknown has the server cut the connection before
// it hears of the commit. The client cannot tell this from a lost answer.
func TestLostConnectionAtCommitIsUnknown(t *testing.T) {
	db := database(t)
	err := sqlfence.WithTx(t.Context(), db, "r", 34, func(tx *sql.Tx) error {
		var pid int
		if err := tx.QueryRow("SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		exec(t, db, "SELECT pg_terminate_backend($1)", pid)
		eventually(t, "the connection to end", func() bool {
			return number(t, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid) == 0
		})
		return nil
	})
	if !errors.Is(err, sqlfence.ErrUnknownOutcome) {
		t.Errorf("have %v, want ErrUnknownOutcome", err)
	}
}

// TestRefusedCommitIsNotUnknown has a constraint that is checked at the commit.
func TestRefusedCommitIsNotUnknown(t *testing.T) {
	db := database(t)
	exec(t, db, "ALTER TABLE writes ADD UNIQUE (token) DEFERRABLE INITIALLY DEFERRED")
	exec(t, db, "INSERT INTO writes (token) VALUES (34)")
	err := sqlfence.WithTx(t.Context(), db, "r", 34, write(t.Context(), 34))
	var state interface{ SQLState() string }
	if errors.Is(err, sqlfence.ErrUnknownOutcome) || !errors.As(err, &state) || state.SQLState() != "23505" {
		t.Errorf("have %v, want SQLSTATE 23505", err)
	}
	wantWrites(t, db, 1)
}

func TestCallerThatCommitsHimselfIsTold(t *testing.T) {
	db := database(t)
	err := sqlfence.WithTx(t.Context(), db, "r", 34, func(tx *sql.Tx) error { return tx.Commit() })
	if !errors.Is(err, sqlfence.ErrUnknownOutcome) || !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("have %v, want ErrUnknownOutcome and sql.ErrTxDone", err)
	}
}

func TestStoreWaitsForAWriterAndAnswers(t *testing.T) {
	db := database(t)
	store := sqlfence.NewStore(db, sqlfence.TxOptions(&sql.TxOptions{Isolation: sql.LevelSerializable}))
	holder := begin(t, db)
	if err := sqlfence.Admit(t.Context(), holder, "r", 43); err != nil {
		t.Fatal(err)
	}
	verdict := make(chan error, 1)
	go func() { verdict <- store.Admit(context.Background(), "r", 42) }()
	waitBlocked(t, db, 1)
	if err := holder.Commit(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-verdict:
		wantStale(t, err, 42, 43) // not 40001, which it was given at first
	case <-time.After(20 * time.Second):
		t.Fatal("no answer")
	}
}
