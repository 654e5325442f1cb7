package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coord/fence"
)

// Admit raises the mark of resource to t and locks its row until tx ends, so a
// newer holder waits for this transaction and an older one is refused. Call it
// before the first read or write that the lock guards.
//
// It returns nil, a *fence.StaleError, a *fence.TokenError, a
// *fence.ResourceError, [ErrInvalidOption], or the database's error wrapped.
// After any error roll tx back. An error whose SQLSTATE is 40001 or 40P01 means
// that the whole transaction has to begin again, which [WithTx] does by itself.
//
// It waits as long as another transaction holds the row and ctx lasts.
func Admit(ctx context.Context, tx *sql.Tx, resource string, t fence.Token, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
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
	var ignored string
	err := tx.QueryRowContext(ctx, c.admitStatement("$1", "$2", "$3"), resource, c.lock, int64(t)).Scan(&ignored)
	if errors.Is(err, sql.ErrNoRows) {
		return c.refusal(ctx, tx, resource, t)
	}
	if err != nil {
		return fmt.Errorf("sqlfence: admit token %s for %q: %w", t, resource, err)
	}
	return nil
}

// admitStatement returns the one statement that decides, with three expressions
// for its values. It yields one row when the token is admitted, none when it is
// refused. In both cases the row of the mark is locked: PostgreSQL locks the
// conflicting row before it looks at WHERE.
func (c *config) admitStatement(resource, lock, token string) string {
	compare := "<="
	if c.strict {
		compare = "<"
	}
	return `INSERT INTO ` + c.quotedTable() + ` AS f (resource, lock, token) VALUES (` +
		resource + `, ` + lock + `, ` + token + `)
ON CONFLICT (resource, lock) DO UPDATE SET token = excluded.token, updated_at = now()
WHERE f.token ` + compare + ` excluded.token RETURNING ` + c.returning()
}

// returning puts the idle limit into the same round trip as the answer.
func (c *config) returning() string {
	if c.maxIdle == 0 {
		return `f.token::text`
	}
	ms := (c.maxIdle + time.Millisecond - 1) / time.Millisecond
	return `set_config('idle_in_transaction_session_timeout', '` + strconv.FormatInt(int64(ms), 10) + `', true)`
}

// refusal reads the mark that was in the way. The refused statement has locked
// its row, so this is the mark it was compared with.
func (c *config) refusal(ctx context.Context, tx *sql.Tx, resource string, t fence.Token) error {
	var seen int64
	err := tx.QueryRowContext(ctx,
		`SELECT token FROM `+c.quotedTable()+` WHERE resource = $1 AND lock = $2`, resource, c.lock).Scan(&seen)
	if err != nil {
		return fmt.Errorf("sqlfence: token %s was refused for %q, reading the mark: %w", t, resource, err)
	}
	return &fence.StaleError{Resource: resource, Lock: c.lock, Got: t, Seen: fence.Token(seen)}
}
