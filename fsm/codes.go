package fsm

import (
	"errors"
	"fmt"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// Code is the number of an error in the log, in snapshots and on the wire. The
// values are those of coord.v1.Code and never change.
type Code int32

// The codes, in the groups of coord.proto.
const (
	CodeOK Code = 0

	CodeNoNode          Code = 1
	CodeNodeExists      Code = 2
	CodeBadVersion      Code = 3
	CodeNotEmpty        Code = 4
	CodeEphemeralParent Code = 5
	CodeNoAuth          Code = 6
	CodeInvalidACL      Code = 7
	CodeBadPath         Code = 8
	CodeBadArguments    Code = 9
	CodeQuotaExceeded   Code = 10
	CodeRolledBack      Code = 11
	CodeProtected       Code = 12

	CodeTooLarge   Code = 20
	CodeLimit      Code = 21
	CodeOverloaded Code = 22
	CodeDiskFull   Code = 23

	CodeSessionExpired Code = 30
	CodeSessionMoved   Code = 31
	CodeSessionClosed  Code = 32
	CodeUnknownSession Code = 33
	CodeAuthFailed     Code = 34
	CodeIdentityInUse  Code = 35
	CodeWrongProtocol  Code = 36
	CodeWrongCluster   Code = 37

	CodeCancelled           Code = 40
	CodeUnknownOutcome      Code = 41
	CodeAlreadyAcknowledged Code = 42
	CodeRequestIDReused     Code = 43
	CodeRequestIDTooOld     Code = 44
	CodeGap                 Code = 45

	CodeUnavailable  Code = 50
	CodeNotFormed    Code = 51
	CodeNotLeader    Code = 52
	CodeShuttingDown Code = 53
	CodeTimeout      Code = 54

	CodeMalformed     Code = 60
	CodeUnimplemented Code = 61
	CodeInternal      Code = 62
	CodeSlowConsumer  Code = 63
)

// Errors of the path of a command that no package below owns.
var (
	// ErrTooLarge is returned for data, a path or a request past a bound.
	ErrTooLarge = errors.New("too large")
	// ErrLimit is returned when a count limit is reached.
	ErrLimit = errors.New("limit reached")
	// ErrOverloaded is returned when the service takes no more work for the
	// moment. Nothing was done.
	ErrOverloaded = errors.New("overloaded")
	// ErrDiskFull is returned while a quorum is short of disk. Nothing was done.
	ErrDiskFull = errors.New("disk full")
	// ErrWrongCluster is returned to a client of another cluster.
	ErrWrongCluster = errors.New("another cluster")
	// ErrCancelled is the answer to a skipped number: certainly not done.
	ErrCancelled = errors.New("cancelled, not done")
	// ErrGap is returned when a number before this one is missing.
	ErrGap = errors.New("an earlier write is missing")
	// ErrUnavailable is returned when no quorum answers. Nothing was done.
	ErrUnavailable = errors.New("unavailable")
	// ErrNotFormed is returned before the cluster exists.
	ErrNotFormed = errors.New("cluster not formed")
	// ErrNotLeader is returned by a server asked to lead that does not.
	ErrNotLeader = errors.New("not the leader")
	// ErrShuttingDown is returned by a server that is stopping.
	ErrShuttingDown = errors.New("shutting down")
	// ErrTimeout is returned when a time limit of the service ran out.
	ErrTimeout = errors.New("timed out")
	// ErrMalformed is returned for bytes that are no message of ours.
	ErrMalformed = errors.New("malformed")
	// ErrUnimplemented is returned for what this server does not know.
	ErrUnimplemented = errors.New("not implemented")
	// ErrInternal is returned for a fault of ours.
	ErrInternal = errors.New("internal error")
	// ErrSlowConsumer is returned to a client that does not read what it asked for.
	ErrSlowConsumer = errors.New("events not read in time")
	// ErrOutdated is returned for a leader's command whose condition no longer
	// holds: another term, or the session has moved on. It never leaves a server.
	ErrOutdated = errors.New("outdated, nothing done")
)

// codeTable pairs each code with its sentinel. Where one sentinel matches
// another (ErrProtected is ErrBadArguments too) the narrower stands first.
var codeTable = []struct {
	code Code
	err  error
}{
	{CodeNoNode, znode.ErrNoNode},
	{CodeNodeExists, znode.ErrNodeExists},
	{CodeBadVersion, znode.ErrBadVersion},
	{CodeNotEmpty, znode.ErrNotEmpty},
	{CodeEphemeralParent, znode.ErrEphemeralParent},
	{CodeNoAuth, znode.ErrNoAuth},
	{CodeInvalidACL, znode.ErrInvalidACL},
	{CodeProtected, znode.ErrProtected},
	{CodeTooLarge, ErrTooLarge},
	{CodeBadPath, znode.ErrBadPath},
	{CodeBadArguments, znode.ErrBadArguments},
	{CodeQuotaExceeded, znode.ErrQuotaExceeded},
	{CodeRolledBack, znode.ErrRolledBack},
	{CodeLimit, ErrLimit},
	{CodeOverloaded, ErrOverloaded},
	{CodeDiskFull, ErrDiskFull},
	{CodeSessionExpired, session.ErrExpired},
	{CodeSessionMoved, session.ErrMoved},
	{CodeSessionClosed, session.ErrClosed},
	{CodeUnknownSession, session.ErrUnknown},
	{CodeAuthFailed, session.ErrWrongSecret},
	{CodeIdentityInUse, session.ErrIdentityInUse},
	{CodeWrongProtocol, session.ErrWrongProtocol},
	{CodeWrongCluster, ErrWrongCluster},
	{CodeCancelled, ErrCancelled},
	{CodeUnknownOutcome, session.ErrUnknownOutcome},
	{CodeAlreadyAcknowledged, session.ErrAcknowledged},
	{CodeRequestIDReused, session.ErrRequestReused},
	{CodeRequestIDTooOld, session.ErrRequestTooOld},
	{CodeGap, ErrGap},
	{CodeUnavailable, ErrUnavailable},
	{CodeNotFormed, ErrNotFormed},
	{CodeNotLeader, ErrNotLeader},
	{CodeShuttingDown, ErrShuttingDown},
	{CodeTimeout, ErrTimeout},
	{CodeMalformed, ErrMalformed},
	{CodeUnimplemented, ErrUnimplemented},
	{CodeInternal, ErrInternal},
	{CodeSlowConsumer, ErrSlowConsumer},
}

// CodeOf returns the code of err: CodeOK for nil, CodeInternal for an error
// that is in no table. A full table of request ids is an overload.
func CodeOf(err error) Code {
	if err == nil {
		return CodeOK
	}
	for _, row := range codeTable {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	if errors.Is(err, session.ErrRequestsFull) {
		return CodeOverloaded
	}
	return CodeInternal
}

// Err returns the sentinel of the code, so that errors.Is works on both ends of
// a wire; nil for CodeOK. An unknown code, of a newer server, is an internal
// error that says its number.
func (c Code) Err() error {
	if c == CodeOK {
		return nil
	}
	if err := c.sentinel(); err != nil {
		return err
	}
	return fmt.Errorf("code %d: %w", int32(c), ErrInternal)
}

func (c Code) sentinel() error {
	for _, row := range codeTable {
		if row.code == c {
			return row.err
		}
	}
	return nil
}

// known reports whether the code is in the table (or is CodeOK).
func (c Code) known() bool { return c == CodeOK || c.sentinel() != nil }
