package sqlfence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/coordd/coord/fence"
)

// Admit raises the mark of resource to t and locks it until tx ends, so a newer
// holder waits for this transaction and an older one is refused. Call it before
// the first read or write that the lock guards: what was read earlier may be from
// before the last holder's writes, and at REPEATABLE READ everything that is read
// later is as old as the first read.
//
// It returns nil, a *fence.StaleError, a *fence.TokenError, a
// *fence.ResourceError, [ErrInvalidOption], or the database's error wrapped.
// After any error roll tx back. The database may ask for the whole transaction
// again (see [Repeatable]), which [WithTx] does by itself. A later rollback to a
// savepoint from before the Admit takes the mark back and unlocks it, as would a
// statement that commits by itself (CREATE TABLE in MySQL): do neither.
//
// It waits as long as another transaction holds the mark, ctx lasts, and the
// database lets it (lock_timeout in PostgreSQL, innodb_lock_wait_timeout in
// MySQL, busy_timeout in SQLite).
func Admit(ctx context.Context, tx *sql.Tx, resource string, t fence.Token, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	if c.maxIdle != 0 && c.database == MySQL {
		return fmt.Errorf("%w: MaxIdle: MySQL has no limit for a transaction that is already open", ErrInvalidOption)
	}
	return c.admit(ctx, tx, resource, t)
}

func (c *config) admit(ctx context.Context, tx *sql.Tx, resource string, t fence.Token) error {
	if err := t.Validate(); err != nil {
		return err
	}
	if err := fence.ValidateResource(resource); err != nil {
		return err
	}
	seen, err := c.dialect.admit(ctx, tx, c, resource, t)
	if err != nil {
		return fmt.Errorf("sqlfence: admit token %s for %q: %w", t, resource, err)
	}
	if seen != 0 {
		return &fence.StaleError{Resource: resource, Lock: c.lock, Got: t, Seen: seen}
	}
	return nil
}

// below returns the comparison of a mark with a token that it admits.
func (c *config) below() string {
	if c.strict {
		return "<"
	}
	return "<="
}
