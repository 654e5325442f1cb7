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

const (
	// maxGivenBack bounds the operations of a write that goes on in an overload: it
	// must be the release of some locks and no work.
	maxGivenBack = 64
	// givenPerSecond and givenAtOnce bound what one connection may give back while
	// other writes are withheld, in operations; a larger transaction counts as so
	// much. A delete of what is not there takes as much of the reserve as any.
	givenPerSecond = 100
	givenAtOnce    = 5000
)

// errGivesTooMuch is returned for what is given back faster than locks are.
var errGivesTooMuch = &cluster.OverloadedError{RetryAfter: time.Second}

// newGiving bounds what one connection gives back while other writes are withheld.
func newGiving() *rate.Limiter { return rate.NewLimiter(givenPerSecond, givenAtOnce) }

// withheld is why a write cannot be taken, of what the node says: one that only
// gives back goes on while the disks are full or there is too much to do, so that
// locks can be released. Only where nothing is written at all it waits, too. giving
// is that of the connection.
func withheld(load error, givesBack bool, ops int, giving *rate.Limiter) error {
	full := errors.Is(load, cluster.ErrDiskFull)
	switch {
	case load == nil || !givesBack || spent(load) || !full && ops > maxGivenBack:
		return load
	case !giving.AllowN(time.Now(), min(max(ops, 1), givenAtOnce)):
		return errGivesTooMuch
	}
	return nil
}
