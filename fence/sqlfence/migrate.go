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

// Migrate creates the table of marks if it is not there, and checks that the
// one that is there can be used. Any number of processes may call it at once
// and again at each start. Only the first call needs the right to create
// tables. A schema named in [Table] must exist.
func Migrate(ctx context.Context, db *sql.DB, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	// A table made meanwhile is seen at any level; READ COMMITTED cannot fail to
	// serialize, whatever the database's default is.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("sqlfence: migrate %s: %w", c.table, err)
	}
	defer rollback(tx)
	if err := c.migrate(ctx, tx); err != nil {
		return fmt.Errorf("sqlfence: migrate %s: %w", c.table, err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqlfence: migrate %s: %w", c.table, err)
	}
	return nil
}

func (c *config) migrate(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, migrateLock); err != nil {
		return err
	}
	// Asked first because CREATE TABLE IF NOT EXISTS needs the right to create
	// even where there is nothing to do.
	var exists bool
	err := tx.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, c.quotedTable()).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists {
		if _, err := tx.ExecContext(ctx, c.createStatement()); err != nil {
			return err
		}
	}
	return c.check(ctx, tx)
}

// createStatement makes the names compare by their bytes (COLLATE "C"): an
// index over a language's order becomes wrong when the system's tables of that
// language change, and then a mark is not found and an old token is admitted.
// The fill factor leaves room to raise a mark in place.
func (c *config) createStatement() string {
	return `CREATE TABLE ` + c.quotedTable() + ` (
	resource   text COLLATE "C" NOT NULL,
	lock       text COLLATE "C" NOT NULL DEFAULT '',
	token      bigint NOT NULL CHECK (token > 0),
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (resource, lock)
) WITH (fillfactor = 70)`
}

// check has the server plan the statement of Admit, which finds missing columns,
// a missing primary key and missing rights before the first holder does.
func (c *config) check(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `EXPLAIN `+c.admitStatement(`'r'`, `''`, `1`)); err != nil {
		return fmt.Errorf("the table cannot be used: %w", err)
	}
	return nil
}
