package server

import (
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// decodeWrite turns a client's write into one for the log, or says why this
// server refuses it by itself: what is wrong here is wrong on every server, so
// it never needs the log. Permissions, versions and quotas are not looked at;
// they are decided at apply.
func decodeWrite(w *coordpb.Write, l *Limits) (*fsm.Write, error) {
	ops := w.GetOps()
	switch {
	case len(ops) > l.OpsPerMulti:
		return nil, &limitError{kind: fsm.ErrLimit, what: "operations in one transaction", have: int64(len(ops)), most: int64(l.OpsPerMulti), setting: settingOps}
	case !w.GetMulti() && len(ops) != 1:
		return nil, fmt.Errorf("a write has exactly one operation, not %d: %w", len(ops), znode.ErrBadArguments)
	case len(ops) == 0:
		return nil, fmt.Errorf("a transaction has at least one operation: %w", znode.ErrBadArguments)
	}
	out := &fsm.Write{Multi: w.GetMulti(), Ops: make([]znode.Op, len(ops))}
	size := 0
	for i, op := range ops {
		if err := decodeOp(&out.Ops[i], op, l); err != nil {
			return nil, atIndex(err, i, w.GetMulti())
		}
		size += opOverhead + len(op.GetPath()) + len(op.GetData())
	}
	if size > l.FrameBytes {
		return nil, &limitError{kind: fsm.ErrTooLarge, what: "bytes of one transaction", have: int64(size), most: int64(l.FrameBytes), setting: settingFrame}
	}
	return out, nil
}

// opOverhead is about what an operation takes beside its path and data, in bytes.
const opOverhead = 32

// atIndex notes which operation of a multi was refused.
func atIndex(err error, i int, multi bool) error {
	if !multi {
		return err
	}
	if e, ok := err.(*limitError); ok { //nolint:errorlint // decodeOp returns it bare
		e.index = i
		return e
	}
	return &znode.MultiError{Index: i, Err: err}
}

var opKinds = [...]znode.OpKind{
	coordpb.Op_KIND_CREATE:  znode.OpCreate,
	coordpb.Op_KIND_DELETE:  znode.OpDelete,
	coordpb.Op_KIND_SET:     znode.OpSet,
	coordpb.Op_KIND_SET_ACL: znode.OpSetACL,
	coordpb.Op_KIND_CHECK:   znode.OpCheck,

	coordpb.Op_KIND_SEQUENCE: znode.OpSequence,
}

var nodeKinds = [...]znode.Kind{
	coordpb.NodeKind_NODE_KIND_PERSISTENT: znode.Persistent,
	coordpb.NodeKind_NODE_KIND_EPHEMERAL:  znode.Ephemeral,
	coordpb.NodeKind_NODE_KIND_CONTAINER:  znode.Container,
	coordpb.NodeKind_NODE_KIND_TTL:        znode.TTL,
}

func decodeOp(dst *znode.Op, op *coordpb.Op, l *Limits) error {
	kind, node := int(op.GetKind()), int(op.GetNode())
	if kind <= 0 || kind >= len(opKinds) {
		return fmt.Errorf("operation of unknown kind %d: %w", kind, znode.ErrBadArguments)
	}
	if node < 0 || node >= len(nodeKinds) {
		return fmt.Errorf("node of unknown kind %d: %w", node, znode.ErrBadArguments)
	}
	if err := checkPath(op.GetPath(), op.GetSequential(), l); err != nil {
		return err
	}
	if n := len(op.GetData()); n > l.NodeBytes {
		return &limitError{kind: fsm.ErrTooLarge, what: "bytes of data of one znode", have: int64(n), most: int64(l.NodeBytes), setting: settingNode}
	}
	if op.GetVersion() < znode.AnyVersion {
		return fmt.Errorf("version %d: %w", op.GetVersion(), znode.ErrBadArguments)
	}
	*dst = znode.Op{
		Kind: opKinds[kind], Path: op.GetPath(), Version: op.GetVersion(),
		Czxid: zxid.ID(op.GetCzxid()), Owner: session.ID(op.GetOwner()),
	}
	switch dst.Kind {
	case znode.OpCreate:
		dst.Data, dst.Node, dst.Sequential = op.Data, nodeKinds[node], op.GetSequential()
	case znode.OpSet:
		dst.Data = op.Data
	case znode.OpDelete, znode.OpSetACL, znode.OpCheck, znode.OpSequence:
	}
	if err := decodeACL(dst, op.GetAcl()); err != nil {
		return err
	}
	return decodeTimes(dst, op)
}

// decodeTimes takes over how the node is to end. Whether that fits the node, or
// there is no node, is for the tree to say.
func decodeTimes(dst *znode.Op, op *coordpb.Op) (err error) {
	switch {
	case dst.Kind == znode.OpCreate && dst.Node == znode.TTL && op.GetTtlMs() == 0:
		return fmt.Errorf("a node of kind TTL needs a time to live: %w", znode.ErrBadArguments)
	case dst.Kind != znode.OpCreate && dst.Kind != znode.OpSet:
		return nil
	}
	without := dst.Kind == znode.OpSet
	if dst.TTL, err = decodeTime("time to live", op.GetTtlMs(), znode.MaxTTL, without); err != nil {
		return err
	}
	dst.Linger, err = decodeTime("linger", op.GetLingerMs(), znode.MaxLinger, without)
	return err
}

// decodeTime reads one time; -1 takes it away where that is allowed, and 0 says
// nothing.
func decodeTime(what string, ms int64, most time.Duration, without bool) (time.Duration, error) {
	switch {
	case ms == -1 && without:
		return znode.Without, nil
	case ms < 0 || ms > most.Milliseconds():
		return 0, fmt.Errorf("%s of %d ms is not between 1 and %d: %w", what, ms, most.Milliseconds(), znode.ErrBadArguments)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func decodeACL(dst *znode.Op, acl []*coordpb.ACL) error {
	switch dst.Kind {
	case znode.OpCreate:
		if len(acl) == 0 {
			dst.ACL = znode.OpenACL
			return nil
		}
	case znode.OpSetACL:
	case znode.OpDelete, znode.OpSet, znode.OpCheck, znode.OpSequence:
		return nil
	}
	if len(acl) > fsm.MaxACLs {
		return fmt.Errorf("%d entries, at most %d are allowed: %w", len(acl), fsm.MaxACLs, znode.ErrInvalidACL)
	}
	dst.ACL = make([]znode.ACL, len(acl))
	for i, a := range acl {
		if len(a.GetScheme()) > fsm.MaxNameBytes || len(a.GetId()) > fsm.MaxNameBytes {
			return fmt.Errorf("entry %d is longer than %d bytes: %w", i, fsm.MaxNameBytes, znode.ErrInvalidACL)
		}
		dst.ACL[i] = znode.ACL{Perms: a.GetPerms(), Scheme: a.GetScheme(), ID: a.GetId()}
	}
	return nil
}

// checkPath refuses a path that no znode can have. The path of a sequential
// create may end in a slash: the number is the name then.
func checkPath(p string, sequential bool, l *Limits) error {
	if len(p) > l.PathBytes {
		return &limitError{kind: fsm.ErrTooLarge, what: "bytes of a path", have: int64(len(p)), most: int64(l.PathBytes), setting: settingPath}
	}
	if sequential {
		p += "0"
	}
	return znode.ValidatePath(p)
}

// opNameOf names a write for metrics.
func opNameOf(w *coordpb.Write) opName {
	if w.GetMulti() || len(w.GetOps()) != 1 {
		return opMulti
	}
	switch w.GetOps()[0].GetKind() {
	case coordpb.Op_KIND_CREATE:
		return opCreate
	case coordpb.Op_KIND_DELETE:
		return opDelete
	case coordpb.Op_KIND_SET:
		return opSet
	case coordpb.Op_KIND_SET_ACL:
		return opSetACL
	case coordpb.Op_KIND_SEQUENCE:
		return opSequence
	case coordpb.Op_KIND_CHECK, coordpb.Op_KIND_UNSPECIFIED:
	}
	return opCheck
}
