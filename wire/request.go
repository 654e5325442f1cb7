package wire

import (
	"time"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// Header is what stands before the record of a request.
type Header struct {
	Xid  int32 // echoed in the reply
	Type Type
}

// HeaderBytes is the length of a request's header; a shorter frame is none.
const HeaderBytes = 8

// DecodeHeader splits a frame into header and record.
func DecodeHeader(frame []byte) (Header, []byte, error) {
	r := reader{b: frame}
	h := Header{Xid: r.int(), Type: Type(r.int())}
	return h, r.b, r.err
}

// Append encodes the header.
func (h Header) Append(dst []byte) []byte {
	return appendInt(appendInt(dst, h.Xid), int32(h.Type))
}

// Op is what may also stand in a multi: an operation on one node.
type Op struct {
	Type Type
	// Path of the node; of GetEphemerals, the beginning of the paths.
	Path    string
	Data    []byte // create, setData: nil is null
	ACL     []znode.ACL
	ACLNull bool          // the list was null, or one of its names was
	Watch   bool          // exists, getData, getChildren, getChildren2
	Flags   int32         // of a create
	Version int32         // delete, setData, setACL, check
	TTL     time.Duration // createTTL
}

// Request is the record of any operation. Which fields have a meaning depends on
// the operation; Decode sets the others to their zero values.
type Request struct {
	Op
	Mode int32 // addWatch: mode; removeWatches, checkWatches: kind

	Scheme string // auth
	Secret []byte // auth, sasl

	Since   zxid.ID     // setWatches, setWatches2
	Watches [5][]string // by WatchList; setWatches has the first three

	Ops []Op // multi, multiRead

	Joining, Leaving, Members string // reconfig
	ConfigID                  int64  // reconfig
}

// Indexes of Request.Watches.
const (
	ListData = iota
	ListExists
	ListChildren
	ListPersistent
	ListRecursive
)

// Known says whether the operation is one that a client may send.
func (t Type) Known() bool {
	_, ok := typeNames[t]
	return ok && t != Check
}

// Decode reads the record of an operation. It returns ErrMarshalling if the record
// ends early, a path is null, or a multi holds what it must not; then what was read
// up to there is in the request.
func (q *Request) Decode(t Type, record []byte) error {
	r := reader{b: record}
	*q = Request{Op: Op{Type: t}}
	q.decode(&r)
	return r.err
}

func (q *Request) decode(r *reader) {
	switch q.Type {
	case GetACL, Sync, GetAllChildrenNumber:
		q.Path = r.path()
	case GetEphemerals:
		q.Path = r.string()
	case AddWatch, RemoveWatches, CheckWatches:
		q.Path, q.Mode = r.path(), r.int()
	case Multi, MultiRead:
		q.decodeOps(r)
	case Reconfig:
		q.Joining, q.Leaving, q.Members, q.ConfigID = r.string(), r.string(), r.string(), r.long()
	case Auth:
		r.int() // a type that is always 0
		q.Scheme, q.Secret = r.string(), r.buffer()
	case SASL:
		q.Secret = r.buffer()
	case SetWatches, SetWatches2:
		q.Since = zxid.ID(r.long())
		for i := range q.lists() {
			q.Watches[i] = r.strings()
		}
	case Ping, WhoAmI, CloseSession: // no record
	default:
		q.Op.decode(r)
	}
}

// lists is how many lists of paths the operation has.
func (q *Request) lists() int {
	if q.Type == SetWatches {
		return ListPersistent
	}
	return len(q.Watches)
}

// decode reads the record of an operation that is known; there is none for others.
func (q *Op) decode(r *reader) {
	if !q.onNode() {
		return
	}
	q.Path = r.path()
	switch q.Type {
	case Exists, GetData, GetChildren, GetChildren2:
		q.Watch = r.bool()
	case SetData:
		q.Data, q.Version = r.buffer(), r.int()
	case SetACL:
		q.decodeACL(r)
		q.Version = r.int()
	case Delete, Check:
		q.Version = r.int()
	default: // creates
		q.Data = r.buffer()
		q.decodeACL(r)
		q.Flags = r.int()
		if q.Type == CreateTTL {
			q.TTL = milliseconds(r.long())
		}
	}
}

// onNode says whether the record is that of an operation on one node.
func (q *Op) onNode() bool {
	switch q.Type {
	case Create, Create2, CreateContainer, CreateTTL, SetACL, SetData, Delete, Check, Exists, GetData, GetChildren, GetChildren2:
		return true
	default:
		return false
	}
}

// milliseconds keeps what no duration can hold out of range for every check.
func milliseconds(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	switch {
	case ms > most:
		return 1<<63 - 1
	case ms < -most:
		return -1
	default:
		return time.Duration(ms) * time.Millisecond
	}
}

// minACLBytes is the least that an entry of an ACL takes: three ints.
const minACLBytes = 12

func (q *Op) decodeACL(r *reader) {
	n, ok := r.count(minACLBytes)
	if !ok {
		q.ACLNull = r.err == nil
		return
	}
	q.ACL = make([]znode.ACL, 0, n)
	for range n {
		perms := uint32(r.int())
		scheme, ok1 := r.bytes()
		id, ok2 := r.bytes()
		q.ACLNull = q.ACLNull || !ok1 || !ok2
		q.ACL = append(q.ACL, znode.ACL{Perms: perms, Scheme: string(scheme), ID: string(id)})
	}
}

// inMulti says which operations a multi may hold.
func inMulti(outer, t Type) bool {
	switch t {
	case Create, Create2, CreateContainer, CreateTTL, Delete, SetData, Check:
		return outer == Multi
	case GetData, GetChildren:
		return outer == MultiRead
	default:
		return false
	}
}

// minOpBytes is the least that one operation of a multi takes: its header, a path
// and one more byte.
const minOpBytes = 9 + 4 + 1

func (q *Request) decodeOps(r *reader) {
	for {
		t, done := Type(r.int()), r.bool()
		r.int() // an error number that is always -1
		switch {
		case r.err != nil, done:
			return
		case !inMulti(q.Type, t):
			r.fail()
			return
		}
		if q.Ops == nil {
			q.Ops = make([]Op, 0, min(16, 1+len(r.b)/minOpBytes))
		}
		q.Ops = append(q.Ops, Op{Type: t})
		q.Ops[len(q.Ops)-1].decode(r)
		if r.err != nil {
			return
		}
	}
}
