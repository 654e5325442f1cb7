package grpcfence

import (
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/fence"
)

// domain and reasons of the ErrorInfo in a refusal.
const (
	domain        = "coord.fence"
	reasonStale   = "STALE_TOKEN"
	reasonMissing = "TOKEN_REQUIRED"
	reasonInvalid = "INVALID_TOKEN"
	reasonWaiting = "OLDER_CALL_RUNNING"
	reasonStore   = "MARKS_UNAVAILABLE"
)

func staleStatus(e *fence.StaleError) error {
	return withInfo(status.New(codes.FailedPrecondition, e.Error()), &errdetails.ErrorInfo{
		Reason: reasonStale, Domain: domain,
		Metadata: map[string]string{"resource": e.Resource, "lock": e.Lock, "got": e.Got.String(), "seen": e.Seen.String()},
	})
}

func reasonStatus(code codes.Code, reason, message string) error {
	return withInfo(status.New(code, message), &errdetails.ErrorInfo{Reason: reason, Domain: domain})
}

func withInfo(s *status.Status, info *errdetails.ErrorInfo) error {
	if detailed, err := s.WithDetails(info); err == nil {
		return detailed.Err()
	}
	return s.Err()
}

// staleError is the *fence.StaleError that the error of a call stands for, nil if
// it is none.
func staleError(err error) *fence.StaleError {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.FailedPrecondition {
		return nil
	}
	for _, d := range s.Details() {
		info, ok := d.(*errdetails.ErrorInfo)
		if !ok || info.GetDomain() != domain || info.GetReason() != reasonStale {
			continue
		}
		m := info.GetMetadata()
		got, err1 := fence.Parse(m["got"])
		seen, err2 := fence.Parse(m["seen"])
		if errors.Join(err1, err2) == nil {
			return &fence.StaleError{Resource: m["resource"], Lock: m["lock"], Got: got, Seen: seen}
		}
	}
	return nil
}

// refusedError is the error of a call that was refused for a stale token. It
// matches [fence.ErrStale], is a *fence.StaleError for errors.As, and still has the
// call's status.
type refusedError struct {
	stale *fence.StaleError
	call  error
}

func (e *refusedError) Error() string              { return e.stale.Error() }
func (e *refusedError) Unwrap() []error            { return []error{e.stale, e.call} }
func (e *refusedError) GRPCStatus() *status.Status { return status.Convert(e.call) }

func translate(err error) error {
	if stale := staleError(err); stale != nil {
		return &refusedError{stale, err}
	}
	return err
}
