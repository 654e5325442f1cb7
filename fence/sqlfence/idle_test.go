package sqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/fence/sqlfence"
)

// idleLimit is the shortest that both servers know.
const idleLimit = time.Second

// TestLateCommitIsImpossible stops holder 43 between its write and its commit,
// as a paused process is, until the server has given its mark to holder 44.
func TestLateCommitIsImpossible(t *testing.T) {
	skipIfShort(t)
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		newerIn := make(chan error, 1)
		err := db.withTx(t.Context(), 43, func(tx *sql.Tx) error {
			if err := db.write(t.Context(), 43)(tx); err != nil {
				return err
			}
			newerIn <- <-admitLater(t, db, 44)
			return nil
		}, sqlfence.MaxIdle(idleLimit))
		if err := <-newerIn; err != nil {
			t.Fatalf("token 44: %v, want it admitted once 43 has been idle for too long", err)
		}
		if err == nil {
			t.Error("43 committed after 44 had been admitted")
		}
		db.wantWrites(t, 0)
		wantStale(t, <-admitLater(t, db, 43), 43, 44)
	})
}

// An operation that applies its effects under no mark of its own is limited too.
func TestIdleLimitHoldsForOnceWithoutResource(t *testing.T) {
	skipIfShort(t)
	onServers(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		op := sqlfence.Operation{ID: "o"}
		runs := 0
		result, err := db.once(t.Context(), op, func(tx *sql.Tx) ([]byte, error) {
			runs++
			if err := db.write(t.Context(), 1)(tx); err != nil {
				return nil, err
			}
			if runs == 1 { // idle until another call has applied it
				_, err := db.once(t.Context(), op, func(*sql.Tx) ([]byte, error) { return []byte("other"), nil })
				return []byte("first"), err
			}
			return []byte("again"), nil
		}, sqlfence.MaxIdle(idleLimit))
		if err == nil && (string(result.Data) != "other" || !result.Repeated) {
			t.Errorf("have %+v, want the result of the other call, or an error", result)
		}
		db.wantWrites(t, 0)
	})
}

func TestIdleLimitEndsWithTheTransaction(t *testing.T) {
	const limit = 59*time.Second + 1500*time.Microsecond
	for kind, want := range map[sqlfence.Database]struct{ query, inside string }{
		sqlfence.PostgreSQL: {"SELECT current_setting('idle_in_transaction_session_timeout')", "59002ms"},
		sqlfence.MySQL:      {"SELECT @@SESSION.wait_timeout", "60"},
	} {
		onServers(t, func(t *testing.T, b *backend) {
			if b.kind != kind {
				return
			}
			db := b.migrated(t)
			db.SetMaxOpenConns(1)
			setting := func(from interface{ QueryRow(string, ...any) *sql.Row }) (text string) {
				t.Helper()
				if err := from.QueryRow(want.query).Scan(&text); err != nil {
					t.Fatal(err)
				}
				return text
			}
			before := setting(db)
			failure := errors.New("failure of the caller")
			for _, end := range []error{nil, failure} {
				err := db.withTx(t.Context(), 1, func(tx *sql.Tx) error {
					if got := setting(tx); got != want.inside {
						t.Errorf("inside: %s, want %s, rounded up", got, want.inside)
					}
					return end
				}, sqlfence.MaxIdle(limit))
				if !errors.Is(err, end) {
					t.Errorf("have %v, want %v", err, end)
				}
				if got := setting(db); got != before {
					t.Errorf("afterwards: %s, want %s as before", got, before)
				}
			}
			if n := db.Stats().OpenConnections; n != 1 {
				t.Errorf("%d connections", n)
			}
		})
	}
}

func TestAdmitSetsTheIdleLimitOrRefusesIt(t *testing.T) {
	eachDatabase(t, func(t *testing.T, b *backend) {
		db := b.migrated(t)
		tx := db.begin(t)
		err := db.admit(t.Context(), tx, "r", 1, sqlfence.MaxIdle(time.Minute))
		if b.kind != sqlfence.PostgreSQL {
			if !errors.Is(err, sqlfence.ErrInvalidOption) {
				t.Errorf("have %v, want ErrInvalidOption", err)
			}
			return
		}
		var text string
		if err := tx.QueryRow("SHOW idle_in_transaction_session_timeout").Scan(&text); err != nil || text != "1min" {
			t.Errorf("have %q, %v, want 1min", text, err)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// What cannot begin leaves the connection as it was, and free.
func TestFailedBeginTakesTheIdleLimitBack(t *testing.T) {
	b := mariadb("MariaDB", "")
	db := b.migrated(t)
	db.SetMaxOpenConns(1)
	never := func(*sql.Tx) error { t.Error("fn ran"); return nil }
	level := sqlfence.TxOptions(&sql.TxOptions{Isolation: sql.LevelLinearizable}) // which it does not have
	if err := db.withTx(t.Context(), 1, never, level, sqlfence.MaxIdle(time.Minute)); err == nil {
		t.Error("began at a level that there is not")
	}
	if got := db.number(t, "SELECT @@SESSION.wait_timeout"); got == 60 {
		t.Error("the limit stays")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := db.withTx(ended, 1, never, sqlfence.MaxIdle(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Errorf("have %v, want context.Canceled", err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections in use", n)
	}
}

// A connection whose limit cannot be taken back is not used again.
func TestLostConnectionIsNotUsedAgain(t *testing.T) {
	b := mariadb("MariaDB", "")
	db := b.migrated(t)
	failure := errors.New("failure of the caller")
	err := db.withTx(t.Context(), 1, func(tx *sql.Tx) error { db.cut(t, tx); return failure }, sqlfence.MaxIdle(time.Minute))
	if !errors.Is(err, failure) {
		t.Errorf("have %v", err)
	}
	if err := db.withTx(t.Context(), 1, db.write(t.Context(), 1)); err != nil {
		t.Error(err)
	}
	if n := db.Stats().InUse; n != 0 {
		t.Errorf("%d connections in use", n)
	}
}
