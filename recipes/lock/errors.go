package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/hold"
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
	// ErrOtherKind is returned when another kind of lock is in use at the path.
	ErrOtherKind = errors.New("lock: the path is in use for another kind of lock")
	// ErrLimitMismatch is returned when a semaphore is in use with another limit.
	// It comes as a *LimitError.
	ErrLimitMismatch = errors.New("lock: the semaphore has another limit")
	// ErrWaitLimit is returned when the lock was not granted within the
	// WaitLimit. It also matches context.DeadlineExceeded.
	ErrWaitLimit error = waitLimitError{}
	// ErrMargin is the reason in a LostError when the cluster did not answer
	// until the safety margin before the session's deadline.
	ErrMargin = hold.ErrMargin
)

type waitLimitError struct{}

func (waitLimitError) Error() string { return "lock: not granted within the wait limit" }

// Is makes the error match context.DeadlineExceeded: for a caller both are a wait
// that took too long.
func (waitLimitError) Is(target error) bool { return target == context.DeadlineExceeded }

// Timeout makes it a timeout to whoever asks errors for that, as
// context.DeadlineExceeded is.
func (waitLimitError) Timeout() bool { return true }

// LimitError says that a semaphore is in use with another limit. It matches
// ErrLimitMismatch.
type LimitError struct {
	Path string
	Have int // the limit that is stored, 0 if what is stored is none
	Want int // the caller's
}

// Error names both limits.
func (e *LimitError) Error() string {
	if e.Have == 0 {
		return fmt.Sprintf("semaphore %s: what is stored in %s is no limit", e.Path, slotsOf(e.Path))
	}
	return fmt.Sprintf("semaphore %s: in use with a limit of %d, not %d", e.Path, e.Have, e.Want)
}

// Is makes the error match ErrLimitMismatch.
func (e *LimitError) Is(target error) bool { return target == ErrLimitMismatch }

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
	if e.Token == 0 { // lost before it was granted
		return fmt.Sprintf("lock %s lost: %v", e.Path, e.Reason)
	}
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
	Holder Party // one of them, if several share the lock
	Limit  int   // of a semaphore, else 0
	Queue  int   // how many wait, the caller not counted
}

// Error names the holder, and until when a lost one keeps the lock.
func (e *BusyError) Error() string {
	who := e.Holder.Owner
	if who == "" {
		who = "another"
	}
	s := fmt.Sprintf("lock %s: held by %s", e.Path, who)
	switch {
	case e.Limit > 0 && e.Holder.Node == "":
		s = fmt.Sprintf("semaphore %s: others wait for its slots", e.Path)
	case e.Limit > 0:
		s = fmt.Sprintf("semaphore %s: %d slots, one taken by %s", e.Path, e.Limit, who)
	}
	if e.Holder.Token != 0 {
		s += " (token " + e.Holder.Token.String() + ")"
	}
	if t := e.Holder.LingersUntil; !t.IsZero() {
		s += ", whose session has ended; it lingers until " + t.Format(time.RFC3339)
	}
	if e.Queue > 0 {
		s += fmt.Sprintf(", %d waiting", e.Queue)
	}
	return s
}

// Is makes the error match ErrBusy.
func (e *BusyError) Is(target error) bool { return target == ErrBusy }
