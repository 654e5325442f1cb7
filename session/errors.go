package session

import "errors"

// Errors about a session as a whole.
var (
	// ErrUnknown is returned for a session that is not open and is not among
	// the ended ones that are remembered: it never was, or ended long ago.
	ErrUnknown = errors.New("unknown session")
	// ErrExpired is returned for a session that was ended by the service: it
	// was silent for its timeout, was killed, was taken over by its own next
	// process, or the state was restored from a backup.
	ErrExpired = errors.New("session expired")
	// ErrClosed is returned for a session that its client has closed.
	ErrClosed = errors.New("session closed")
	// ErrMoved is returned when a command comes over a connection that the
	// session has left for another one: its generation is not the current one.
	ErrMoved = errors.New("session moved to another connection")
	// ErrWrongSecret is returned when a session is attached with a secret that
	// is not the one given out when it was opened.
	ErrWrongSecret = errors.New("wrong session secret")
	// ErrWrongProtocol is returned when a session is attached through another
	// protocol than the one it was opened with.
	ErrWrongProtocol = errors.New("session belongs to the other protocol")
	// ErrIdentityInUse is returned when a session is opened for an identity
	// that another session holds; it comes as an [*IdentityError].
	ErrIdentityInUse = errors.New("identity in use by another session")
)

// Errors about one write.
var (
	// ErrUnknownOutcome is returned when a write may or may not have been done
	// and nobody can tell any more.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrAcknowledged is returned for a number whose answer the client has said
	// it has: the answer is no longer kept.
	ErrAcknowledged = errors.New("write already acknowledged")
)

// Errors about request ids, see [Table.JudgeRequest].
var (
	// ErrRequestsFull is returned when no more request ids can be remembered.
	// Nothing was done; the same id may be used again later.
	ErrRequestsFull = errors.New("too many request ids remembered")
	// ErrRequestReused is returned when a remembered id comes with another
	// request than the one it was remembered for.
	ErrRequestReused = errors.New("request id used for another request")
	// ErrRequestTooOld is returned when the validity of a request id has ended:
	// whether it was done can no longer be told, so it is refused.
	ErrRequestTooOld = errors.New("request id too old, outcome unknown")
)

// Errors about the table itself.
var (
	// ErrBadImage is returned when bytes are not an image of a table.
	ErrBadImage = errors.New("not an image of a session table")
	// ErrInvariant is returned when the table contradicts itself or is asked to:
	// a fault of ours. A replica that sees it stops.
	ErrInvariant = errors.New("session table broken")
)

// IdentityError says which session holds the identity that was asked for, so
// that the client can look at it and name it as the one to end.
// It matches [ErrIdentityInUse].
type IdentityError struct {
	Identity string
	Current  ID
}

// Error implements error.
func (e *IdentityError) Error() string {
	return "identity " + e.Identity + " is in use by session " + e.Current.String()
}

// Is makes errors.Is(err, ErrIdentityInUse) true.
func (e *IdentityError) Is(target error) bool { return target == ErrIdentityInUse }
