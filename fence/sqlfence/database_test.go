package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/pgtest"
)

var (
	server  pgtest.Shared
	schemas atomic.Int64
)

func TestMain(m *testing.M) {
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// emptyDatabase returns a database on a real server in which this test sees
// nothing but its own: it has a schema to itself.
func emptyDatabase(t *testing.T) *sql.DB {
	t.Helper()
	schema := fmt.Sprintf("test%d", schemas.Add(1))
	db := open(t, server.Get(t).DSN("")+" search_path="+schema)
	exec(t, db, "CREATE SCHEMA "+schema)
	return db
}

// database returns an empty database that has been migrated, with a table
// writes(seq, token) in which seq is the order of the inserts.
func database(t *testing.T, opts ...sqlfence.Option) *sql.DB {
	t.Helper()
	db := emptyDatabase(t)
	if err := sqlfence.Migrate(t.Context(), db, opts...); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "CREATE TABLE writes (seq bigserial PRIMARY KEY, token bigint NOT NULL)")
	return db
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func exec(t *testing.T, db execer, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// number returns the single number that the query yields.
func number(t *testing.T, db *sql.DB, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func currentSchema(t *testing.T, db *sql.DB) string {
	t.Helper()
	var schema string
	if err := db.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // done already where all went well
	return tx
}

// waitBlocked returns when n sessions of the database wait for a lock.
func waitBlocked(t *testing.T, db *sql.DB, n int64) {
	t.Helper()
	const query = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	eventually(t, fmt.Sprintf("%d blocked sessions", n), func() bool { return number(t, db, query) == n })
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
