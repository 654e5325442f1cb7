package server

import (
	"log/slog"
	"sync/atomic"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
)

// faults logs the errors that should not be: those in no table. Their text
// stays in the log; the client gets "internal error".
type faults struct {
	log *slog.Logger
	n   atomic.Uint64
}

// wire is wireError for the answer to request id.
func (f *faults) wire(err error, id uint64, op opName) *coordpb.Error {
	e := wireError(err)
	if e.GetCode() == coordpb.Code(fsm.CodeInternal) {
		f.n.Add(1)
		f.log.Error("internal error", "event", "internal_error", "request", id, "op", op.String(), "err", err)
	}
	return e
}
