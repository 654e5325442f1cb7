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
// must neither commit nor roll back, nor run a statement that does (CREATE TABLE
// in MySQL), and must return the error of a statement that failed: PostgreSQL
// commits nothing after one, and MySQL and SQLite may have rolled back what was
// before it and would keep what comes after.
//
// When the database asks for it (see [Repeatable]), by an error of any statement
// or of the commit, the transaction begins again, up to [Attempts] times. So fn
// may run more than once: its effects outside tx must bear that.
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
	return c.run(ctx, db, func(tx *sql.Tx) error {
		if err := c.admit(ctx, tx, resource, t); err != nil {
			return err
		}
		return fn(tx)
	}, nil)
}

// run begins transactions until fn and the commit have succeeded, or another
// attempt cannot help, or the attempts are used up. Where unknown is given another
// attempt follows one of unknown outcome, too, and unknown is called before it:
// fn must find out what has become of that one.
func (c *config) run(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error, unknown func()) error {
	for attempt := 1; ; attempt++ {
		lost, err := c.try(ctx, db, fn)
		if err == nil {
			return nil
		}
		if lost && unknown != nil {
			unknown()
		} else if !c.repeatable(err) {
			return c.withCause(ctx, err)
		}
		if attempt == c.attempts {
			return fmt.Errorf("sqlfence: gave up after %d attempts: %w", attempt, err)
		}
		if !pause(ctx, backoff(attempt)) {
			return c.withCause(ctx, fmt.Errorf("sqlfence: %w before attempt %d, the last one: %w", ctx.Err(), attempt+1, err))
		}
	}
}

// repeatable tells whether the transaction that failed with err is rolled back
// and may succeed if it begins again.
func (c *config) repeatable(err error) bool {
	return !errors.Is(err, ErrUnknownOutcome) && c.verdict(err) == Repeatable
}

// try is one transaction. lost tells that err leaves open whether it was
// committed.
func (c *config) try(ctx context.Context, db *sql.DB, fn func(*sql.Tx) error) (lost bool, err error) {
	tx, end, err := c.dialect.begin(ctx, db, c)
	if err != nil {
		return false, fmt.Errorf("sqlfence: begin: %w", err)
	}
	defer end()
	defer rollback(tx) // also when fn panics; does nothing after a commit
	if err := fn(tx); err != nil {
		return false, err
	}
	// Asked here so that a context that has ended is a clean "not done":
	// once the commit is on its way nobody can tell.
	if err := ctx.Err(); err != nil {
		return false, fmt.Errorf("sqlfence: not committed: %w", err)
	}
	err = c.commitError(ctx, tx.Commit())
	return errors.Is(err, ErrUnknownOutcome), err
}

// rollback ends tx if it has not ended. Its error says nothing of use: the
// server rolls back what it hears no more of.
func rollback(tx *sql.Tx) { _ = tx.Rollback() }

// commitError tells a commit that was refused from one that may have happened.
func (c *config) commitError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	verdict := c.verdict(err)
	switch {
	case verdict == Repeatable, verdict == Refused:
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
func (c *config) withCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) || !c.cameOf(ctx, err) {
		return err
	}
	return fmt.Errorf("%w (%w)", err, cause)
}

// cameOf tells whether err is how the end of ctx looks from inside a
// transaction: as itself, as the server's word that it cancelled the statement,
// or as database/sql having rolled back underneath.
func (c *config) cameOf(ctx context.Context, err error) bool {
	return errors.Is(err, ctx.Err()) || errors.Is(err, sql.ErrTxDone) || c.verdict(err) == Canceled
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
