package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// forgetBatch is how many operations are forgotten in one transaction, so that
// none is long.
const forgetBatch = 1000

// Forget deletes the operations that were applied longer ago than olderThan, by
// the database's clock, and returns how many. It needs the right to delete from
// the table of operations, and may run beside everything else.
//
// A repeat that comes after its operation was forgotten is applied again: let
// olderThan be well above the time in which a repeat can come. It must be
// positive.
//
// With an error n operations are forgotten and the others are not.
func Forget(ctx context.Context, db *sql.DB, olderThan time.Duration, opts ...Option) (n int64, err error) {
	c, err := newConfig(opts)
	if err != nil {
		return 0, err
	}
	if olderThan <= 0 {
		return 0, fmt.Errorf("%w: Forget: olderThan %v is not positive", ErrInvalidOption, olderThan)
	}
	for {
		deleted, err := c.forget(ctx, db, olderThan)
		if err != nil {
			return n, err
		}
		n += deleted
		if deleted < forgetBatch {
			return n, nil
		}
	}
}

func (c *config) forget(ctx context.Context, db *sql.DB, olderThan time.Duration) (deleted int64, err error) {
	s := c.dialect.statements(c)
	err = c.run(ctx, db, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, s.forget, s.age(olderThan), forgetBatch)
		if err != nil {
			return fmt.Errorf("sqlfence: forget: %w", err)
		}
		deleted, err = result.RowsAffected()
		return err
	}, func() {}) // whatever was committed need not be done again
	return deleted, err
}
