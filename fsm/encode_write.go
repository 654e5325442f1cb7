package fsm

import (
	"encoding/binary"

	"github.com/coordd/coord/znode"
)

// Flags of a write.
const (
	writeMulti byte = 1 << iota
	writeTrusted
	writeRequest    // RequestID and ValidUntil follow
	writeIdentities // identities follow
	writeFlags      = writeMulti | writeTrusted | writeRequest | writeIdentities
)

// Flags of an op: which of its rarer fields follow.
const (
	opData      byte = 1 << iota // data is there, be it empty
	opVersion31                  // compare 31 bits of the version
	opSequential
	opCondition // Czxid and Owner
	opACL
	opTTL
	opLinger
	opFlags = opData | opVersion31 | opSequential | opCondition | opACL | opTTL | opLinger
)

func appendWrite(dst []byte, w *Write) []byte {
	var flags byte
	if w.Multi {
		flags |= writeMulti
	}
	if w.Trusted {
		flags |= writeTrusted
	}
	if w.RequestID != "" || w.ValidUntil != 0 {
		flags |= writeRequest
	}
	if len(w.Identities) > 0 {
		flags |= writeIdentities
	}
	dst = append(dst, flags)
	if flags&writeRequest != 0 {
		dst = appendString(dst, w.RequestID)
		dst = binary.AppendVarint(dst, w.ValidUntil)
	}
	if flags&writeIdentities != 0 {
		dst = appendIdentities(dst, w.Identities)
	}
	start := len(dst)
	dst = appendOps(dst, w.Ops)
	w.Hash = 0
	if w.RequestID != "" {
		w.Hash = requestHash(w.Multi, dst[start:])
	}
	return dst
}

func appendOps(dst []byte, ops []znode.Op) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(ops)))
	for i := range ops {
		dst = appendOp(dst, &ops[i])
	}
	return dst
}

// appendOp writes kind, node kind and flags, then path and version, then what
// the flags announce.
func appendOp(dst []byte, op *znode.Op) []byte {
	flags := flagsOf(op)
	dst = append(dst, byte(op.Kind), byte(op.Node), flags)
	dst = appendString(dst, op.Path)
	dst = binary.AppendVarint(dst, op.Version)
	if flags&opData != 0 {
		dst = appendBytes(dst, op.Data)
	}
	if flags&opCondition != 0 {
		dst = binary.AppendUvarint(dst, uint64(op.Czxid))
		dst = binary.AppendUvarint(dst, uint64(op.Owner))
	}
	if flags&opACL != 0 {
		dst = appendACL(dst, op.ACL)
	}
	if flags&opTTL != 0 {
		dst = binary.AppendVarint(dst, int64(op.TTL))
	}
	if flags&opLinger != 0 {
		dst = binary.AppendVarint(dst, int64(op.Linger))
	}
	return dst
}

func flagsOf(op *znode.Op) byte {
	var flags byte
	set := func(on bool, flag byte) {
		if on {
			flags |= flag
		}
	}
	set(op.Data != nil, opData)
	set(op.Version31, opVersion31)
	set(op.Sequential, opSequential)
	set(op.Czxid != 0 || op.Owner != 0, opCondition)
	set(len(op.ACL) > 0, opACL)
	set(op.TTL != 0, opTTL)
	set(op.Linger != 0, opLinger)
	return flags
}

func appendACL(dst []byte, acl []znode.ACL) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(acl)))
	for _, a := range acl {
		dst = binary.AppendUvarint(dst, uint64(a.Perms))
		dst = appendString(dst, a.Scheme)
		dst = appendString(dst, a.ID)
	}
	return dst
}
