package sqlfence_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/fence/sqlfence"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(envVictim); kind != "" {
		os.Exit(victim(kind))
	}
	_ = mysql.SetLogger(new(mysql.NopLogger)) // many connections are cut here
	code := m.Run()
	for _, stop := range []func() error{postgresServer.Close, mariadbServer.Close} {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// database is a real one in which a test sees nothing but its own.
type database struct {
	*sql.DB
	backend *backend
}

// eachDatabase runs a test on all of them; in short mode on one of each kind.
func eachDatabase(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Helper()
	for _, b := range backends {
		if b.variant && testing.Short() {
			continue
		}
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

// empty returns a database in which there is nothing.
func (b *backend) empty(t *testing.T) *database {
	t.Helper()
	return &database{DB: b.open(t, b.create(t)), backend: b}
}

// migrated returns a database with the tables of the package and a table
// writes(seq, token) in which seq is the order of the inserts.
func (b *backend) migrated(t *testing.T) *database {
	t.Helper()
	db := b.empty(t)
	if err := db.migrate(t); err != nil {
		t.Fatal(err)
	}
	exec(t, db, b.createWrites)
	return db
}

func (b *backend) open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(b.driver, dsn)
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

func (d *database) opts(more []sqlfence.Option) []sqlfence.Option {
	return append([]sqlfence.Option{sqlfence.Dialect(d.backend.kind)}, more...)
}

func (d *database) migrate(t *testing.T, opts ...sqlfence.Option) error {
	return sqlfence.Migrate(t.Context(), d.DB, d.opts(opts)...)
}

func (d *database) admit(ctx context.Context, tx *sql.Tx, resource string, token fence.Token, opts ...sqlfence.Option) error {
	return sqlfence.Admit(ctx, tx, resource, token, d.opts(opts)...)
}

func (d *database) withTx(ctx context.Context, token fence.Token, fn func(*sql.Tx) error, opts ...sqlfence.Option) error {
	return sqlfence.WithTx(ctx, d.DB, "r", token, fn, d.opts(opts)...)
}

func (d *database) store(opts ...sqlfence.Option) fence.Store {
	return sqlfence.NewStore(d.DB, d.opts(opts)...)
}

func (d *database) once(ctx context.Context, op sqlfence.Operation, fn func(*sql.Tx) ([]byte, error), opts ...sqlfence.Option) (sqlfence.Result, error) {
	return sqlfence.Once(ctx, d.DB, op, fn, d.opts(opts)...)
}

// write returns an fn that leaves a row behind.
func (d *database) write(ctx context.Context, token fence.Token) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, d.backend.bind("INSERT INTO writes (token) VALUES (?)"), int64(token))
		return err
	}
}

func (d *database) wantWrites(t *testing.T, want int64) {
	t.Helper()
	if n := d.number(t, "SELECT count(*) FROM writes"); n != want {
		t.Errorf("%d writes, want %d", n, want)
	}
}

// number returns the single number that the query yields; its parameters are
// question marks.
func (d *database) number(t *testing.T, query string, args ...any) int64 {
	t.Helper()
	var n int64
	if err := d.QueryRowContext(context.Background(), d.backend.bind(query), args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (d *database) begin(t *testing.T) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // done already where all went well
	return tx
}

// waitBlocked returns when n sessions of the database wait for a lock. Where
// that cannot be seen it gives them time to.
func (d *database) waitBlocked(t *testing.T, n int64) {
	t.Helper()
	if d.backend.blocked == "" {
		time.Sleep(30 * time.Millisecond)
		return
	}
	eventually(t, fmt.Sprintf("%d blocked sessions", n), func() bool { return d.number(t, d.backend.blocked) == n })
}

// skipIfShort is for tests that have to wait for a second or more.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("waits for the limits of servers")
	}
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

// dollars turns the question marks of a query into $1, $2, ….
func dollars(query string) string {
	for i := 1; strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", i), 1)
	}
	return query
}
