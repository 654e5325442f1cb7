package znode

import (
	"errors"
	"fmt"
)

// Outcomes of an operation on the tree.
var (
	// ErrNoNode is returned when the node, or the parent of one to create or
	// delete, does not exist.
	ErrNoNode = errors.New("no such node")
	// ErrNodeExists is returned when the node to create is there.
	ErrNodeExists = errors.New("node exists")
	// ErrBadVersion is returned, as a *VersionError, when the node is not at
	// the version, or not the very node, that the caller named.
	ErrBadVersion = errors.New("version does not match")
	// ErrNotEmpty is returned when the node to delete has children.
	ErrNotEmpty = errors.New("node has children")
	// ErrEphemeralParent is returned when the parent of the node to create is
	// ephemeral.
	ErrEphemeralParent = errors.New("ephemeral nodes cannot have children")
	// ErrNoAuth is returned when the ACL gives the caller no right to it.
	ErrNoAuth = errors.New("not permitted")
	// ErrInvalidACL is returned for an ACL list that is empty or has an entry
	// that no client could ever match.
	ErrInvalidACL = errors.New("invalid ACL")
	// ErrBadPath is returned for a malformed path.
	ErrBadPath = errors.New("invalid path")
	// ErrBadArguments is returned for an operation that makes no sense, such
	// as an ephemeral without a session.
	ErrBadArguments = errors.New("bad arguments")
	// ErrProtected is returned for a delete of a node that the service itself
	// needs. It matches ErrBadArguments.
	ErrProtected = fmt.Errorf("node is needed by the service: %w", ErrBadArguments)
	// ErrQuotaExceeded is returned when a hard quota would be passed.
	ErrQuotaExceeded = errors.New("quota exceeded")
	// ErrRolledBack is the result of the parts of a multi behind the one that
	// failed.
	ErrRolledBack = errors.New("not done: another part of the transaction failed")
)

// VersionError says which version was found. It matches ErrBadVersion.
type VersionError struct {
	Path       string
	Have, Want int64 // versions, or czxids or owners when What says so
	What       string
}

func (e *VersionError) Error() string {
	what := e.What
	if what == "" {
		what = "version"
	}
	if what != "version" {
		return fmt.Sprintf("%s: %s is 0x%x, not 0x%x", e.Path, what, uint64(e.Have), uint64(e.Want))
	}
	return fmt.Sprintf("%s: version is %d, not %d", e.Path, e.Have, e.Want)
}

// Is makes the error match ErrBadVersion.
func (e *VersionError) Is(target error) bool { return target == ErrBadVersion }

// MultiError says which operation of a multi failed first, and how.
type MultiError struct {
	Index int
	Err   error
}

func (e *MultiError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns the failed operation's error.
func (e *MultiError) Unwrap() error { return e.Err }
