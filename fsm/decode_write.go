package fsm

import (
	"math"
	"time"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// minOpBytes is the size of the smallest op: kind, node kind, flags, an empty
// path and a version.
const minOpBytes = 5

func (d *decoder) decodeWrite(r *reader) {
	w := &d.write
	*w = Write{}
	d.Write = w
	flags := r.byte()
	if flags&^writeFlags != 0 {
		r.fail("unknown write flags %#x", flags)
	}
	w.Multi = flags&writeMulti != 0
	w.Trusted = flags&writeTrusted != 0
	if flags&writeRequest != 0 {
		w.RequestID = r.string()
		w.ValidUntil = r.varint()
		r.useful(w.RequestID != "" || w.ValidUntil != 0)
	}
	if flags&writeIdentities != 0 {
		w.Identities = identities(r)
		r.useful(len(w.Identities) > 0)
	}
	ops := r.b
	d.decodeOps(r)
	w.Ops = d.ops
	if w.RequestID != "" {
		w.Hash = requestHash(w.Multi, ops[:len(ops)-len(r.b)])
	}
}

func (d *decoder) decodeOps(r *reader) {
	n := r.count(minOpBytes)
	if cap(d.ops) < n || cap(d.ops) > maxKeptOps {
		d.ops = make([]znode.Op, 0, n)
	}
	d.ops = d.ops[:n]
	for i := range d.ops {
		decodeOp(r, &d.ops[i])
	}
}

func decodeOp(r *reader, op *znode.Op) {
	*op = znode.Op{Kind: znode.OpKind(r.byte()), Node: znode.Kind(r.byte())}
	flags := r.byte()
	if flags&^opFlags != 0 {
		r.fail("unknown op flags %#x", flags)
	}
	op.Version31 = flags&opVersion31 != 0
	op.Sequential = flags&opSequential != 0
	op.Path = r.string()
	op.Version = r.varint()
	if flags&opData != 0 {
		op.Data = r.data()
	}
	if flags&opCondition != 0 {
		op.Czxid = zxid.ID(r.uvarint())
		op.Owner = session.ID(r.uvarint())
		r.useful(op.Czxid != 0 || op.Owner != 0)
	}
	if flags&opACL != 0 {
		op.ACL = decodeACL(r)
		r.useful(len(op.ACL) > 0)
	}
	if flags&opTTL != 0 {
		op.TTL = time.Duration(r.varint())
		r.useful(op.TTL != 0)
	}
	if flags&opLinger != 0 {
		op.Linger = time.Duration(r.varint())
		r.useful(op.Linger != 0)
	}
}

func decodeACL(r *reader) []znode.ACL {
	n := r.count(3)
	if n == 0 {
		return nil
	}
	acl := make([]znode.ACL, n)
	for i := range acl {
		acl[i] = znode.ACL{
			Perms:  uint32(r.narrow(math.MaxUint32)),
			Scheme: r.known("world", "auth", "digest", "ip", "x509"),
			ID:     r.known("anyone", ""),
		}
	}
	return acl
}

// data reads bytes that are there even if there are none of them.
func (r *reader) data() []byte {
	b := r.bytes()
	if b == nil {
		return []byte{}
	}
	return b
}

// useful refuses a field that was announced and is empty: it has a shorter
// encoding.
func (r *reader) useful(ok bool) {
	if !ok {
		r.fail("an announced field is empty")
	}
}
