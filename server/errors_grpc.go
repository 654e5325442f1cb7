package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// limitError is a refusal past a bound: it names the setting that raises it.
// It matches ErrTooLarge for sizes and ErrLimit for counts.
type limitError struct {
	kind       error // fsm.ErrTooLarge or fsm.ErrLimit
	what       string
	have, most int64
	setting    string
	index      int // of the operation in a multi
}

func (e *limitError) Error() string {
	return fmt.Sprintf("%s: %d, at most %d are allowed (%s)", e.what, e.have, e.most, e.setting)
}

func (e *limitError) Unwrap() error { return e.kind }

// grpcTable has the codes of sentinels that mean something on this boundary only.
// All others have theirs in fsm.CodeOf, which is asked after this table.
// The other direction is fsm.Code.Err: for each code there is one sentinel.
var grpcTable = []struct {
	err  error
	code fsm.Code
}{
	{cluster.ErrRefused, fsm.CodeUnavailable},
	{cluster.ErrUnsafe, fsm.CodeBadArguments},
	{cluster.ErrNoMember, fsm.CodeNoNode},
	{cluster.ErrSuperseded, fsm.CodeUnavailable},
	{session.ErrRequestsFull, fsm.CodeOverloaded},
	{errAuth, fsm.CodeAuthFailed},
	{errNotAdmin, fsm.CodeNoAuth},
	{context.DeadlineExceeded, fsm.CodeTimeout},
	{context.Canceled, fsm.CodeTimeout},
}

// codeOf is the code of err; CodeInternal if it is in no table.
func codeOf(err error) fsm.Code {
	if err == nil {
		return fsm.CodeOK
	}
	for _, row := range grpcTable {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	return fsm.CodeOf(err)
}

// retryAfter is how long to wait before what was refused for the moment is
// tried again.
func retryAfter(c fsm.Code) time.Duration {
	switch c {
	case fsm.CodeOverloaded:
		return 100 * time.Millisecond
	case fsm.CodeUnavailable, fsm.CodeNotLeader, fsm.CodeShuttingDown:
		return 50 * time.Millisecond
	case fsm.CodeNotFormed, fsm.CodeDiskFull:
		return time.Second
	default:
		return 0
	}
}

// wireError is err as it is sent; nil for nil. The text of an error of ours
// that is in no table stays here: it goes to the log, see faults.
func wireError(err error) *coordpb.Error {
	if err == nil {
		return nil
	}
	code := codeOf(err)
	e := &coordpb.Error{
		Code:         coordpb.Code(code),
		Message:      err.Error(),
		MaybeDone:    code == fsm.CodeUnknownOutcome || code == fsm.CodeRequestIDTooOld,
		RetryAfterMs: retryAfter(code).Milliseconds(),
	}
	if code == fsm.CodeInternal {
		e.Message = fsm.ErrInternal.Error()
	}
	var busy *cluster.OverloadedError
	if errors.As(err, &busy) {
		e.RetryAfterMs = busy.RetryAfter.Milliseconds()
	}
	addDetails(e, err)
	return e
}

// addDetails copies the values that typed errors carry.
func addDetails(e *coordpb.Error, err error) {
	var multi *znode.MultiError
	if errors.As(err, &multi) {
		e.OpIndex = int32(multi.Index)
	}
	var version *znode.VersionError
	if errors.As(err, &version) {
		e.Path, e.Have, e.Want = version.Path, version.Have, version.Want
	}
	var goodbye *sessionEnd
	if errors.As(err, &goodbye) {
		e.SessionEnd = sessionEndOut(goodbye.reason)
	}
	var ended *endedError
	if errors.As(err, &ended) {
		e.SessionEnd = sessionEndOut(ended.reason)
	}
	var limit *limitError
	if errors.As(err, &limit) {
		e.Limit, e.Have, e.Want, e.OpIndex = limit.setting, limit.have, limit.most, int32(limit.index)
	}
}

// grpcCode is the nearest status of gRPC, for clients that look only there.
func grpcCode(c fsm.Code) codes.Code {
	switch c {
	case fsm.CodeOK:
		return codes.OK
	case fsm.CodeUnavailable, fsm.CodeNotFormed, fsm.CodeNotLeader, fsm.CodeShuttingDown, fsm.CodeSessionMoved:
		return codes.Unavailable
	case fsm.CodeOverloaded, fsm.CodeDiskFull, fsm.CodeLimit, fsm.CodeTooLarge, fsm.CodeSlowConsumer:
		return codes.ResourceExhausted
	case fsm.CodeNoAuth:
		return codes.PermissionDenied
	case fsm.CodeAuthFailed:
		return codes.Unauthenticated
	case fsm.CodeTimeout:
		return codes.DeadlineExceeded
	case fsm.CodeMalformed, fsm.CodeBadArguments, fsm.CodeBadPath:
		return codes.InvalidArgument
	case fsm.CodeUnimplemented:
		return codes.Unimplemented
	case fsm.CodeInternal:
		return codes.Internal
	default:
		return codes.FailedPrecondition
	}
}

// statusOf is err as the end of a call.
func statusOf(err error) error {
	if err == nil {
		return nil
	}
	e := wireError(err)
	st := status.New(grpcCode(fsm.Code(e.Code)), e.Message)
	if detailed, derr := st.WithDetails(e); derr == nil {
		st = detailed
	}
	return st.Err()
}
