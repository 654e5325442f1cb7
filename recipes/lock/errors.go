package lock

import (
	"errors"
	"fmt"

	"github.com/coordd/coord/fence"
)

// Errors, besides those of package client and of the caller's context.
var (
	// ErrBusy is returned by TryAcquire when another holds the lock. It comes
	// as a *BusyError.
	ErrBusy = errors.New("lock: held by another")
	// ErrLost is returned when the lock, or the place in its queue, was lost.
	// It comes as a *LostError.
	ErrLost = errors.New("lock: lost")
	// ErrReleased is the cause of a handle's context after Release.
	ErrReleased = errors.New("lock: released")
	// ErrDeadlock is returned for a lock that the same call chain holds.
	ErrDeadlock = errors.New("lock: already held by this call chain")
	// ErrDeleted is the reason in a LostError when somebody deleted the queue
	// entry.
	ErrDeleted = errors.New("its queue entry was deleted")
	// ErrMargin is the reason in a LostError when the cluster did not answer
	// until the safety margin before the session's deadline.
	ErrMargin = errors.New("the cluster has not answered in time")
)

// LostError says which acquisition was lost, and why. It matches ErrLost and
// what Reason matches: a *client.SessionError, ErrDeleted or ErrMargin.
type LostError struct {
	Path   string // the lock
	Node   string // the queue entry
	Token  fence.Token
	Reason error
}

// Error names the lock, the token and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("lock %s lost (token %s): %v", e.Path, e.Token, e.Reason)
}

// Is makes the error match ErrLost.
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns Reason.
func (e *LostError) Unwrap() error { return e.Reason }

// BusyError says who holds the lock and how long the line is. It matches
// ErrBusy.
type BusyError struct {
	Path   string
	Holder Party
	Queue  int // how many wait, the caller not counted
}

// Error names the holder.
func (e *BusyError) Error() string {
	who := e.Holder.Owner
	if who == "" {
		who = "another"
	}
	s := fmt.Sprintf("lock %s: held by %s", e.Path, who)
	if e.Holder.Token != 0 {
		s += " (token " + e.Holder.Token.String() + ")"
	}
	if e.Queue > 0 {
		s += fmt.Sprintf(", %d waiting", e.Queue)
	}
	return s
}

// Is makes the error match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
