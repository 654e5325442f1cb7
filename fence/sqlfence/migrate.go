package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
)

// Migrate creates the tables of marks and of operations where they are missing,
// and checks that those that are there can be used. Any number of processes may
// call it at once and again at each start. Only the first call needs the right
// to create tables. A schema named in [Table] or [OperationsTable] must exist.
func Migrate(ctx context.Context, db *sql.DB, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	if err := c.dialect.migrate(ctx, db, &c); err != nil {
		return fmt.Errorf("sqlfence: migrate: %w", err)
	}
	return nil
}
