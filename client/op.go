package client

import (
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
)

// Op is one operation of a [Client.Txn]. Make it with OpCreate, OpSet,
// OpDelete, OpSetACL, OpCheck, OpCheckNode or OpSequence.
type Op struct {
	kind       coordpb.Op_Kind
	path       string
	data       []byte
	version    Version
	czxid      Zxid
	owner      SessionID
	node       Kind
	sequential bool
	ttl        time.Duration
	linger     time.Duration
	acl        []ACL
	fault      error // of an option, for nothing else fails as it is made
}

// CreateOption says what kind of node to create.
type CreateOption func(*Op)

// SetOption says what to change beside the data.
type SetOption func(*Op)

// WithEphemeral makes a node that lives as long as the session.
func WithEphemeral() CreateOption { return func(o *Op) { o.node = Ephemeral } }

// WithSequential puts a number behind the name, larger than that of every
// earlier sequential child of the same parent.
func WithSequential() CreateOption { return func(o *Op) { o.sequential = true } }

// WithContainer makes a node that the cluster deletes some time after its last
// child has gone.
func WithContainer() CreateOption { return func(o *Op) { o.node = Container } }

// WithTTL makes a node that the cluster deletes when it has no children and was
// not set for d, which must be whole milliseconds. With [WithEphemeral] the node
// goes with its session or after d, whichever comes first: it is the bid of a
// client that does not want to wait for longer, whatever becomes of the client.
func WithTTL(d time.Duration) CreateOption {
	return func(o *Op) {
		if o.node != Ephemeral {
			o.node = TTL
		}
		o.ttl = d
		o.checkTime("time to live", d)
	}
}

// WithLinger makes an ephemeral outlive its session by d, at most an hour, in
// whole milliseconds, if that ends in any other way than by its own Close: then
// it becomes a node of kind [TTL] in that same transaction, with its data and
// Czxid and without an owner, and the cluster deletes it d later. So it keeps
// the place of a holder whose last requests may still be under way. 0 is an
// ordinary ephemeral.
func WithLinger(d time.Duration) CreateOption {
	return func(o *Op) { o.setLinger(d, 0) }
}

// SetLinger changes how long an ephemeral outlives its session; see [WithLinger].
// 0 makes it go with the session.
func SetLinger(d time.Duration) SetOption {
	return func(o *Op) { o.setLinger(d, znode.Without) }
}

// ClearTTL takes the time limit off an ephemeral. One that has none stays as it
// is.
func ClearTTL() SetOption { return func(o *Op) { o.ttl = znode.Without } }

// setLinger notes a linger, or none in the given way.
func (o *Op) setLinger(d, none time.Duration) {
	if o.linger = d; d == 0 {
		o.linger = none
		return
	}
	o.checkTime("linger", d)
}

// checkTime refuses what the protocol cannot say. The server knows the bounds.
func (o *Op) checkTime(what string, d time.Duration) {
	if d <= 0 || d%time.Millisecond != 0 {
		o.fault = fmt.Errorf("%w: %s %v: want whole milliseconds", ErrBadArguments, what, d)
	}
}

// millis is a time as the protocol says it; [znode.Without] is -1.
func millis(d time.Duration) int64 {
	if d == znode.Without {
		return -1
	}
	return d.Milliseconds()
}

// WithACL says who may do what; without it everybody may do everything.
func WithACL(acl ...ACL) CreateOption { return func(o *Op) { o.acl = acl } }

// OpCreate creates a node.
func OpCreate(path string, data []byte, opts ...CreateOption) Op {
	o := Op{kind: coordpb.Op_KIND_CREATE, path: path, data: data, version: AnyVersion}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// OpSet sets a node's data. Nil data and empty data differ. SetOptions are for
// ephemerals; for others they are ErrBadArguments.
func OpSet(path string, data []byte, version Version, opts ...SetOption) Op {
	o := Op{kind: coordpb.Op_KIND_SET, path: path, data: data, version: version}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// OpDelete deletes a node.
func OpDelete(path string, version Version) Op {
	return Op{kind: coordpb.Op_KIND_DELETE, path: path, version: version}
}

// OpDeleteNode deletes the very node that transaction czxid has created for
// session owner, and no other that may have come to stand at its path. A zero
// owner is not asked for.
func OpDeleteNode(path string, czxid Zxid, owner SessionID) Op {
	return Op{kind: coordpb.Op_KIND_DELETE, path: path, version: AnyVersion, czxid: czxid, owner: owner}
}

// OpSetACL sets a node's ACL; aversion is Stat.Aversion or AnyVersion.
func OpSetACL(path string, acl []ACL, aversion Version) Op {
	return Op{kind: coordpb.Op_KIND_SET_ACL, path: path, acl: acl, version: aversion}
}

// OpCheck fails the transaction unless the node exists and has the version.
func OpCheck(path string, version Version) Op {
	return Op{kind: coordpb.Op_KIND_CHECK, path: path, version: version}
}

// OpCheckNode fails the transaction unless the node at path is the very one
// that transaction czxid has created, and belongs to session owner. Path and
// version can come again after a node was deleted and made anew; a czxid cannot.
// A zero owner is not asked for.
func OpCheckNode(path string, czxid Zxid, owner SessionID) Op {
	return Op{kind: coordpb.Op_KIND_CHECK, path: path, version: AnyVersion, czxid: czxid, owner: owner}
}

// OpSequence raises the number that the next sequential child of the node at path
// gets to n, at most [MaxSequence]; a smaller one does nothing. It is for imports:
// numbers that were given out elsewhere are not given again here. It asks for the
// permission ADMIN on the node.
func OpSequence(path string, n int64) Op {
	return Op{kind: coordpb.Op_KIND_SEQUENCE, path: path, version: n}
}

// toProto fills in p.
func (o *Op) toProto(root chroot, p *coordpb.Op) error {
	full, err := root.check(o.path, o.sequential)
	if err != nil {
		return err
	}
	if o.fault != nil {
		return o.fault
	}
	p.Kind, p.Path, p.Data, p.Version = o.kind, full, o.data, o.version
	p.Czxid, p.Owner = uint64(o.czxid), uint64(o.owner)
	p.Node, p.Sequential = coordpb.NodeKind(o.node), o.sequential
	p.TtlMs, p.LingerMs = millis(o.ttl), millis(o.linger)
	for _, a := range o.acl {
		p.Acl = append(p.Acl, &coordpb.ACL{Perms: a.Perms, Scheme: a.Scheme, Id: a.ID})
	}
	return nil
}

func statFromProto(p *coordpb.Stat) Stat {
	if p == nil {
		return Stat{}
	}
	return Stat{
		Czxid: Zxid(p.Czxid), Mzxid: Zxid(p.Mzxid), Pzxid: Zxid(p.Pzxid),
		Ctime: p.CtimeMs, Mtime: p.MtimeMs,
		Version: p.Version, Cversion: p.Cversion, Aversion: p.Aversion,
		EphemeralOwner: SessionID(p.EphemeralOwner),
		DataLength:     p.DataLength, NumChildren: p.NumChildren,
		Kind: znode.Kind(p.Kind), TTL: time.Duration(p.TtlMs) * time.Millisecond,
		Linger: time.Duration(p.LingerMs) * time.Millisecond,
	}
}

func aclFromProto(ps []*coordpb.ACL) []ACL {
	out := make([]ACL, 0, len(ps))
	for _, p := range ps {
		out = append(out, ACL{Perms: p.GetPerms(), Scheme: p.GetScheme(), ID: p.GetId()})
	}
	return out
}
