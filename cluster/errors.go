package cluster

import (
	"errors"
	"fmt"

	"github.com/coordd/coord/fsm"
)

// Refusals: nothing was done. Those that cross a wire are the values of package
// fsm, which owns the codes.
var (
	// ErrNotLeader is returned when an answer needs the leader, and this server
	// neither leads nor knows who does. It heals by itself.
	ErrNotLeader = fsm.ErrNotLeader
	// ErrNotFormed is returned as long as a majority of the listed peers have no
	// vote. It comes as a *NotFormedError that says for whom the server waits.
	ErrNotFormed = fsm.ErrNotFormed
	// ErrOverloaded is returned when too much is unanswered. Try again later.
	ErrOverloaded = fsm.ErrOverloaded
	// ErrDiskFull is returned when a quorum has less room on its disks than the
	// reserve. Reads, heartbeats and the end of sessions go on.
	ErrDiskFull = fsm.ErrDiskFull
	// ErrStopped is returned when the node has not been started or was told to
	// stop.
	ErrStopped = fsm.ErrShuttingDown
	// ErrRefused is returned when an operator's request cannot be carried out as
	// things are; the message says why.
	ErrRefused = errors.New("refused")
)

// ErrSuperseded is given to the oldest of too many Beats of one session that
// wait for the leader. A later Beat of the session is still on its way.
var ErrSuperseded = errors.New("a later heartbeat took its place")

// NotFormedError says what a cluster that is not formed waits for. It matches
// ErrNotFormed.
type NotFormedError struct{ Waiting string }

func (e *NotFormedError) Error() string {
	return fmt.Sprintf("%v, %s", ErrNotFormed, e.Waiting)
}

// Is makes errors.Is(err, ErrNotFormed) true.
func (e *NotFormedError) Is(target error) bool { return target == ErrNotFormed }
