package client

import (
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
)

// Op is one operation of a [Client.Txn]. Make it with OpCreate, OpSet,
// OpDelete, OpSetACL, OpCheck or OpCheckNode.
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
	acl        []ACL
}

// CreateOption says what kind of node to create.
type CreateOption func(*Op)

// WithEphemeral makes a node that lives as long as the session.
func WithEphemeral() CreateOption { return func(o *Op) { o.node = Ephemeral } }

// WithSequential puts a number behind the name, larger than that of every
// earlier sequential child of the same parent.
func WithSequential() CreateOption { return func(o *Op) { o.sequential = true } }

// WithContainer makes a node that the cluster deletes some time after its last
// child has gone.
func WithContainer() CreateOption { return func(o *Op) { o.node = Container } }

// WithTTL makes a node that the cluster deletes when it has no children and was
// not set for d, which must be whole milliseconds.
func WithTTL(d time.Duration) CreateOption {
	return func(o *Op) { o.node, o.ttl = TTL, d }
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

// OpSet sets a node's data. Nil data and empty data differ.
func OpSet(path string, data []byte, version Version) Op {
	return Op{kind: coordpb.Op_KIND_SET, path: path, data: data, version: version}
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

// toProto fills in p.
func (o *Op) toProto(root chroot, p *coordpb.Op) error {
	full, err := root.check(o.path, o.sequential)
	if err != nil {
		return err
	}
	p.Kind, p.Path, p.Data, p.Version = o.kind, full, o.data, o.version
	p.Czxid, p.Owner = uint64(o.czxid), uint64(o.owner)
	p.Node, p.Sequential, p.TtlMs = coordpb.NodeKind(o.node), o.sequential, o.ttl.Milliseconds()
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
	}
}

func aclFromProto(ps []*coordpb.ACL) []ACL {
	out := make([]ACL, 0, len(ps))
	for _, p := range ps {
		out = append(out, ACL{Perms: p.GetPerms(), Scheme: p.GetScheme(), ID: p.GetId()})
	}
	return out
}
