package sqlfence_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/coordd/coord/fence/sqlfence"
	"github.com/coordd/coord/internal/mariadbtest"
	"github.com/coordd/coord/internal/pgtest"
)

var (
	postgresServer pgtest.Shared
	mariadbServer  mariadbtest.Shared
	databases      atomic.Int64
)

// backend is a database that the package is tested on, with what the tests have
// to say in its own tongue.
type backend struct {
	name, driver string
	kind         sqlfence.Database
	variant      bool // another of a kind
	// create makes a new database and returns its connection string.
	create func(t *testing.T) string
	// bind puts the database's own placeholders into a query.
	bind         func(query string) string
	createWrites string
	// blocked counts the sessions of this database that wait for a lock.
	blocked string
	// connection, alive and kill are about one connection of the pool: its id,
	// whether the server has it, and the end of it.
	connection, alive, kill string
	// levels are the isolation levels that it knows; the default is one of them.
	levels map[string]sql.IsolationLevel
	schema string // the query for the name of the place in which tables are made
	quote  string
}

func same(query string) string { return query }

var backends = []*backend{
	{
		name: "PostgreSQL", driver: "pgx", kind: sqlfence.PostgreSQL, bind: dollars, quote: `"`,
		create:       createPostgres,
		createWrites: "CREATE TABLE writes (seq bigserial PRIMARY KEY, token bigint NOT NULL)",
		blocked:      "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
		connection:   "SELECT pg_backend_pid()",
		alive:        "SELECT count(*) FROM pg_stat_activity WHERE pid = ?",
		kill:         "SELECT pg_terminate_backend(%d)",
		schema:       "SELECT current_schema()",
		levels: map[string]sql.IsolationLevel{
			"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
		},
	},
	mariadb("MariaDB", ""),
	// The same with what changes the answers of the server and the way in which
	// values reach it.
	mariadb("MariaDB found rows", "?clientFoundRows=true&interpolateParams=true&sql_mode=''").asVariant(),
	sqlite("SQLite", "wal"),
	sqlite("SQLite rollback journal", "delete").asVariant(),
}

func (b *backend) asVariant() *backend { b.variant = true; return b }

func createPostgres(t *testing.T) string {
	t.Helper()
	schema := fmt.Sprintf("test%d", databases.Add(1))
	dsn := postgresServer.Get(t).DSN("") + " search_path=" + schema + " deadlock_timeout=20ms"
	admin, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	exec(t, admin, "CREATE SCHEMA "+schema)
	return dsn
}

func mariadb(name, params string) *backend {
	return &backend{
		name: name, driver: "mysql", kind: sqlfence.MySQL, bind: same, quote: "`",
		create:       func(t *testing.T) string { return createMariaDB(t) + params },
		createWrites: "CREATE TABLE writes (seq bigint AUTO_INCREMENT PRIMARY KEY, token bigint NOT NULL) ENGINE = InnoDB",
		// Of the whole server; the table innodb_trx is not brought up to date while
		// somebody looks at it all the time.
		blocked:    "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
		connection: "SELECT connection_id()",
		alive:      "SELECT count(*) FROM information_schema.processlist WHERE id = ?",
		kill:       "KILL %d",
		schema:     "SELECT DATABASE()",
		levels: map[string]sql.IsolationLevel{
			"read uncommitted": sql.LevelReadUncommitted, "read committed": sql.LevelReadCommitted,
			"repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable,
		},
	}
}

func createMariaDB(t *testing.T) string {
	t.Helper()
	server := mariadbServer.Get(t)
	admin, err := sql.Open("mysql", server.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	name := fmt.Sprintf("test%d", databases.Add(1))
	exec(t, admin, "CREATE DATABASE "+name)
	return server.DSN(name, "")
}

// sqlite has one file per test, and connections that wait for their turn.
func sqlite(name, journal string) *backend {
	return &backend{
		name: name, driver: "sqlite", kind: sqlfence.SQLite, bind: same, quote: `"`,
		create: func(t *testing.T) string {
			return "file:" + filepath.Join(t.TempDir(), "test.db") +
				"?_pragma=busy_timeout(20000)&_pragma=journal_mode(" + journal + ")&_pragma=synchronous(off)"
		},
		createWrites: "CREATE TABLE writes (seq INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL) STRICT",
		schema:       "SELECT 'main'",
		levels:       map[string]sql.IsolationLevel{"default": sql.LevelDefault},
	}
}

// onServers is eachDatabase without those that have no server.
func onServers(t *testing.T, test func(t *testing.T, b *backend)) {
	t.Helper()
	for _, b := range backends {
		if b.kind == sqlfence.SQLite || b.variant && testing.Short() {
			continue
		}
		t.Run(b.name, func(t *testing.T) { test(t, b) })
	}
}

func (d *database) schema(t *testing.T) string {
	t.Helper()
	var schema string
	if err := d.QueryRowContext(t.Context(), d.backend.schema).Scan(&schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

// quoted quotes an identifier of one or two parts.
func (d *database) quoted(name string) string {
	q := d.backend.quote
	return q + strings.ReplaceAll(name, ".", q+"."+q) + q
}

// cut has the server end the connection of tx.
func (d *database) cut(t *testing.T, tx *sql.Tx) {
	t.Helper()
	var id int64
	if err := tx.QueryRow(d.backend.connection).Scan(&id); err != nil {
		t.Fatal(err)
	}
	exec(t, d, fmt.Sprintf(d.backend.kill, id))
	eventually(t, "the connection to end", func() bool { return d.number(t, d.backend.alive, id) == 0 })
}
