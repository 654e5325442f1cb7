package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/coordd/coord/fence"
)

// ErrUnknownOutcome is returned by [WithTx] and the store of [NewStore] when the
// connection was lost while the transaction was being committed: its effect is
// there in whole or not at all, and only a look at the data can tell.
var ErrUnknownOutcome = errors.New("sqlfence: the transaction may have been committed")

// WithTx runs fn in a transaction in which t has been admitted for resource,
// and commits. If ctx ends, as the context of a lock's handle does on loss, the
// transaction is rolled back; it is rolled back too if fn fails or panics. fn
// must neither commit nor roll back, and must return the error of a statement
// that failed: PostgreSQL commits nothing after one.
//
// When the database asks for it (SQLSTATE 40001 or 40P01, from any statement or
// the commit) the transaction begins again, up to [Attempts] times, so fn may
// run more than once: its effects outside tx must bear that.
//
// Errors: those of [Admit]; the error of fn as it is; if ctx has ended, its
// error together with its cause; the last error of the database when the
// attempts are used up. All these mean that nothing was written. The only one
// that does not is [ErrUnknownOutcome].
func WithTx(ctx context.Context, db *sql.DB, resource string, t fence.Token, fn func(*sql.Tx) error, opts ...Option) error {
	c, err := newConfig(opts)
	if err != nil {
		return err
	}
	return c.withTx(ctx, db, func(tx *sql.Tx) error {
		if err := c.admit(ctx, tx, resource, t); err != nil {
			return err
		}
		return fn(tx)
	})
}

func (c *config) withTx(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := c.try(ctx, db, fn)
		if err == nil || !repeatable(err) {
			return withCause(ctx, err)
		}
		if attempt == c.attempts {
			return fmt.Errorf("sqlfence: gave up after %d attempts: %w", attempt, err)
		}
		if !pause(ctx, backoff(attempt)) {
			return withCause(ctx, fmt.Errorf("sqlfence: %w before attempt %d, the last one: %w", ctx.Err(), attempt+1, err))
		}
	}
}

func (c *config) try(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, c.txOptions)
	if err != nil {
		return fmt.Errorf("sqlfence: begin: %w", err)
	}
	defer rollback(tx) // also when fn panics; does nothing after a commit
	if err := fn(tx); err != nil {
		return err
	}
	// Asked here so that a context that has ended is a clean "not done":
	// once the commit is on its way nobody can tell.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlfence: not committed: %w", err)
	}
	return commitError(ctx, tx.Commit())
}

// rollback ends tx if it has not ended. Its error says nothing of use: the
// server rolls back what it hears no more of.
func rollback(tx *sql.Tx) { _ = tx.Rollback() }

// commitError tells a commit that was refused from one that may have happened.
func commitError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case refusedByServer(err):
		return fmt.Errorf("sqlfence: commit: %w", err)
	case errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil:
		// database/sql rolled back by itself when ctx ended, before our commit.
		return fmt.Errorf("sqlfence: not committed: %w", ctx.Err())
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// withCause adds the cause of ctx's end to an error that came of it, so that
// errors.Is finds the reason for which a lock's handle was lost.
func withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) || !cameOf(ctx, err) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// cameOf tells whether err is how the end of ctx looks from inside a
// transaction: as itself, as the server's word that it cancelled the statement,
// or as database/sql having rolled back underneath.
func cameOf(ctx context.Context, err error) bool {
	return errors.Is(err, ctx.Err()) || errors.Is(err, sql.ErrTxDone) || sqlState(err) == queryCanceled
}

const (
	firstBackoff = 2 * time.Millisecond
	maxBackoff   = 250 * time.Millisecond
)

// backoff returns how long to wait after the given failed attempt, from 1: a
// random time up to a bound that doubles, since those who met once must not
// meet again.
func backoff(attempt int) time.Duration {
	bound := maxBackoff
	if shift := attempt - 1; shift < 10 {
		bound = min(maxBackoff, firstBackoff<<shift)
	}
	return rand.N(bound) + 1
}

// pause waits for d and returns true, or false as soon as ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
