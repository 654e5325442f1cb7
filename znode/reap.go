package znode

import (
	"fmt"
	"time"

	"github.com/coordd/coord/zxid"
)

// ContainerGrace is how long a container may wait for its first child. ZooKeeper
// keeps a container that was never used for ever. A set of its data begins the
// time anew.
const ContainerGrace = 5 * time.Minute

// Reap names a node that the reaper found, in the state that it was found in:
// if it has been touched since, it is not deleted.
type Reap struct {
	Path         string
	Mzxid, Pzxid zxid.ID
}

// Expired returns up to limit nodes that are due at time now, by the state
// clock in milliseconds, those first that are longest due: containers whose last
// child has gone, containers that had no child for [ContainerGrace], and nodes
// with a TTL, ephemeral or not, without children that were not set for their
// time. It costs no more than what it returns.
func (t *Tree) Expired(now int64, limit int) []Reap {
	var due []Reap
	t.mortals.each(func(i uint32) bool {
		n := t.nodes.at(i)
		if n.due() > now || len(due) >= limit {
			return false
		}
		due = append(due, Reap{Path: t.path(i), Mzxid: n.mzxid, Pzxid: n.pzxid})
		return true
	})
	return due
}

// Reap deletes a node that Expired returned, unless its data or its children
// have changed since. No permission is asked for. The error is [ErrNoNode],
// [ErrBadVersion], [ErrNotEmpty], or [ErrBadArguments] for a node that is
// neither a container nor has a TTL.
func (t *Tree) Reap(tx *Tx, r Reap) error {
	i := t.find(r.Path)
	if i == 0 {
		return ErrNoNode
	}
	n := t.nodes.at(i)
	switch {
	case !n.mortal():
		return fmt.Errorf("reap %s: %w: a %v node does not expire", r.Path, ErrBadArguments, n.kind)
	case n.mzxid != r.Mzxid:
		return &VersionError{Path: r.Path, What: "mzxid", Have: int64(n.mzxid), Want: int64(r.Mzxid)}
	case n.pzxid != r.Pzxid:
		return &VersionError{Path: r.Path, What: "pzxid", Have: int64(n.pzxid), Want: int64(r.Pzxid)}
	case n.kids != 0:
		return ErrNotEmpty
	}
	parent, name, _ := splitPath(r.Path)
	t.remove(tx, i, newName{r.Path, name, parent})
	return nil
}
