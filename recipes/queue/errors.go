package queue

import (
	"errors"
	"fmt"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/hold"
)

// Errors, besides those of package client and of the caller's context.
var (
	// ErrLost is returned when the item is not this taker's any more. It comes as
	// a *LostError.
	ErrLost = errors.New("queue: the claim of the item was lost")
	// ErrDone is returned by Return after Done, and is the cause of an item's
	// context then.
	ErrDone = errors.New("queue: the item is done")
	// ErrReturned is returned by Done after Return, and is the cause of an item's
	// context then.
	ErrReturned = errors.New("queue: the item was returned")
	// ErrRemoved is the reason in a LostError when somebody deleted the claim.
	ErrRemoved = errors.New("its claim was deleted")
	// ErrMargin is the reason in a LostError when the cluster did not answer until
	// the safety margin before the session's deadline.
	ErrMargin = hold.ErrMargin
	// ErrKey is returned by Put for a key that cannot be one.
	ErrKey = errors.New("queue: a key has 1 to 200 bytes of UTF-8")
)

// LostError says which item was lost, and why. It matches ErrLost and what Reason
// matches: a *client.SessionError, ErrRemoved or ErrMargin.
type LostError struct {
	Queue  string
	ID     string
	Token  fence.Token
	Reason error
}

// Error names the item and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("queue %s: item %s is lost (token %s): %v", e.Queue, e.ID, e.Token, e.Reason)
}

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Reason.
func (e *LostError) Unwrap() error { return e.Reason }
