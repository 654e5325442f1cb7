package server

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// TestEveryCodeHasItsSentinel walks the table in both directions.
func TestEveryCodeHasItsSentinel(t *testing.T) {
	for number := range coordpb.Code_name {
		code := fsm.Code(number)
		if code == fsm.CodeOK {
			continue
		}
		sentinel := code.Err()
		if got := codeOf(fmt.Errorf("deep: %w", sentinel)); got != code {
			t.Errorf("%s: its sentinel %v has code %d", coordpb.Code(number), sentinel, got)
		}
		if e := wireError(sentinel); e.GetCode() != coordpb.Code(number) || e.GetMessage() == "" {
			t.Errorf("%s goes out as %v", coordpb.Code(number), e)
		}
		if grpcCode(code) == codes.OK {
			t.Errorf("%s is OK for gRPC", coordpb.Code(number))
		}
		if status.Code(statusOf(sentinel)) != grpcCode(code) {
			t.Errorf("%s: status %v", coordpb.Code(number), statusOf(sentinel))
		}
	}
}

// TestEverySentinelHasACode names what other packages return to this one.
func TestEverySentinelHasACode(t *testing.T) {
	for _, err := range []error{
		znode.ErrNoNode, znode.ErrNodeExists, znode.ErrBadVersion, znode.ErrNotEmpty, znode.ErrEphemeralParent,
		znode.ErrNoAuth, znode.ErrInvalidACL, znode.ErrBadPath, znode.ErrBadArguments, znode.ErrQuotaExceeded,
		znode.ErrRolledBack, znode.ErrProtected,
		&znode.VersionError{}, &znode.MultiError{Err: znode.ErrNoNode},
		session.ErrUnknown, session.ErrExpired, session.ErrClosed, session.ErrMoved, session.ErrWrongSecret,
		session.ErrWrongProtocol, session.ErrIdentityInUse, &session.IdentityError{}, session.ErrUnknownOutcome,
		session.ErrAcknowledged, session.ErrRequestsFull, session.ErrRequestReused, session.ErrRequestTooOld,
		cluster.ErrNotLeader, cluster.ErrNotFormed, &cluster.NotFormedError{}, cluster.ErrOverloaded,
		cluster.ErrDiskFull, cluster.ErrStopped, cluster.ErrRefused, cluster.ErrSuperseded,
		context.Canceled, context.DeadlineExceeded,
		errAuth, errNotAdmin, errForeign, errBehind, errSilent, malformed("x"), unavailable(errors.New("x")),
		&limitError{kind: fsm.ErrLimit}, &limitError{kind: fsm.ErrTooLarge}, endError(session.Killed),
		&endedError{err: session.ErrExpired},
	} {
		if code := codeOf(err); code == fsm.CodeInternal || code == fsm.CodeOK {
			t.Errorf("%v has code %d", err, code)
		}
	}
	if codeOf(errors.New("surprise")) != fsm.CodeInternal {
		t.Error("an unknown error must be internal")
	}
}

func TestInternalErrorsKeepTheirText(t *testing.T) {
	f := &faults{log: discard()}
	e := f.wire(errors.New("secret path /data"), 7, opGet)
	if e.GetCode() != coordpb.Code_CODE_INTERNAL || e.GetMessage() != "internal error" || f.n.Load() != 1 {
		t.Errorf("%v, %d logged", e, f.n.Load())
	}
}

func TestErrorsCarryTheirValues(t *testing.T) {
	e := wireError(&znode.MultiError{Index: 3, Err: &znode.VersionError{Path: "/a", Have: 5, Want: 6}})
	if e.GetOpIndex() != 3 || e.GetPath() != "/a" || e.GetHave() != 5 || e.GetWant() != 6 || e.GetCode() != coordpb.Code_CODE_BAD_VERSION {
		t.Errorf("%v", e)
	}
	e = wireError(&limitError{kind: fsm.ErrTooLarge, what: "bytes", have: 9, most: 8, setting: settingNode})
	if e.GetLimit() != settingNode || e.GetHave() != 9 || e.GetWant() != 8 || e.GetCode() != coordpb.Code_CODE_TOO_LARGE {
		t.Errorf("%v", e)
	}
	if e := wireError(session.ErrUnknownOutcome); !e.GetMaybeDone() {
		t.Errorf("%v does not say that it may be done", e)
	}
	if e := wireError(cluster.ErrOverloaded); e.GetMaybeDone() || e.GetRetryAfterMs() == 0 {
		t.Errorf("%v does not say when to come back", e)
	}
}
