package client

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// Types that the client shares with the rest of the service.
type (
	// Stat is what the cluster tells about a znode beside its data.
	Stat = znode.Stat
	// Kind is how long a znode lives.
	Kind = znode.Kind
	// ACL gives the holders of an identity some permissions.
	ACL = znode.ACL
	// Cause says why a znode changed.
	Cause = znode.Cause
	// Zxid numbers a transaction; later ones are larger.
	Zxid = zxid.ID
	// SessionID names a session for ever.
	SessionID = session.ID
	// Version counts the sets of a znode's data (or of its ACL).
	Version = int64
)

// MaxSequence is the largest number that [OpSequence] takes.
const MaxSequence = znode.MaxSequence

// AnyVersion asks a write for no version.
const AnyVersion Version = znode.AnyVersion

// Kinds of znodes.
const (
	Persistent = znode.Persistent // until it is deleted
	Ephemeral  = znode.Ephemeral  // as long as the session that created it (see WithTTL, WithLinger)
	Container  = znode.Container  // until some time after its last child has gone
	TTL        = znode.TTL        // until it has no children and was not set for a time
)

// Node is a znode as a read has found it.
type Node struct {
	Path string
	// Data is nil for a node that holds null and not nil for one that holds
	// an empty value.
	Data []byte
	Stat Stat
	// Zxid is the transaction that the answering server had applied when it
	// read.
	Zxid Zxid
	// Stale is set when the answer may be out of date ([ReadStale]); Age is
	// then the time since the server last knew to be current.
	Stale bool
	Age   time.Duration
	// Denied, in a [Client.Walk]: the caller may not read the node. It has no
	// data, and what is below it is left out.
	Denied bool
}

// Created is the outcome of a create.
type Created struct {
	Path string // with the number, if the node is sequential
	Stat Stat   // Stat.Czxid is the fencing token of recipes
}

// OpResult is the outcome of one operation of a [Client.Txn].
type OpResult struct {
	Path string // create: the final path; else the path asked for
	Stat Stat   // after create, set and set ACL; zero else
	// Err is nil if the operation was done. In a failed transaction the
	// operation that failed has its error and the others have ErrRolledBack.
	Err error
}

// ReadMode says how fresh a read must be.
type ReadMode uint8

const (
	// ReadDefault is the client's own mode ([WithReads]).
	ReadDefault ReadMode = iota
	// Linearizable reads see every write that was acknowledged anywhere before
	// they began. They need a majority of the cluster.
	Linearizable
	// ReadSession reads come from the server at hand and see at least all that
	// this client has seen and written, unanswered writes included.
	ReadSession
	// ReadStale reads come from the server at hand, also without a majority,
	// and say how old they may be.
	ReadStale
)

func (m ReadMode) String() string {
	switch m {
	case ReadDefault:
		return "default"
	case Linearizable:
		return "linearizable"
	case ReadSession:
		return "session"
	case ReadStale:
		return "stale"
	default:
		return "unknown"
	}
}
