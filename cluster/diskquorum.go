package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// DiskFullError is why writes are refused while too few servers have room on
// their disks. It matches ErrDiskFull.
type DiskFullError struct {
	// Why names the servers that are short of room, or silent.
	Why string
	// For is how long this server has known it.
	For time.Duration
	// Spent says that nothing at all is written, not even what only takes away.
	Spent bool
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("%v: too few servers have room (%s)", ErrDiskFull, e.Why)
}

// Is makes errors.Is(err, ErrDiskFull) true.
func (e *DiskFullError) Is(target error) bool { return target == ErrDiskFull }

// quorumRoom is what the leader says of the disks of all.
type quorumRoom struct {
	low   bool // no majority has room: writes are refused
	spent bool // no majority has any: nothing is written
	why   string
	since time.Duration // low began, on the node's clock of who holds this
}

// noteQuorum takes in what the leader says.
func (n *Node) noteQuorum(q quorumRoom) {
	q.since = n.now()
	if old := n.disk.quorum.Load(); old != nil && old.low {
		q.since = old.since
	}
	n.disk.quorum.Store(&q)
}

// diskFull is the error for writes, nil while they are taken.
func (n *Node) diskFull() error {
	q := n.disk.quorum.Load()
	if q == nil || !q.low {
		return nil
	}
	return &DiskFullError{Why: q.why, For: n.now() - q.since, Spent: q.spent}
}

// judgeQuorum says at the leader whether a majority of the voters has room. One
// that is silent counts as one that has none: if it does not come back, what is
// written fills the disk that is low.
func (n *Node) judgeQuorum() quorumRoom {
	var voters, low, spent, silent int
	var why []string
	for _, s := range n.members() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		id := serverID(s.ID)
		state, _, ok := n.stateOfServer(id)
		switch {
		case !ok || !n.inContact(id):
			silent++
			why = append(why, id.name()+": not in contact")
		case state.GetDiskLow():
			low++
			if state.GetDisk().GetSpent() {
				spent++
			}
			why = append(why, id.name()+": "+roomOf(state.GetDisk()))
		}
	}
	q := quorumRoom{
		low:   low > 0 && voters-low-silent <= voters/2,
		spent: spent > 0 && voters-spent-silent <= voters/2,
	}
	if q.low {
		q.why = strings.Join(why, "; ")
	}
	return q
}

// judgeDisks puts into rep what judgeQuorum says.
func (n *Node) judgeDisks(rep *peerpb.ReportReply) {
	q := n.judgeQuorum()
	rep.DiskFull, rep.DiskSpent, rep.DiskWhy = q.low, q.spent, q.why
}

// roomOf says how much room a server has.
func roomOf(d *peerpb.Disk) string {
	return fmt.Sprintf("%s free beside %s of %s of reserve", mebibytes(d.GetFree()), mebibytes(d.GetHeld()), mebibytes(d.GetReserve()))
}

// mayPropose says whether the leader may add to its log.
func (n *Node) mayPropose() bool {
	q := n.disk.quorum.Load()
	return !n.disk.isSpent() && (q == nil || !q.spent)
}

const (
	// yieldRetry is how often a leader that is low tries to hand over.
	yieldRetry = 5 * time.Second
	// yieldTimeout bounds one try.
	yieldTimeout = 2 * time.Second
)

// yielder hands leadership to a server that has room, as long as there are enough
// of those for writes to go on: a follower that is low can leave entries out for a
// while, a leader cannot. It belongs to diskLoop.
type yielder struct{ next time.Duration }

func (y *yielder) look(ctx context.Context, n *Node) {
	if !n.disk.isLow() || n.reign.Load() == nil || n.now() < y.next || n.judgeQuorum().low {
		return
	}
	to, ok := n.roomiest()
	if !ok {
		return
	}
	y.next = n.now() + yieldRetry
	ctx, cancel := context.WithTimeout(ctx, yieldTimeout)
	defer cancel()
	_, err := n.transferHere(ctx, to)
	n.log.Warn("leadership goes to a server that has room on its disk", "event", "disk_yield", "peer", to, "err", err)
}

// roomiest is the voter with the most room that is not low itself.
func (n *Node) roomiest() (name string, ok bool) {
	most := int64(-1)
	for _, id := range n.voters() {
		state, _, known := n.stateOfServer(id)
		if id == n.id || !known || !n.inContact(id) || state.GetDiskLow() {
			continue
		}
		if free := state.GetDisk().GetFree(); free > most {
			name, most, ok = id.name(), free, true
		}
	}
	return name, ok
}
