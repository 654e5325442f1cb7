package server

import (
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
)

// slab hands out messages that are used again for the next frame: at half a
// million replies a second they would otherwise be most of the garbage. A
// message comes back with its old content; whoever asks sets every field.
type slab[T any] struct {
	all  []*T
	used int
}

func (s *slab[T]) next() *T {
	if s.used == len(s.all) {
		s.all = append(s.all, new(T))
	}
	s.used++
	return s.all[s.used-1]
}

// maxSlab bounds what one sender keeps between frames.
const maxSlab = 1024

func (s *slab[T]) reset() {
	s.used = 0
	if len(s.all) > maxSlab {
		s.all = nil
	}
}

// encoder turns items into messages. It belongs to one goroutine. What it
// returned is valid until reset.
type encoder struct {
	replies slab[coordpb.Reply]
	events  slab[coordpb.Event]
	stats   slab[coordpb.Stat]
	results slab[coordpb.OpResult]
	reads   slab[coordpb.ReadResult]
}

func (e *encoder) reset() {
	e.replies.reset()
	e.events.reset()
	e.stats.reset()
	e.results.reset()
	e.reads.reset()
}

// reply encodes a reply; internal errors are reported to f.
func (e *encoder) reply(it *item, f *faults) *coordpb.Reply {
	r := e.replies.next()
	r.Seq, r.Id, r.Zxid = 0, it.id, uint64(it.zxid)
	r.Error, r.Results, r.Read = it.err, r.Results[:0], nil
	switch {
	case it.result != nil:
		r.Seq, r.Id = it.id, 0
		if it.err == nil {
			r.Error = f.wire(it.result.Err, it.id, it.op)
		}
		r.Results = e.opResults(r.Results, it.result)
	case it.read != nil:
		r.Read = e.readResult(it.read)
	}
	return r
}

func (e *encoder) opResults(dst []*coordpb.OpResult, r *fsm.Result) []*coordpb.OpResult {
	for i := range r.Ops {
		op := &r.Ops[i]
		o := e.results.next()
		o.Kind, o.Path, o.Stat, o.Error = opKindOut(op.Kind), op.Path, nil, nil
		if op.Err == nil {
			o.Stat = e.stat(&op.Stat)
		} else if len(r.Ops) > 1 {
			o.Error = wireError(op.Err)
		}
		dst = append(dst, o)
	}
	return dst
}

func (e *encoder) stat(s *znode.Stat) *coordpb.Stat {
	p := e.stats.next()
	p.Czxid, p.Mzxid, p.Pzxid = uint64(s.Czxid), uint64(s.Mzxid), uint64(s.Pzxid)
	p.CtimeMs, p.MtimeMs = s.Ctime, s.Mtime
	p.Version, p.Cversion, p.Aversion = s.Version, s.Cversion, s.Aversion
	p.EphemeralOwner = uint64(s.EphemeralOwner)
	p.DataLength, p.NumChildren = s.DataLength, s.NumChildren
	p.Kind, p.TtlMs, p.LingerMs = nodeKindOut(s.Kind), s.TTL.Milliseconds(), s.Linger.Milliseconds()
	return p
}

func (e *encoder) readResult(r *readResult) *coordpb.ReadResult {
	p := e.reads.next()
	p.Data, p.Stat, p.Names, p.More = r.data, nil, r.names, r.more
	p.Acl, p.Nodes, p.Count = nil, nil, r.count
	p.Stale, p.AgeMs = r.stale, r.age.Milliseconds()
	if r.hasStat {
		p.Stat = e.stat(&r.stat)
	}
	for i := range r.acl {
		p.Acl = append(p.Acl, &coordpb.ACL{Perms: r.acl[i].Perms, Scheme: r.acl[i].Scheme, Id: r.acl[i].ID})
	}
	for i := range r.nodes {
		n := &r.nodes[i]
		p.Nodes = append(p.Nodes, &coordpb.Node{Path: n.path, Data: n.data, Stat: e.stat(&n.stat), Denied: n.denied})
	}
	return p
}

// event encodes an event. readable says whether the client may see the data it
// asked for.
func (e *encoder) event(it *item, readable bool) *coordpb.Event {
	p, ev := e.events.next(), it.event
	p.WatchId, p.Type, p.Path, p.Zxid = it.id, ev.kind, ev.path, uint64(it.zxid)
	p.Index, p.Last, p.OneShot = ev.index, ev.last, ev.oneShot
	p.Stat, p.Data, p.DataDropped, p.Cause, p.Session = nil, nil, false, coordpb.Cause_CAUSE_REQUEST, 0
	if ev.stat != nil {
		p.Stat, p.Data = e.stat(ev.stat), ev.data
	}
	if c := ev.change; c != nil {
		p.Cause, p.Session = causeOut(c.Cause), uint64(c.Session)
		if c.Path == ev.path {
			p.Stat = e.stat(&c.Stat)
			e.eventData(p, ev, readable)
		}
	}
	return p
}

func (e *encoder) eventData(p *coordpb.Event, ev *event, readable bool) {
	if !ev.withData || ev.change.Type == znode.Deleted {
		return
	}
	if ev.dropped || !readable {
		p.DataDropped = true
		return
	}
	p.Data = ev.change.Data
}

func opKindOut(k znode.OpKind) coordpb.Op_Kind {
	for out, in := range opKinds {
		if in == k {
			return coordpb.Op_Kind(out)
		}
	}
	return coordpb.Op_KIND_UNSPECIFIED
}

func nodeKindOut(k znode.Kind) coordpb.NodeKind {
	for out, in := range nodeKinds {
		if in == k {
			return coordpb.NodeKind(out)
		}
	}
	return coordpb.NodeKind_NODE_KIND_PERSISTENT
}

func causeOut(c znode.Cause) coordpb.Cause {
	switch c {
	case znode.BySessionClose:
		return coordpb.Cause_CAUSE_SESSION_CLOSED
	case znode.BySessionExpiry:
		return coordpb.Cause_CAUSE_SESSION_EXPIRED
	case znode.ByReaper:
		return coordpb.Cause_CAUSE_REAPED
	case znode.ByAdmin:
		return coordpb.Cause_CAUSE_ADMIN
	case znode.ByRequest:
	}
	return coordpb.Cause_CAUSE_REQUEST
}

func eventTypeOut(t watch.EventType) coordpb.EventType {
	switch t {
	case watch.Created:
		return coordpb.EventType_EVENT_CREATED
	case watch.Deleted:
		return coordpb.EventType_EVENT_DELETED
	case watch.Changed:
		return coordpb.EventType_EVENT_CHANGED
	case watch.ChildrenChanged:
		return coordpb.EventType_EVENT_CHILDREN
	case watch.ACLChanged:
		return coordpb.EventType_EVENT_ACL_CHANGED
	}
	return coordpb.EventType_EVENT_UNSPECIFIED
}

// readResult is the answer to a read as it was found under the read lock.
type readResult struct {
	data    []byte
	stat    znode.Stat
	hasStat bool
	names   []string
	more    bool
	acl     []znode.ACL
	nodes   []walked
	count   int64
	stale   bool
	age     time.Duration // of a stale read

	size int // what it keeps alive, in bytes
}

// walked is one node of a walk.
type walked struct {
	path   string
	data   []byte
	stat   znode.Stat
	denied bool // the caller may not read it
}
