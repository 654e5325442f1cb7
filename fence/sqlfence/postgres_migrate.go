package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
)

// migrateLock is the advisory lock under which tables are created: "coordfen" in
// ASCII. CREATE TABLE IF NOT EXISTS alone fails with a duplicate key when two
// run it at once.
const migrateLock int64 = 0x636f6f726466656e

func (p postgres) migrate(ctx context.Context, db *sql.DB, c *config) error {
	// A table made meanwhile is seen at any level; READ COMMITTED cannot fail to
	// serialize, whatever the database's default is.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer rollback(tx)
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, migrateLock); err != nil {
		return err
	}
	for _, t := range []struct {
		name   string
		create []string
		use    string
	}{
		{c.table, p.createMarks(c), p.admitStatement(c, `'r'`, `''`, `1`)},
		{c.operations, p.createOperations(c), p.claimStatement(c, `'o'`, `''`, `1`)},
	} {
		if err := p.migrateTable(ctx, tx, t.name, t.create); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		// The server plans the statement, which finds missing columns, a missing
		// primary key and missing rights before the first holder does.
		if _, err := tx.ExecContext(ctx, `EXPLAIN `+t.use); err != nil {
			return fmt.Errorf("%s: the table cannot be used: %w", t.name, err)
		}
	}
	return tx.Commit()
}

func (postgres) migrateTable(ctx context.Context, tx *sql.Tx, table string, create []string) error {
	// Asked first because CREATE TABLE IF NOT EXISTS needs the right to create
	// even where there is nothing to do.
	var exists bool
	err := tx.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, quoted(table, `"`)).Scan(&exists)
	if err != nil || exists {
		return err
	}
	for _, statement := range create {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// createMarks makes the names compare by their bytes (COLLATE "C"): an index
// over a language's order becomes wrong when the system's tables of that
// language change, and then a mark is not found and an old token is admitted.
// The fill factor leaves room to raise a mark in place.
func (postgres) createMarks(c *config) []string {
	return []string{`CREATE TABLE ` + quoted(c.table, `"`) + ` (
	resource   text COLLATE "C" NOT NULL,
	lock       text COLLATE "C" NOT NULL DEFAULT '',
	token      bigint NOT NULL CHECK (token > 0),
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (resource, lock)
) WITH (fillfactor = 70)`}
}

// createOperations makes the index that Forget goes by, too.
func (postgres) createOperations(c *config) []string {
	table := quoted(c.operations, `"`)
	return []string{`CREATE TABLE ` + table + ` (
	id         text COLLATE "C" PRIMARY KEY,
	resource   text COLLATE "C" NOT NULL,
	token      bigint NOT NULL CHECK (token >= 0),
	result     bytea,
	created_at timestamptz NOT NULL DEFAULT now()
)`, `CREATE INDEX ON ` + table + ` (created_at)`}
}
