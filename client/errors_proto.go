package client

import (
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/session"
)

// sentinels turns the codes of the protocol back into the errors that the
// service had in hand. It is the only such table of the client.
var sentinels = map[coordpb.Code]error{
	coordpb.Code_CODE_NO_NODE:              ErrNoNode,
	coordpb.Code_CODE_NODE_EXISTS:          ErrNodeExists,
	coordpb.Code_CODE_BAD_VERSION:          ErrBadVersion,
	coordpb.Code_CODE_NOT_EMPTY:            ErrNotEmpty,
	coordpb.Code_CODE_EPHEMERAL_PARENT:     ErrEphemeralParent,
	coordpb.Code_CODE_NO_AUTH:              ErrNoAuth,
	coordpb.Code_CODE_INVALID_ACL:          ErrInvalidACL,
	coordpb.Code_CODE_BAD_PATH:             ErrBadPath,
	coordpb.Code_CODE_BAD_ARGUMENTS:        ErrBadArguments,
	coordpb.Code_CODE_QUOTA_EXCEEDED:       ErrQuotaExceeded,
	coordpb.Code_CODE_ROLLED_BACK:          ErrRolledBack,
	coordpb.Code_CODE_PROTECTED:            ErrProtected,
	coordpb.Code_CODE_TOO_LARGE:            ErrTooLarge,
	coordpb.Code_CODE_LIMIT:                ErrLimit,
	coordpb.Code_CODE_OVERLOADED:           ErrOverloaded,
	coordpb.Code_CODE_DISK_FULL:            ErrDiskFull,
	coordpb.Code_CODE_SESSION_EXPIRED:      ErrSessionExpired,
	coordpb.Code_CODE_SESSION_MOVED:        session.ErrMoved,
	coordpb.Code_CODE_SESSION_CLOSED:       session.ErrClosed,
	coordpb.Code_CODE_UNKNOWN_SESSION:      session.ErrUnknown,
	coordpb.Code_CODE_AUTH_FAILED:          ErrAuthFailed,
	coordpb.Code_CODE_IDENTITY_IN_USE:      ErrIdentityInUse,
	coordpb.Code_CODE_WRONG_PROTOCOL:       session.ErrWrongProtocol,
	coordpb.Code_CODE_WRONG_CLUSTER:        ErrWrongCluster,
	coordpb.Code_CODE_CANCELLED:            ErrCancelled,
	coordpb.Code_CODE_UNKNOWN_OUTCOME:      ErrUnknownOutcome,
	coordpb.Code_CODE_ALREADY_ACKNOWLEDGED: session.ErrAcknowledged,
	coordpb.Code_CODE_REQUEST_ID_REUSED:    ErrRequestReused,
	coordpb.Code_CODE_REQUEST_ID_TOO_OLD:   ErrRequestTooOld,
	coordpb.Code_CODE_GAP:                  ErrProtocol,
	coordpb.Code_CODE_UNAVAILABLE:          ErrUnavailable,
	coordpb.Code_CODE_NOT_FORMED:           ErrNotFormed,
	coordpb.Code_CODE_NOT_LEADER:           ErrUnavailable,
	coordpb.Code_CODE_SHUTTING_DOWN:        ErrUnavailable,
	coordpb.Code_CODE_TIMEOUT:              ErrUnavailable,
	coordpb.Code_CODE_MALFORMED:            ErrProtocol,
	coordpb.Code_CODE_UNIMPLEMENTED:        ErrProtocol,
	coordpb.Code_CODE_INTERNAL:             ErrInternal,
	coordpb.Code_CODE_SLOW_CONSUMER:        ErrOverloaded,
}

// sentinel is the meaning of a code. A code that a newer server has invented
// is a protocol error, never a success.
func sentinel(c coordpb.Code) error {
	if err, ok := sentinels[c]; ok {
		return err
	}
	return fmt.Errorf("%w: unknown code %d", ErrProtocol, c)
}

// passing says that the same request may well succeed in a moment and that
// nothing was done: the client itself asks again.
func passing(c coordpb.Code) bool {
	switch c {
	case coordpb.Code_CODE_UNAVAILABLE, coordpb.Code_CODE_NOT_FORMED, coordpb.Code_CODE_NOT_LEADER,
		coordpb.Code_CODE_SHUTTING_DOWN, coordpb.Code_CODE_OVERLOADED, coordpb.Code_CODE_DISK_FULL,
		coordpb.Code_CODE_GAP, coordpb.Code_CODE_TIMEOUT:
		return true
	default:
		return false
	}
}

// lasting says that a refusal which is passing for others is the answer to a
// write: full disks are not over in a moment, and its caller must know. The server
// has used its number up for that.
func lasting(k callKind, c coordpb.Code) bool {
	return k == callWrite && c == coordpb.Code_CODE_DISK_FULL
}

// gone says that the session is over for good.
func gone(c coordpb.Code) bool {
	return c == coordpb.Code_CODE_SESSION_EXPIRED || c == coordpb.Code_CODE_SESSION_CLOSED ||
		c == coordpb.Code_CODE_UNKNOWN_SESSION
}

// failed reports whether e carries an error at all.
func failed(e *coordpb.Error) bool { return e.GetCode() != coordpb.Code_CODE_OK }

// fromProto makes the error that a server sent into the client's. path and
// index are the caller's own; the server's win where it names them.
func fromProto(op, path, node string, e *coordpb.Error) *Error {
	out := &Error{
		Op: op, Path: path, Node: node, Index: -1,
		Err:        sentinel(e.GetCode()),
		Limit:      e.GetLimit(),
		RetryAfter: time.Duration(e.GetRetryAfterMs()) * time.Millisecond,
		Detail:     e.GetMessage(),
		fromServer: e,
	}
	if e.GetCode() == coordpb.Code_CODE_BAD_VERSION {
		out.Have, out.Want = e.GetHave(), e.GetWant()
	}
	if e.GetMaybeDone() || e.GetCode() == coordpb.Code_CODE_UNKNOWN_OUTCOME {
		out.Outcome = MaybeDone
	}
	return out
}
