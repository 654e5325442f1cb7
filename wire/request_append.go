package wire

import (
	"time"

	"github.com/coordd/coord/znode"
)

// Append encodes the record of the operation, as a client sends it.
func (q *Request) Append(dst []byte) []byte {
	switch q.Type {
	case GetACL, Sync, GetAllChildrenNumber, GetEphemerals:
		return appendString(dst, q.Path)
	case AddWatch, RemoveWatches, CheckWatches:
		return appendInt(appendString(dst, q.Path), q.Mode)
	case Multi, MultiRead:
		for i := range q.Ops {
			dst = q.Ops[i].append(appendMultiHeader(dst, q.Ops[i].Type, false, -1))
		}
		return appendMultiHeader(dst, -1, true, -1)
	case Reconfig:
		dst = appendString(appendString(appendString(dst, q.Joining), q.Leaving), q.Members)
		return appendLong(dst, q.ConfigID)
	case Auth:
		return appendBuffer(appendString(appendInt(dst, 0), q.Scheme), q.Secret)
	case SASL:
		return appendBuffer(dst, q.Secret)
	case SetWatches, SetWatches2:
		dst = appendLong(dst, int64(q.Since))
		for i := range q.lists() {
			dst = appendStrings(dst, q.Watches[i])
		}
		return dst
	case Ping, WhoAmI, CloseSession:
		return dst
	default:
		return q.append(dst)
	}
}

func (q *Op) append(dst []byte) []byte {
	if !q.onNode() {
		return dst
	}
	dst = appendString(dst, q.Path)
	switch q.Type {
	case Exists, GetData, GetChildren, GetChildren2:
		return appendBool(dst, q.Watch)
	case SetData:
		return appendInt(appendBuffer(dst, q.Data), q.Version)
	case SetACL:
		return appendInt(AppendACL(dst, q.ACL), q.Version)
	case Delete, Check:
		return appendInt(dst, q.Version)
	default: // creates
		dst = appendInt(AppendACL(appendBuffer(dst, q.Data), q.ACL), q.Flags)
		if q.Type == CreateTTL {
			dst = appendLong(dst, int64(q.TTL/time.Millisecond))
		}
		return dst
	}
}

// AppendACL encodes a list of permissions. Nil is null.
func AppendACL(dst []byte, list []znode.ACL) []byte {
	if list == nil {
		return appendInt(dst, -1)
	}
	dst = appendInt(dst, int32(len(list)))
	for _, a := range list {
		dst = appendString(appendString(appendInt(dst, int32(a.Perms)), a.Scheme), a.ID)
	}
	return dst
}

func appendMultiHeader(dst []byte, t Type, done bool, err int32) []byte {
	return appendInt(appendBool(appendInt(dst, int32(t)), done), err)
}
