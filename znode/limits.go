package znode

import (
	"fmt"
	"time"
)

// MaxTTL is the longest time to live: 40 bits of milliseconds, over 34 years, as
// in ZooKeeper.
const MaxTTL = (1<<40 - 1) * time.Millisecond

// MaxLinger is the longest time that an ephemeral node outlives its session.
// It is short since nobody can use what the node stands for meanwhile.
const MaxLinger = time.Hour

// Without as Op.TTL or Op.Linger of a set takes that limit off the node.
const Without time.Duration = -1

// limits are how an ephemeral node ends otherwise than just with its session. A
// node has no room for them of its own: they stand where other nodes count the
// children that they ever had, since an ephemeral has none. ZooKeeper knows
// neither, so 0 is what its clients make.
type limits struct {
	ttl    int64 // ms until the reaper comes if the node is not set; 0: never
	linger int64 // ms it stays as a TTL node if its session does not close; 0: not at all
}

// lingerBits hold the milliseconds of [MaxLinger]; with the 40 bits of [MaxTTL]
// above them the sign stays clear.
const lingerBits = 22

func (l limits) pack() int64 { return l.ttl<<lingerBits | l.linger }

func unpackLimits(v int64) limits {
	return limits{ttl: v >> lingerBits, linger: v & (1<<lingerBits - 1)}
}

// sound says whether a node can have such limits, which come from an image.
func (l limits) sound() bool {
	return l.ttl >= 0 && l.ttl <= MaxTTL.Milliseconds() && l.linger <= MaxLinger.Milliseconds()
}

// checkLimits looks at the times of a node to create.
func (op *Op) checkLimits() error {
	switch {
	case op.Node != TTL && op.Node != Ephemeral && op.TTL != 0:
		return fmt.Errorf("%w: a %v node has no TTL", ErrBadArguments, op.Node)
	case op.Node != Ephemeral && op.Linger != 0:
		return fmt.Errorf("%w: a %v node does not linger", ErrBadArguments, op.Node)
	case op.Node == TTL || op.TTL != 0:
		if err := checkTime("TTL", op.TTL, MaxTTL); err != nil {
			return err
		}
	}
	if op.Linger != 0 {
		return checkTime("linger", op.Linger, MaxLinger)
	}
	return nil
}

// checkNewLimits looks at the times that a set changes.
func (op *Op) checkNewLimits(n *node) error {
	switch {
	case op.TTL == 0 && op.Linger == 0:
		return nil
	case op.TTL != 0 && op.TTL != Without:
		return fmt.Errorf("%w: a set can take the TTL away, but give none", ErrBadArguments)
	case n.kind != Ephemeral:
		return fmt.Errorf("%w: a %v node has no TTL to take away and does not linger", ErrBadArguments, n.kind)
	case op.Linger != 0 && op.Linger != Without:
		return checkTime("linger", op.Linger, MaxLinger)
	}
	return nil
}

func checkTime(what string, d, most time.Duration) error {
	if d <= 0 || d > most || d%time.Millisecond != 0 {
		return fmt.Errorf("%w: %s %v: want whole milliseconds up to %v", ErrBadArguments, what, d, most)
	}
	return nil
}

// setLimits changes the times of node n, which is open for edit, as the set asks.
func (op *Op) setLimits(n *node) {
	if op.TTL == 0 && op.Linger == 0 {
		return
	}
	l := n.limits()
	if op.TTL == Without {
		l.ttl = 0
	}
	switch {
	case op.Linger == Without:
		l.linger = 0
	case op.Linger != 0:
		l.linger = op.Linger.Milliseconds()
	}
	n.creates = l.pack()
}
