package znode

import (
	"strings"
	"time"
	"unsafe"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// node is one znode. Its size decides the memory of a server: 104 bytes, so
// that a page of 256 fits an allocation class of Go with little waste.
type node struct {
	// blob is the name and behind it the data. It is a string since it never
	// changes once it is stored: readers keep parts of it when the lock is gone.
	blob string

	czxid, mzxid, pzxid zxid.ID
	ctime, mtime        int64
	version, aversion   int64
	creates             int64  // children ever created, the next sequence number; an ephemeral: its limits
	life                uint64 // session that owns an ephemeral, milliseconds of a TTL node

	parent  uint32 // number of the parent; 0 for the root
	acl     uint32 // number in the table of ACL lists
	kids    uint32 // number of its list of children; 0 as long as it has none
	nameLen uint16
	kind    Kind
	flags   uint8
}

const (
	flagLive uint8 = 1 << iota // the slot holds a node
	flagNull                   // the data is null, not empty
)

const (
	// maxNameBytes bounds one element of a path.
	maxNameBytes = 1<<16 - 1
	// maxDataBytes bounds the data of a node. Servers have a much smaller
	// limit; this one keeps the arithmetic and the image format sound.
	maxDataBytes = 1 << 30
)

func (n *node) live() bool   { return n.flags&flagLive != 0 }
func (n *node) null() bool   { return n.flags&flagNull != 0 }
func (n *node) name() string { return n.blob[:n.nameLen] }

// data returns the data, nil only if it is null. It is the stored data itself,
// not a copy, and must not be written.
func (n *node) data() []byte {
	if n.null() {
		return nil
	}
	d := n.text()
	if d == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(d), len(d))
}

// text is the data as a string, empty if it is null.
func (n *node) text() string { return n.blob[n.nameLen:] }

func (n *node) dataLen() int { return len(n.blob) - int(n.nameLen) }

// setBlob stores a copy of name and data.
func (n *node) setBlob(name string, data []byte) {
	var b strings.Builder
	b.Grow(len(name) + len(data))
	b.WriteString(name)
	b.Write(data)
	n.blob = b.String()
	n.nameLen = uint16(len(name))
	n.setNull(data == nil)
}

// setData stores a copy of data in a new blob.
func (n *node) setData(data []byte) { n.setBlob(n.name(), data) }

func (n *node) setNull(null bool) {
	n.flags &^= flagNull
	if null {
		n.flags |= flagNull
	}
}

func (n *node) owner() session.ID {
	if n.kind == Ephemeral {
		return session.ID(n.life)
	}
	return 0
}

// limits are those of an ephemeral; none for other kinds.
func (n *node) limits() limits {
	if n.kind != Ephemeral {
		return limits{}
	}
	return unpackLimits(n.creates)
}

// sequence is the number that the next sequential child gets.
func (n *node) sequence() int64 {
	if n.kind == Ephemeral {
		return 0
	}
	return n.creates
}

// mortal reports whether the reaper may come for the node.
func (n *node) mortal() bool {
	return n.kind == Container || n.kind == TTL || n.limits().ttl != 0
}

// due is when the reaper may delete the node, in the state clock's
// milliseconds, as long as it has no children.
func (n *node) due() int64 {
	switch {
	case n.kind == TTL:
		return n.mtime + int64(n.life)
	case n.kind == Ephemeral:
		return n.mtime + n.limits().ttl
	case n.creates > 0:
		return n.mtime
	default:
		return n.mtime + ContainerGrace.Milliseconds()
	}
}

func (n *node) stat(children int) Stat {
	s := Stat{
		Czxid: n.czxid, Mzxid: n.mzxid, Pzxid: n.pzxid,
		Ctime: n.ctime, Mtime: n.mtime,
		Version: n.version, Aversion: n.aversion,
		Cversion:       2*n.sequence() - int64(children),
		EphemeralOwner: n.owner(),
		DataLength:     int32(n.dataLen()),
		NumChildren:    int32(children),
		Kind:           n.kind,
	}
	switch n.kind {
	case TTL:
		s.TTL = time.Duration(n.life) * time.Millisecond
	case Ephemeral:
		l := n.limits()
		s.TTL, s.Linger = time.Duration(l.ttl)*time.Millisecond, time.Duration(l.linger)*time.Millisecond
	case Persistent, Container:
	}
	return s
}
