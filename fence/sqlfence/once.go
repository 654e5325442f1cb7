package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/coordd/coord/fence"
)

// MaxResultBytes bounds the result of an operation. A result is for the answer
// to a request, not for what the request made.
const MaxResultBytes = 1 << 20

var (
	// ErrInvalidOperation is returned when an [Operation] cannot be stored. The
	// message says why.
	ErrInvalidOperation = errors.New("sqlfence: invalid operation")
	// ErrOperationReused is returned when the ID of an operation is that of
	// another one, which was applied to another resource.
	ErrOperationReused = errors.New("sqlfence: the id belongs to another operation")
	// ErrResultTooLarge is returned when the result of an operation is larger than
	// [MaxResultBytes]. Nothing was written.
	ErrResultTooLarge = errors.New("sqlfence: result too large")

	// errForgotten is met when the row of an operation was there and is gone a
	// statement later.
	errForgotten = errors.New("the operation was forgotten meanwhile")
)

// Operation is something to be done once, however often it is asked for.
type Operation struct {
	// ID names the logical operation, not the attempt: the same for each repeat
	// and under each token. It must not be empty, and is at most
	// fence.MaxNameBytes of UTF-8 without zero bytes. One table of operations has
	// one space of IDs.
	ID string
	// Resource is the one that Token is checked at, as by [Admit]. Empty means
	// that fn admits by itself (it may have more than one resource), or that no
	// lock guards the operation.
	Resource string
	// Token is the caller's. It may be zero only where Resource is empty, and is
	// kept with the operation.
	Token fence.Token
}

func (o Operation) validate() error {
	var name *fence.ResourceError
	if err := fence.ValidateResource(o.ID); errors.As(err, &name) {
		return fmt.Errorf("%w: ID: %s", ErrInvalidOperation, name.Reason)
	}
	if o.Resource == "" && o.Token == 0 {
		return nil
	}
	if err := o.Token.Validate(); err != nil {
		return err
	}
	return fence.ValidateLock(o.Resource) // which may be empty here
}

// Result is what an operation has come to.
type Result struct {
	// Data is what fn returned when it was applied; nil and empty are kept apart.
	Data []byte
	// Token is the one of the attempt that applied it.
	Token fence.Token
	// Repeated tells that the operation was found applied and fn's effects in
	// this call, if it ran at all, were rolled back. It is also true where an
	// attempt of this very call was committed and the answer was lost.
	Repeated bool
}

// Once applies an operation if it has not been applied, and returns its result
// in both cases. One transaction
//
//   - makes a row for op.ID, and if there is one returns the stored result: it
//     is a repeat, whatever its token is worth by now;
//   - admits op.Token for op.Resource, if there is one;
//   - runs fn, under the rules of [WithTx];
//   - stores the result that fn returned.
//
// Two calls with the same ID at the same time are put in order: the second one
// waits for the first, and applies the operation if the first one fails or its
// process dies. A stale token is refused only where there is something to
// apply.
//
// fn may run more than once, as with WithTx, and its transaction is committed at
// most once. Where the outcome of a commit is unknown Once looks by itself, and
// applies the operation if it was not committed. Only if that does not succeed
// either does it return [ErrUnknownOutcome], after which the same call may be
// made again.
//
// Errors: those of WithTx, [ErrInvalidOperation], [ErrOperationReused], and
// [ErrResultTooLarge]. With an error other than ErrUnknownOutcome nothing was
// written by this call.
func Once(ctx context.Context, db *sql.DB, op Operation, fn func(tx *sql.Tx) (result []byte, err error), opts ...Option) (Result, error) {
	c, err := newConfig(opts)
	if err != nil {
		return Result{}, err
	}
	if err := op.validate(); err != nil {
		return Result{}, err
	}
	var result Result
	unknown := false // whether an attempt was committed that no later one has looked for
	err = c.run(ctx, db, func(tx *sql.Tx) (err error) {
		result, err = c.once(ctx, tx, op, fn, func() { unknown = false })
		return err
	}, func() { unknown = true })
	switch {
	case err == nil:
		return result, nil
	case unknown && !errors.Is(err, ErrUnknownOutcome):
		return Result{}, fmt.Errorf("%w, and then: %w", ErrUnknownOutcome, err)
	default:
		return Result{}, err
	}
}

// once is one attempt. It calls found when it knows whether the operation is
// there: if it is not, no earlier attempt was committed or ever will be, since its
// row is ours.
func (c *config) once(ctx context.Context, tx *sql.Tx, op Operation, fn func(*sql.Tx) ([]byte, error), found func()) (Result, error) {
	claimed, err := c.dialect.claim(ctx, tx, c, op)
	if err != nil {
		return Result{}, fmt.Errorf("sqlfence: operation %q: %w", op.ID, err)
	}
	if !claimed {
		result, err := c.repeated(ctx, tx, op)
		if err == nil || errors.Is(err, ErrOperationReused) {
			found()
		}
		return result, err
	}
	found()
	if op.Resource != "" {
		if err := c.admit(ctx, tx, op.Resource, op.Token); err != nil {
			return Result{}, err
		}
	}
	data, err := fn(tx)
	if err != nil {
		return Result{}, err
	}
	return Result{Data: data, Token: op.Token}, c.finish(ctx, tx, op, data)
}

// repeated reads what an earlier attempt has left.
func (c *config) repeated(ctx context.Context, tx *sql.Tx, op Operation) (Result, error) {
	var (
		resource  string
		token     int64
		hasResult bool
		data      []byte
	)
	err := tx.QueryRowContext(ctx, c.dialect.statements(c).read, op.ID).Scan(&resource, &token, &hasResult, &data)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Result{}, fmt.Errorf("sqlfence: operation %q: %w", op.ID, errForgotten)
	case err != nil:
		return Result{}, fmt.Errorf("sqlfence: operation %q: reading its result: %w", op.ID, err)
	case resource != op.Resource:
		return Result{}, fmt.Errorf("%w: %q was applied to resource %q, not %q", ErrOperationReused, op.ID, resource, op.Resource)
	case hasResult && data == nil:
		data = []byte{} // some drivers read an empty value as nil
	}
	return Result{Data: data, Token: fence.Token(token), Repeated: true}, nil
}

// finish stores the result.
func (c *config) finish(ctx context.Context, tx *sql.Tx, op Operation, data []byte) error {
	if len(data) > MaxResultBytes {
		return fmt.Errorf("%w: operation %q: %d bytes, at most %d", ErrResultTooLarge, op.ID, len(data), MaxResultBytes)
	}
	if data == nil {
		return nil // as the row was made
	}
	stored, err := tx.ExecContext(ctx, c.dialect.statements(c).finish, data, op.ID)
	if err != nil {
		return fmt.Errorf("sqlfence: operation %q: storing its result: %w", op.ID, err)
	}
	n, err := stored.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows were changed, not 1", n)
	}
	if err != nil {
		return fmt.Errorf("sqlfence: operation %q: storing its result: %w", op.ID, err)
	}
	return nil
}
