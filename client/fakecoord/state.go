package fakecoord

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/znode"
)

type node struct {
	data     []byte
	stat     coordpb.Stat
	children map[string]bool
	next     int64 // sequence
}

// session is one session with its number line.
type session struct {
	id         uint64
	secret     string
	timeout    time.Duration
	connection uint64
	server     string
	identity   string
	next       uint64
	results    map[uint64]*coordpb.Reply
	heard      time.Time
}

type change struct {
	typ     coordpb.EventType
	path    string
	zxid    uint64
	index   uint32
	stat    *coordpb.Stat
	data    []byte
	cause   coordpb.Cause
	session uint64
}

// tx collects the changes of one transaction.
type tx struct {
	c       *Cluster
	session uint64
	cause   coordpb.Cause
	changes []*change
	undo    []func()
}

func parent(p string) string {
	i := strings.LastIndexByte(p, '/')
	if i == 0 {
		return "/"
	}
	return p[:i]
}

func base(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

func code(c coordpb.Code, path string) *coordpb.Error {
	return &coordpb.Error{Code: c, Path: path}
}

// ended is the error for a session that has ended.
func (c *Cluster) ended(id uint64) *coordpb.Error {
	return &coordpb.Error{Code: coordpb.Code_CODE_SESSION_EXPIRED, SessionEnd: c.ends[id]}
}

// apply does a write at the next zxid and returns its results.
func (c *Cluster) apply(w *coordpb.Write, s *session) *coordpb.Reply {
	c.counts.Writes++
	if c.onWrite != nil {
		c.onWrite(w)
	}
	c.zxid++
	t := &tx{c: c}
	if s != nil {
		t.session = s.id
	}
	r := &coordpb.Reply{Zxid: c.zxid}
	for i, op := range w.Ops {
		res := t.op(op)
		r.Results = append(r.Results, res)
		if res.Error == nil {
			continue
		}
		for j := len(t.undo) - 1; j >= 0; j-- {
			t.undo[j]()
		}
		r.Error = proto.Clone(res.Error).(*coordpb.Error)
		r.Error.OpIndex = int32(i)
		for range w.Ops[i+1:] {
			r.Results = append(r.Results, &coordpb.OpResult{Error: code(coordpb.Code_CODE_ROLLED_BACK, "")})
		}
		return r
	}
	c.publish(t)
	return r
}

func (t *tx) op(op *coordpb.Op) *coordpb.OpResult {
	res := &coordpb.OpResult{Kind: op.Kind, Path: op.Path}
	if op.Kind == coordpb.Op_KIND_CREATE {
		return t.create(op, res)
	}
	n := t.c.nodes[op.Path]
	switch {
	case n == nil:
		res.Error = code(coordpb.Code_CODE_NO_NODE, op.Path)
	case op.Version != -1 && op.Version != n.stat.Version:
		res.Error = &coordpb.Error{Code: coordpb.Code_CODE_BAD_VERSION, Path: op.Path, Have: n.stat.Version, Want: op.Version}
	case op.Czxid != 0 && op.Czxid != n.stat.Czxid, op.Owner != 0 && op.Owner != n.stat.EphemeralOwner:
		res.Error = code(coordpb.Code_CODE_BAD_VERSION, op.Path)
	case op.Kind == coordpb.Op_KIND_DELETE && len(n.children) > 0:
		res.Error = code(coordpb.Code_CODE_NOT_EMPTY, op.Path)
	case op.Kind == coordpb.Op_KIND_DELETE:
		t.remove(op.Path)
	case op.Kind == coordpb.Op_KIND_SET && !maySetTimes(n, op):
		res.Error = code(coordpb.Code_CODE_BAD_ARGUMENTS, op.Path)
	case op.Kind == coordpb.Op_KIND_SET:
		t.set(n, op)
		res.Stat = proto.Clone(&n.stat).(*coordpb.Stat)
	}
	return res
}

func (t *tx) create(op *coordpb.Op, res *coordpb.OpResult) *coordpb.OpResult {
	c := t.c
	path := op.Path
	dad := c.nodes[parent(path)]
	switch {
	case dad == nil:
		res.Error = code(coordpb.Code_CODE_NO_NODE, path)
		return res
	case dad.stat.EphemeralOwner != 0:
		res.Error = code(coordpb.Code_CODE_EPHEMERAL_PARENT, path)
		return res
	case op.Node == coordpb.NodeKind_NODE_KIND_EPHEMERAL && t.session == 0, !mayHaveTimes(op):
		res.Error = code(coordpb.Code_CODE_BAD_ARGUMENTS, path)
		return res
	}
	if op.Sequential {
		path = fmt.Sprintf("%s%010d", path, dad.next)
	}
	if c.nodes[path] != nil {
		res.Error = code(coordpb.Code_CODE_NODE_EXISTS, path)
		return res
	}
	n := &node{data: op.Data, children: map[string]bool{}}
	n.stat.Czxid, n.stat.Mzxid, n.stat.Pzxid = c.zxid, c.zxid, c.zxid
	n.stat.CtimeMs, n.stat.MtimeMs = time.Now().UnixMilli(), time.Now().UnixMilli()
	n.stat.DataLength, n.stat.Kind = int32(len(op.Data)), op.Node
	n.stat.TtlMs, n.stat.LingerMs = op.TtlMs, op.LingerMs
	if op.Node == coordpb.NodeKind_NODE_KIND_EPHEMERAL {
		n.stat.EphemeralOwner = t.session
	}
	c.nodes[path] = n
	dad.children[base(path)] = true
	dad.next++
	dad.stat.Cversion++
	dad.stat.NumChildren++
	t.undo = append(t.undo, func() {
		delete(c.nodes, path)
		delete(dad.children, base(path))
		dad.stat.NumChildren--
	})
	t.add(coordpb.EventType_EVENT_CREATED, path, n)
	res.Path, res.Stat = path, proto.Clone(&n.stat).(*coordpb.Stat)
	return res
}

func (t *tx) set(n *node, op *coordpb.Op) {
	old, stat := n.data, proto.Clone(&n.stat).(*coordpb.Stat)
	n.data = op.Data
	n.touch(t.c.zxid)
	n.stat.DataLength = int32(len(op.Data))
	n.setTimes(op)
	t.undo = append(t.undo, func() {
		n.data = old
		n.stat.Version, n.stat.Mzxid, n.stat.MtimeMs, n.stat.DataLength = stat.Version, stat.Mzxid, stat.MtimeMs, stat.DataLength
		n.stat.TtlMs, n.stat.LingerMs = stat.TtlMs, stat.LingerMs
	})
	t.add(coordpb.EventType_EVENT_CHANGED, op.Path, n)
}

func (t *tx) remove(path string) bool {
	c := t.c
	n := c.nodes[path]
	if n == nil {
		return false
	}
	dad := c.nodes[parent(path)]
	t.add(coordpb.EventType_EVENT_DELETED, path, n)
	delete(c.nodes, path)
	delete(dad.children, base(path))
	dad.stat.Cversion++
	dad.stat.NumChildren--
	t.undo = append(t.undo, func() {
		c.nodes[path] = n
		dad.children[base(path)] = true
		dad.stat.NumChildren++
	})
	return true
}

func (t *tx) add(typ coordpb.EventType, path string, n *node) {
	t.changes = append(t.changes, &change{
		typ: typ, path: path, zxid: t.c.zxid, index: uint32(len(t.changes)),
		stat: proto.Clone(&n.stat).(*coordpb.Stat), data: n.data, cause: t.cause, session: t.session,
	})
}

// publish appends the transaction to the history and tells the watches.
func (c *Cluster) publish(t *tx) {
	c.history = append(c.history, t.changes...)
	for _, ch := range t.changes {
		c.watchTime(ch.path)
	}
	for st := range c.streams {
		st.fire(t.changes)
	}
}

// endSession deletes the session and its nodes in one transaction and tells its
// connection.
func (c *Cluster) endSession(id uint64, cause coordpb.Cause, why coordpb.SessionEnd) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	if s == nil {
		return
	}
	c.endLocked(s, cause, why)
}

// endLocked ends a session. Its stream is told, unless it was closed over it.
func (c *Cluster) endLocked(s *session, cause coordpb.Cause, why coordpb.SessionEnd) {
	delete(c.sessions, s.id)
	c.ends[s.id], c.nexts[s.id] = why, s.next
	defer func() {
		for st := range c.streams {
			if st.session == s && why != coordpb.SessionEnd_SESSION_END_CLOSED {
				st.goodbye(c.ended(s.id))
			}
		}
	}()
	c.zxid++
	t := &tx{c: c, session: s.id, cause: cause}
	for _, p := range c.pathsLocked("/") {
		n := c.nodes[p]
		switch {
		case n.stat.EphemeralOwner != s.id:
		case n.stat.LingerMs != 0 && why != coordpb.SessionEnd_SESSION_END_CLOSED:
			t.outlive(p, n)
		default:
			t.remove(p)
		}
	}
	c.publish(t)
}

func (c *Cluster) pathsLocked(prefix string) []string {
	var out []string
	for p := range c.nodes {
		if strings.HasPrefix(p, prefix) {
			out = append(out, p)
		}
	}
	sort.Strings(out)
	return out
}

// numbered handles a request of a number line: a write, a skip or a close. It
// returns nil for a gap, which a client never causes.
func (c *Cluster) numbered(s *session, r *coordpb.Request) *coordpb.Reply {
	switch {
	case r.Seq > s.next:
		c.t.Errorf("session %x: number %d came before %d", s.id, r.Seq, s.next)
		return &coordpb.Reply{Seq: r.Seq, Error: code(coordpb.Code_CODE_GAP, "")}
	case r.Seq < s.next:
		c.counts.Repeats++
		if old := s.results[r.Seq]; old != nil {
			return old
		}
		c.t.Errorf("session %x: number %d was acknowledged and came again", s.id, r.Seq)
		return &coordpb.Reply{Seq: r.Seq, Error: code(coordpb.Code_CODE_ALREADY_ACKNOWLEDGED, "")}
	}
	s.next++
	var reply *coordpb.Reply
	switch {
	case r.Skip != nil:
		c.counts.Skips++
		reply = &coordpb.Reply{Zxid: c.zxid, Error: code(r.Skip.Code, "")}
	case r.Close:
		c.endLocked(s, coordpb.Cause_CAUSE_SESSION_CLOSED, coordpb.SessionEnd_SESSION_END_CLOSED)
		reply = &coordpb.Reply{Zxid: c.zxid}
	case c.full && !takesAway(r.Write):
		reply = &coordpb.Reply{Zxid: c.zxid, Error: code(coordpb.Code_CODE_DISK_FULL, "no room")}
	default:
		reply = c.apply(r.Write, s)
	}
	reply.Seq = r.Seq
	s.results[r.Seq] = reply
	return reply
}

// takesAway says that a write only deletes.
func takesAway(w *coordpb.Write) bool {
	return !slices.ContainsFunc(w.Ops, func(op *coordpb.Op) bool {
		return op.Kind != coordpb.Op_KIND_DELETE && op.Kind != coordpb.Op_KIND_CHECK
	})
}

func (c *Cluster) acknowledge(s *session, ack uint64) {
	if ack >= s.next {
		c.t.Errorf("session %x: acknowledged %d, but %d comes next", s.id, ack, s.next)
	}
	for n := range s.results {
		if n <= ack {
			delete(s.results, n)
		}
	}
}

// read answers for a session, 0 for none.
func (c *Cluster) read(r *coordpb.Read, session uint64) (*coordpb.ReadResult, *coordpb.Error) {
	c.counts.Reads++
	n := c.nodes[r.Path]
	if r.Kind == coordpb.Read_KIND_SYNC {
		return &coordpb.ReadResult{}, nil
	}
	if r.Kind == coordpb.Read_KIND_EPHEMERALS {
		return c.ephemerals(r, session), nil
	}
	if n == nil {
		return nil, code(coordpb.Code_CODE_NO_NODE, r.Path)
	}
	out := &coordpb.ReadResult{Stat: proto.Clone(&n.stat).(*coordpb.Stat), Stale: r.Mode == coordpb.ReadMode_READ_MODE_STALE}
	switch r.Kind {
	case coordpb.Read_KIND_GET:
		out.Data = n.data
	case coordpb.Read_KIND_CHILDREN:
		c.counts.Lists++
		for name := range n.children {
			if name > r.After {
				out.Names = append(out.Names, name)
			}
		}
		sort.Strings(out.Names)
		if len(out.Names) > c.PageSize {
			out.Names, out.More = out.Names[:c.PageSize], true
		}
	case coordpb.Read_KIND_WALK:
		c.walk(r, out)
	case coordpb.Read_KIND_PREDECESSOR:
		return c.predecessor(r, n)
	default: // the rest is answered by the Stat alone
	}
	return out, nil
}

func (c *Cluster) predecessor(r *coordpb.Read, dir *node) (*coordpb.ReadResult, *coordpb.Error) {
	own, ok := znode.SequenceOf(r.After)
	if !ok {
		return nil, code(coordpb.Code_CODE_BAD_ARGUMENTS, r.Path)
	}
	if !dir.children[r.After] {
		return nil, code(coordpb.Code_CODE_NO_NODE, r.Path)
	}
	var before []string
	ahead := int64(0)
	for name := range dir.children {
		if n, ok := znode.SequenceOf(name); ok && (n < own || n == own && name < r.After) {
			ahead++
			if strings.Contains(name, r.Containing) {
				before = append(before, name)
			}
		}
	}
	sort.Slice(before, func(i, j int) bool {
		a, _ := znode.SequenceOf(before[i])
		b, _ := znode.SequenceOf(before[j])
		return a > b || a == b && before[i] > before[j]
	})
	child := c.nodes[strings.TrimSuffix(r.Path, "/")+"/"+r.After]
	out := &coordpb.ReadResult{Count: ahead, Stat: proto.Clone(&child.stat).(*coordpb.Stat)}
	out.Names = before[:min(1, len(before))]
	return out, nil
}

func (c *Cluster) walk(r *coordpb.Read, out *coordpb.ReadResult) {
	paths := []string{}
	for _, p := range c.pathsLocked(r.Path) {
		if p == r.Path || r.Path == "/" || strings.HasPrefix(p, r.Path+"/") {
			paths = append(paths, p)
		}
	}
	order := func(p string) string { return strings.ReplaceAll(p, "/", "\x00") }
	sort.Slice(paths, func(i, j int) bool { return order(paths[i]) < order(paths[j]) })
	for _, p := range paths {
		if r.After != "" && order(p) <= order(r.After) {
			continue
		}
		if len(out.Nodes) == c.PageSize {
			out.More = true
			return
		}
		n := &coordpb.Node{Path: p, Stat: proto.Clone(&c.nodes[p].stat).(*coordpb.Stat)}
		if r.WithData {
			n.Data = c.nodes[p].data
		}
		out.Nodes = append(out.Nodes, n)
	}
}
