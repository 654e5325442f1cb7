package wire

import (
	"encoding/binary"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// ReplyHeader is what stands before the record of a reply. A record follows only
// if Err is OK.
type ReplyHeader struct {
	Xid  int32
	Zxid zxid.ID // 0 in answers to auth; the bits of -1 in events
	Err  Code
}

// ReplyHeaderBytes is the length of a ReplyHeader.
const ReplyHeaderBytes = 16

// Append encodes the header.
func (h ReplyHeader) Append(dst []byte) []byte {
	return appendInt(appendLong(appendInt(dst, h.Xid), int64(h.Zxid)), int32(h.Err))
}

// DecodeReplyHeader splits a frame into header and record.
func DecodeReplyHeader(frame []byte) (ReplyHeader, []byte, error) {
	r := reader{b: frame}
	h := ReplyHeader{Xid: r.int(), Zxid: zxid.ID(r.long()), Err: Code(r.int())}
	return h, r.b, r.err
}

// BeginFrame leaves room for a frame's length at the end of dst. What is appended
// then is the frame, until EndFrame.
func BeginFrame(dst []byte) []byte { return append(dst, 0, 0, 0, 0) }

// EndFrame writes the length of the frame whose BeginFrame was called when dst was
// start bytes long.
func EndFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// Event is a fired watch.
type Event struct {
	Type EventType
	Path string
}

// connected is the state of the session in every event that a server sends.
const connected = 3

// noZxid stands where an event, or the answer to an unknown operation, has no zxid.
const noZxid = ^zxid.ID(0)

// AppendEvent encodes a whole event, header included.
func AppendEvent(dst []byte, e Event) []byte {
	dst = ReplyHeader{Xid: XidEvent, Zxid: noZxid}.Append(dst)
	return appendString(appendInt(appendInt(dst, int32(e.Type)), connected), e.Path)
}

// AppendUnknown encodes the answer to an operation that does not exist. The server
// closes the connection behind it.
func AppendUnknown(dst []byte, xid int32) []byte {
	return ReplyHeader{Xid: xid, Zxid: noZxid, Err: Unimplemented}.Append(dst)
}

// StatBytes is the length of a Stat.
const StatBytes = 68

// AppendStat encodes a Stat. Versions are cut to their low 32 bits, as a counter of
// ZooKeeper's would have wrapped.
func AppendStat(dst []byte, s *znode.Stat) []byte {
	dst = appendLong(appendLong(dst, int64(s.Czxid)), int64(s.Mzxid))
	dst = appendLong(appendLong(dst, s.Ctime), s.Mtime)
	dst = appendInt(appendInt(appendInt(dst, int32(s.Version)), int32(s.Cversion)), int32(s.Aversion))
	dst = appendLong(dst, int64(s.EphemeralOwner))
	dst = appendInt(appendInt(dst, s.DataLength), s.NumChildren)
	return appendLong(dst, int64(s.Pzxid))
}

func (r *reader) stat() (s znode.Stat) {
	s.Czxid, s.Mzxid = zxid.ID(r.long()), zxid.ID(r.long())
	s.Ctime, s.Mtime = r.long(), r.long()
	s.Version, s.Cversion, s.Aversion = int64(r.int()), int64(r.int()), int64(r.int())
	s.EphemeralOwner = session.ID(r.long())
	s.DataLength, s.NumChildren = r.int(), r.int()
	s.Pzxid = zxid.ID(r.long())
	if s.EphemeralOwner != 0 {
		s.Kind = znode.Ephemeral
	}
	return s
}

// Reply is the record of any reply. Which fields have a meaning depends on the
// operation.
type Reply struct {
	Path    string // create, create2, createContainer, createTTL, sync
	Stat    znode.Stat
	Data    []byte // getData, reconfig, sasl; nil is null
	ACL     []znode.ACL
	Names   []string // children, ephemerals
	Number  int32    // getAllChildrenNumber; addWatch, always 0
	Clients []ClientInfo
	Results []Result // multi, multiRead
}

// ClientInfo is one identity of a connection.
type ClientInfo struct{ Scheme, User string }

// Result is the outcome of one operation of a multi.
type Result struct {
	// Type is that of the operation, whose answer is in Reply. Zero: it has
	// none. In a multi that failed that is so for each operation, also for those
	// before the one that failed, whose Err is OK.
	Type  Type
	Err   Code
	Reply Reply
}

// Append encodes the record of a reply to an operation of type t.
func (p *Reply) Append(dst []byte, t Type) []byte {
	switch t {
	case Create, Sync:
		return appendString(dst, p.Path)
	case Create2, CreateContainer, CreateTTL:
		return AppendStat(appendString(dst, p.Path), &p.Stat)
	case Exists, SetData, SetACL:
		return AppendStat(dst, &p.Stat)
	case GetData, Reconfig:
		return AppendStat(appendBuffer(dst, p.Data), &p.Stat)
	case GetACL:
		return AppendStat(AppendACL(dst, p.ACL), &p.Stat)
	case GetChildren, GetEphemerals:
		return appendStrings(dst, p.Names)
	case GetChildren2:
		return AppendStat(appendStrings(dst, p.Names), &p.Stat)
	case GetAllChildrenNumber, AddWatch:
		return appendInt(dst, p.Number)
	case SASL:
		return appendBuffer(dst, p.Data)
	case WhoAmI:
		dst = appendInt(dst, int32(len(p.Clients)))
		for _, c := range p.Clients {
			dst = appendString(appendString(dst, c.Scheme), c.User)
		}
		return dst
	case Multi, MultiRead:
		return p.appendResults(dst)
	default: // delete, check, ping, auth, the watches, closeSession: no record
		return dst
	}
}

func (p *Reply) appendResults(dst []byte) []byte {
	for i := range p.Results {
		res := &p.Results[i]
		if res.Type == 0 {
			dst = appendInt(appendMultiHeader(dst, errorResult, false, int32(res.Err)), int32(res.Err))
			continue
		}
		t := multiResultType(res.Type)
		dst = res.Reply.Append(appendMultiHeader(dst, t, false, 0), t)
	}
	return appendMultiHeader(dst, -1, true, -1)
}

// multiResultType is the type under which a result stands in the reply to a multi:
// the creates that answer with a Stat all do so as create2.
func multiResultType(t Type) Type {
	switch t {
	case CreateContainer, CreateTTL:
		return Create2
	default:
		return t
	}
}

// Decode reads the record of a reply to an operation of type t.
func (p *Reply) Decode(t Type, record []byte) error {
	r := reader{b: record}
	*p = Reply{}
	p.decode(&r, t)
	return r.err
}

func (p *Reply) decode(r *reader, t Type) {
	switch t {
	case Create, Sync:
		p.Path = r.string()
	case Create2, CreateContainer, CreateTTL:
		p.Path, p.Stat = r.string(), r.stat()
	case Exists, SetData, SetACL:
		p.Stat = r.stat()
	case GetData, Reconfig:
		p.Data, p.Stat = r.buffer(), r.stat()
	case GetACL:
		var q Op
		q.decodeACL(r)
		p.ACL, p.Stat = q.ACL, r.stat()
	case GetChildren, GetEphemerals:
		p.Names = r.strings()
	case GetChildren2:
		p.Names, p.Stat = r.strings(), r.stat()
	case GetAllChildrenNumber, AddWatch:
		p.Number = r.int()
	case SASL:
		p.Data = r.buffer()
	case WhoAmI:
		p.decodeClients(r)
	case Multi, MultiRead:
		p.decodeResults(r)
	default:
	}
}

func (p *Reply) decodeClients(r *reader) {
	n, ok := r.count(8)
	if !ok {
		return
	}
	p.Clients = make([]ClientInfo, 0, n)
	for range n {
		p.Clients = append(p.Clients, ClientInfo{r.string(), r.string()})
	}
}

func (p *Reply) decodeResults(r *reader) {
	for {
		t, done := Type(r.int()), r.bool()
		r.int() // the error, which an error result repeats
		if r.err != nil || done {
			return
		}
		res := Result{Type: t}
		switch t {
		case errorResult:
			res.Type, res.Err = 0, Code(r.int())
		case Create, Create2, Delete, SetData, Check, GetData, GetChildren:
			res.Reply.decode(r, t)
		default:
			r.fail()
		}
		if r.err != nil {
			return
		}
		p.Results = append(p.Results, res)
	}
}

// DecodeEvent reads the record of an event.
func DecodeEvent(record []byte) (Event, error) {
	r := reader{b: record}
	e := Event{Type: EventType(r.int())}
	r.int() // the state
	e.Path = r.string()
	return e, r.err
}
