package server

import (
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/coordd/coord/cluster"
)

const (
	// diskPatience is how long full disks make writes wait before they are
	// refused: a server that is short of room for the time of a snapshot is no
	// reason for an error.
	diskPatience = time.Second
	// declinesPerSecond bounds the numbered writes that this server refuses while
	// the disks are full. Each takes its number, which is a few bytes of log; at
	// most so many clients that try again without a pause take 100 bytes each
	// second from the reserve. Beyond it they wait.
	declinesPerSecond = 200
	declinesAtOnce    = 1000
)

// diskRefusals decides which numbered writes are refused while the disks are full,
// and which wait. It is safe for concurrent use.
type diskRefusals struct {
	declined *rate.Limiter
}

func newDiskRefusals() *diskRefusals {
	return &diskRefusals{rate.NewLimiter(declinesPerSecond, declinesAtOnce)}
}

// declines says whether a numbered write that err keeps from being taken is
// refused now; else it waits. While nothing at all is written, it can only wait.
func (d *diskRefusals) declines(err error) bool {
	return refused(err) && !spent(err) && d.declined.Allow()
}

// refused says whether err is that of full disks, and of more than a moment.
func refused(err error) bool {
	if full, ok := errors.AsType[*cluster.DiskFullError](err); ok {
		return full.For >= diskPatience
	}
	return errors.Is(err, cluster.ErrDiskFull)
}

// spent says that not even what only takes away is written.
func spent(err error) bool {
	full, ok := errors.AsType[*cluster.DiskFullError](err)
	return ok && full.Spent
}

// maxGivenBack bounds the operations of a write that goes on in an overload: it
// must be the release of some locks and no work.
const maxGivenBack = 64

// withheld is why a write cannot be taken, of what the node says: one that only
// gives back goes on while the disks are full or there is too much to do, so that
// locks can be released. Only where nothing is written at all it waits, too.
func withheld(load error, givesBack bool, ops int) error {
	full := errors.Is(load, cluster.ErrDiskFull)
	if givesBack && (full && !spent(load) || !full && ops <= maxGivenBack) {
		return nil
	}
	return load
}
