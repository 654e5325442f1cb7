package znode

import (
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// AnyVersion as Op.Version asks for no version.
const AnyVersion int64 = -1

// OpKind says what an Op does. The numbers are part of the log format.
type OpKind uint8

// The operations.
const (
	OpCreate OpKind = iota + 1
	OpDelete
	OpSet
	OpSetACL
	OpCheck
	// OpSequence raises the number that the next sequential child of the node
	// gets to Version, as an import needs it; see [Tree.SetSequence]. It asks for
	// PermAdmin.
	OpSequence
)

// MaxSequence is the largest number that OpSequence takes: the last one of ten
// digits, with which names still sort as their numbers do.
const MaxSequence int64 = 9_999_999_999

// Op is one operation on the tree. Fields that a kind does not name are
// ignored by it.
type Op struct {
	Kind OpKind
	Path string
	// Data of create and set. Nil and empty differ: a node can hold null.
	Data []byte
	ACL  []ACL // create and set ACL; must not be empty

	// Version must be the node's (set, delete, check: Stat.Version; set ACL:
	// Stat.Aversion) unless it is AnyVersion. With Version31 the low 31 bits
	// are compared, as the ZooKeeper port shows them. Of OpSequence it is the
	// number.
	Version   int64
	Version31 bool
	// Czxid and Owner, for delete, set and check: the node must have been
	// created by that transaction, or belong to that session. 0 does not ask.
	// A path and a version can come again after a container was reaped and
	// made anew; a czxid cannot.
	Czxid zxid.ID
	Owner session.ID

	// TTL and Linger, in whole milliseconds, are those of the Stat. Create gives
	// them: TTL to nodes of kind TTL, which must have one, and to ephemerals;
	// Linger to ephemerals. Set can take either away from an ephemeral
	// ([Without]) and change Linger; 0 leaves them as they are.
	TTL, Linger time.Duration

	// Create only.
	Node       Kind
	Sequential bool
}

// OpResult is the outcome of one Op.
type OpResult struct {
	Kind OpKind
	Path string // create: the final path; else the path asked for
	Stat Stat   // after create, set, set ACL and sequence; zero else
	Err  error
}

// Caller is on whose behalf an operation runs.
type Caller struct {
	Session    session.ID // owner of ephemerals it creates; 0 = none
	Identities []Identity
	// Trusted callers pass every ACL: the service itself, and superusers.
	Trusted bool
}

// Cause says why a change happened.
type Cause uint8

// The causes.
const (
	ByRequest Cause = iota
	BySessionClose
	BySessionExpiry
	ByReaper // container, or node with a TTL, past its time
	ByAdmin
)

// Tx is the transaction that operations run in.
type Tx struct {
	Zxid   zxid.ID
	Time   int64 // state clock, ms since 1970
	Caller *Caller
	Cause  Cause
	// Changes collects what was done, in order. Operations append; the caller
	// may reuse the slice for the next transaction.
	Changes []Change
}

// ChangeType says what happened to a node.
type ChangeType uint8

// The types of a change.
const (
	Created ChangeType = iota + 1
	Deleted
	DataChanged
	ACLChanged
)

// Change is one change of one node. It is what watches fire on.
type Change struct {
	Type    ChangeType
	Path    string
	Zxid    zxid.ID
	Cause   Cause
	Session session.ID // on whose behalf; 0 = no session
	Data    []byte     // after the change; nil for Deleted
	Stat    Stat       // after the change; before it for Deleted

	acl *[]ACL // after the change; nil for Deleted
}

// Readable reports whether the caller may read Data, by the ACL that the node had
// with it.
func (c *Change) Readable(caller *Caller) bool {
	return c.acl != nil && Permits(*c.acl, PermRead, caller)
}
