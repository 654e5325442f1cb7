package znode

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// Kind is how long a znode lives. The zero value is Persistent.
type Kind uint8

// The kinds of znodes.
const (
	Persistent Kind = iota // until it is deleted
	Ephemeral              // as long as its session; see Stat.TTL and Stat.Linger for less and more
	Container              // until its last child has gone, or it was never used
	TTL                    // until it has no children and was not modified for a time
)

func (k Kind) String() string {
	switch k {
	case Persistent:
		return "persistent"
	case Ephemeral:
		return "ephemeral"
	case Container:
		return "container"
	case TTL:
		return "ttl"
	default:
		return "unknown"
	}
}

// Stat is what ZooKeeper tells about a znode beside its data. Counters have 64
// bits and never wrap; the ZooKeeper port shows their low 31.
type Stat struct {
	Czxid zxid.ID // transaction that created it
	Mzxid zxid.ID // last transaction that set its data
	Pzxid zxid.ID // last transaction that created or deleted a child; Czxid at first

	Ctime int64 // of Czxid, ms since 1970 by the state clock
	Mtime int64 // of Mzxid

	Version  int64 // sets of the data so far
	Cversion int64 // creates and deletes of children so far
	Aversion int64 // sets of the ACL so far

	EphemeralOwner session.ID // 0 unless Kind is Ephemeral
	DataLength     int32      // bytes; 0 for null data too
	NumChildren    int32

	Kind Kind
	// TTL of a node of Kind TTL or Ephemeral: it goes when it has no children and
	// was not set for so long. 0 is no limit.
	TTL time.Duration
	// Linger of an Ephemeral: if its session ends without being closed, the node
	// becomes one of Kind TTL, for so long. 0: it goes with the session.
	Linger time.Duration
}
