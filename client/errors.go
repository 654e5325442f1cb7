package client

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// Errors to test with errors.Is. Every error of an operation is an *Error.
// Those that also exist in packages znode and session are the same values.
var (
	ErrNoNode          = znode.ErrNoNode
	ErrNodeExists      = znode.ErrNodeExists
	ErrBadVersion      = znode.ErrBadVersion
	ErrNotEmpty        = znode.ErrNotEmpty
	ErrEphemeralParent = znode.ErrEphemeralParent
	ErrNoAuth          = znode.ErrNoAuth
	ErrInvalidACL      = znode.ErrInvalidACL
	ErrBadPath         = znode.ErrBadPath
	ErrBadArguments    = znode.ErrBadArguments
	ErrProtected       = znode.ErrProtected
	ErrQuotaExceeded   = znode.ErrQuotaExceeded
	ErrRolledBack      = znode.ErrRolledBack

	ErrSessionExpired = session.ErrExpired
	ErrIdentityInUse  = session.ErrIdentityInUse
	ErrRequestReused  = session.ErrRequestReused
	ErrRequestTooOld  = session.ErrRequestTooOld
	// ErrUnknownOutcome is returned when a write may or may not have been
	// done: its context ended after it was sent, or its session ended before
	// the answer could be asked for again.
	ErrUnknownOutcome = session.ErrUnknownOutcome

	// ErrUnavailable is returned when no server could serve the request.
	// Nothing was done; it is safe to repeat.
	ErrUnavailable = errors.New("no server could serve the request")
	// ErrNotFormed is returned while the cluster waits to be formed. It
	// matches ErrUnavailable.
	ErrNotFormed = fmt.Errorf("the cluster is not formed yet: %w", ErrUnavailable)
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("client closed")
	// ErrTooLarge is returned when something is larger than a limit of the
	// cluster; Error.Limit names it.
	ErrTooLarge = errors.New("too large")
	// ErrLimit is returned when a limit of the cluster is reached; Error.Limit
	// names it.
	ErrLimit = errors.New("limit reached")
	// ErrOverloaded is returned when the cluster has too much to do. Nothing
	// was done; Error.RetryAfter says when to come again.
	ErrOverloaded = errors.New("overloaded")
	// ErrDiskFull is returned for a write while no majority of the servers has room
	// on its disks. Nothing was done. Reads, deletes, and so the release of locks,
	// go on; opening a session waits until there is room.
	ErrDiskFull = errors.New("the servers' disks are full")
	// ErrAuthFailed is returned when a server does not accept a credential.
	ErrAuthFailed = errors.New("not authenticated")
	// ErrWrongCluster is returned when a server belongs to another cluster
	// than the session.
	ErrWrongCluster = errors.New("another cluster")
	// ErrProtocol is returned when a server answers in a way that this client
	// does not understand, or the other way round.
	ErrProtocol = errors.New("protocol error")
	// ErrInternal is returned for a fault of the server's own.
	ErrInternal = errors.New("internal error")
	// ErrCancelled is returned for a write that was withdrawn and certainly
	// not done. It comes together with the error of the call's context.
	ErrCancelled = errors.New("cancelled")
)

// Outcome says what is known about a failed write.
type Outcome uint8

const (
	// NotDone: certainly not done.
	NotDone Outcome = iota
	// MaybeDone: done or not. errors.Is(err, ErrUnknownOutcome) is true.
	MaybeDone
)

func (o Outcome) String() string {
	if o == MaybeDone {
		return "maybe done"
	}
	return "not done"
}

// Attempt is one try to reach a server.
type Attempt struct {
	Endpoint string // address as the client dialed it
	At       time.Time
	Took     time.Duration
	Err      error // what came back
}

// Error says what was tried and why it failed. Only the fields that make sense
// for Err are set.
type Error struct {
	Op, Path   string
	Err        error   // matches one of the sentinels, a context's error, or both
	Have, Want Version // set for ErrBadVersion
	Node       string  // server that answered, "" if none did
	Tried      []Attempt
	Outcome    Outcome // for writes
	// Index is the position of the failed operation in a transaction, -1 for
	// calls that are none.
	Index      int
	Limit      string        // the limit's setting, for ErrTooLarge and ErrLimit
	RetryAfter time.Duration // for ErrOverloaded, 0 = not known
	Detail     string        // the server's words, when they say more than Err

	fromServer *coordpb.Error // as it came, nil if it is our own
}

// Error names the operation, the path, the reason, and what came back from
// each server that was tried.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Path != "" {
		b.WriteString(" " + e.Path)
	}
	if e.Index > 0 || e.Index == 0 && e.Op == opTxn {
		fmt.Fprintf(&b, " (operation %d)", e.Index)
	}
	b.WriteString(": " + e.reason())
	for i, a := range e.Tried {
		sep := "; "
		if i == 0 {
			sep = " ("
		}
		fmt.Fprintf(&b, "%s%s: %v", sep, a.Endpoint, a.Err)
	}
	if len(e.Tried) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

func (e *Error) reason() string {
	if e.Err == nil {
		return e.Detail
	}
	switch {
	case errors.Is(e.Err, ErrBadVersion) && (e.Detail == "" || strings.Contains(e.Detail, "version is ")):
		// Not so when the server names a czxid or an owner.
		return fmt.Sprintf("version is %d, you said %d", e.Have, e.Want)
	case e.Detail == "":
		return e.Err.Error()
	case strings.Contains(e.Detail, e.Err.Error()):
		return strings.TrimPrefix(e.Detail, e.Path+": ") // the path was named before
	default:
		return e.Err.Error() + ": " + e.Detail
	}
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// interrupted is a call that its context, or the end of its session, left behind:
// both facts are true of it, and errors.Is finds either.
type interrupted struct {
	cause error // why nobody waits any more
	fact  error // what is known of the call: ErrUnknownOutcome, ErrCancelled or ErrUnavailable
}

func (e *interrupted) Error() string   { return e.cause.Error() + ", " + e.fact.Error() }
func (e *interrupted) Unwrap() []error { return []error{e.cause, e.fact} }

// badArguments is the error of a call that cannot be made as it is.
func badArguments(op string, err error) *Error {
	return &Error{Op: op, Err: &argumentError{err}, Detail: err.Error(), Index: -1}
}

// argumentError says what is wrong with an argument. It matches ErrBadArguments,
// without saying so in words, and what the reason matches.
type argumentError struct{ reason error }

func (e *argumentError) Error() string   { return e.reason.Error() }
func (e *argumentError) Unwrap() []error { return []error{ErrBadArguments, e.reason} }
