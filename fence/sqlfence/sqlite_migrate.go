package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// migrate looks before it creates, so that it writes only where there is
// something to do.
func (s sqlite) migrate(ctx context.Context, db *sql.DB, c *config) error {
	if s.check(ctx, db, c) == nil {
		return nil
	}
	err := c.run(ctx, db, func(tx *sql.Tx) error {
		for _, statement := range append(s.createMarks(c), s.createOperations(c)...) {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}, func() {}) // whatever was committed need not be done again
	if err != nil {
		return err
	}
	if err := s.check(ctx, db, c); err != nil {
		return fmt.Errorf("the table cannot be used: %w", err)
	}
	return nil
}

// check has SQLite compile the statements, which finds missing columns and keys.
func (s sqlite) check(ctx context.Context, db *sql.DB, c *config) error {
	for _, statement := range []string{s.admitStatement(c), s.claimStatement(c)} {
		rows, err := db.QueryContext(ctx, "EXPLAIN "+statement, "r", "", 1)
		if err != nil {
			return err
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	return nil
}

// createMarks leaves the names to SQLite's own order, which goes by their bytes.
func (sqlite) createMarks(c *config) []string {
	return []string{`CREATE TABLE IF NOT EXISTS ` + quoted(c.table, `"`) + ` (
	resource   TEXT NOT NULL,
	lock       TEXT NOT NULL,
	token      INTEGER NOT NULL CHECK (token > 0),
	updated_at TEXT NOT NULL DEFAULT (` + sqliteNow + `),
	PRIMARY KEY (resource, lock)
) STRICT, WITHOUT ROWID`}
}

// createOperations names the index after the table, without the schema: an index
// is in the schema of its table.
func (sqlite) createOperations(c *config) []string {
	name := c.operations[strings.IndexByte(c.operations, '.')+1:]
	index := strings.TrimSuffix(c.operations, name) + name + "_created_at"
	return []string{`CREATE TABLE IF NOT EXISTS ` + quoted(c.operations, `"`) + ` (
	id         TEXT NOT NULL PRIMARY KEY,
	resource   TEXT NOT NULL,
	token      INTEGER NOT NULL CHECK (token >= 0),
	result     BLOB,
	created_at TEXT NOT NULL DEFAULT (` + sqliteNow + `)
) STRICT`, `CREATE INDEX IF NOT EXISTS ` + quoted(index, `"`) + ` ON ` + quoted(name, `"`) + ` (created_at)`}
}
