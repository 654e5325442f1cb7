package server

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// answer executes a reading against the state and queues its reply, with the
// state's zxid, all under the machine's read lock: no event of a later
// transaction can come before it, none of an earlier one behind.
func (s *Server) answer(q *reading, v *fsm.View) {
	if q.watch != nil {
		s.hub.register(q, v)
		return
	}
	res, err := s.execute(q, v)
	it := q.reply(v)
	if q.read.GetWatchId() != 0 && watchable(q, err) {
		if werr := s.hub.addOneShot(q); werr != nil {
			res, err = nil, werr
		} else {
			it.registers = true
		}
	}
	if err != nil {
		it.err = s.faults.wire(err, q.id, q.op)
		q.answer(it, 0)
		return
	}
	if q.read.GetMode() == coordpb.ReadMode_READ_MODE_STALE && q.op != opSync {
		res.stale, res.age = true, s.node.StaleAge()
	}
	it.read = res
	q.answer(it, res.size)
}

// watchable says whether a read sets its watch: one that found nothing to watch
// sets none, except exists, whose answer "no" is what is watched.
func watchable(q *reading, err error) bool { return err == nil || q.op == opExists && isNoNode(err) }

// execute finds the answer to a read.
func (s *Server) execute(q *reading, v *fsm.View) (*readResult, error) {
	r, t := q.read, v.Tree
	switch r.GetKind() {
	case coordpb.Read_KIND_GET:
		data, st, err := t.Get(r.GetPath(), q.caller)
		return &readResult{data: data, stat: st, hasStat: true, size: len(data)}, err
	case coordpb.Read_KIND_EXISTS:
		st, ok := t.Exists(r.GetPath())
		if !ok {
			return nil, fmt.Errorf("%s: %w", r.GetPath(), znode.ErrNoNode)
		}
		return &readResult{stat: st, hasStat: true}, nil
	case coordpb.Read_KIND_CHILDREN:
		return s.children(q, v)
	case coordpb.Read_KIND_ACL:
		acl, st, err := t.ACL(r.GetPath(), q.caller)
		return &readResult{acl: acl, stat: st, hasStat: true, size: 64 * len(acl)}, err
	case coordpb.Read_KIND_WALK:
		return s.walk(q, v)
	case coordpb.Read_KIND_EPHEMERALS:
		return s.ephemerals(q, v)
	case coordpb.Read_KIND_COUNT:
		n, err := t.CountDescendants(r.GetPath(), q.caller)
		return &readResult{count: int64(n)}, err
	case coordpb.Read_KIND_PREDECESSOR:
		return s.predecessor(q, v)
	case coordpb.Read_KIND_SYNC, coordpb.Read_KIND_UNSPECIFIED:
	}
	return &readResult{}, nil
}

// page is the number of entries that one reply may have.
func (s *Server) page(asked int32) int {
	if asked <= 0 {
		return s.limits.ChildrenPerReply
	}
	return min(int(asked), s.limits.ChildrenPerReply)
}

// replyBytes is what the lists of one reply may come to, so that it stays below
// what a client takes.
func (s *Server) replyBytes() int { return s.limits.FrameBytes }

func (s *Server) children(q *reading, v *fsm.View) (*readResult, error) {
	r := q.read
	names, more, st, err := v.Tree.ChildrenPage(r.GetPath(), r.GetAfter(), s.page(r.GetLimit()), q.caller)
	if err != nil {
		return nil, err
	}
	names, cut, size := cutNames(names, s.replyBytes())
	return &readResult{names: names, more: more || cut, stat: st, hasStat: true, size: size}, nil
}

// ephemerals lists those of a session, a page at a time.
func (s *Server) ephemerals(q *reading, v *fsm.View) (*readResult, error) {
	r, caller := q.read, q.caller
	of := cmp.Or(session.ID(r.GetSession()), caller.Session)
	switch of {
	case 0:
		return nil, fmt.Errorf("a caller without a session owns no ephemerals: %w", znode.ErrBadArguments)
	case caller.Session:
		caller = &znode.Caller{Trusted: true} // what it owns is no secret to it
	}
	names, more := v.Tree.EphemeralsOf(of, cmp.Or(r.GetPath(), "/"), r.GetAfter(), s.page(r.GetLimit()), caller)
	names, cut, size := cutNames(names, s.replyBytes())
	return &readResult{names: names, more: more || cut, size: size}, nil
}

// predecessor finds the place of a child in the queue of a node's children.
func (s *Server) predecessor(q *reading, v *fsm.View) (*readResult, error) {
	before, ahead, st, err := s.queues.place(v.Tree, &queueRead{
		path: q.read.GetPath(), child: q.read.GetAfter(), containing: q.read.GetContaining(), caller: q.caller,
	})
	if err != nil {
		return nil, err
	}
	res := &readResult{count: int64(ahead), stat: st, hasStat: true}
	if before != "" {
		res.names, res.size = []string{before}, len(before)
	}
	return res, nil
}

// cutNames shortens a list to what fits, but not to nothing.
func cutNames(names []string, most int) (out []string, cut bool, size int) {
	const overhead = 4
	for i, n := range names {
		if size += len(n) + overhead; size > most && i > 0 {
			return names[:i], true, size
		}
	}
	return names, false, size
}

var watchKinds = map[coordpb.Watch_Kind]watch.Kind{
	coordpb.Watch_KIND_NODE:       watch.Node,
	coordpb.Watch_KIND_CHILDREN:   watch.Children,
	coordpb.Watch_KIND_PERSISTENT: watch.Persistent,
	coordpb.Watch_KIND_RECURSIVE:  watch.Recursive,
}

// oneShotKind is the watch a read may set; 0 and false for those that cannot.
func (q *reading) oneShotKind() (watch.Kind, bool) {
	switch q.read.GetKind() {
	case coordpb.Read_KIND_GET:
		return watch.OneShotData, true
	case coordpb.Read_KIND_EXISTS:
		return watch.OneShotExists, true
	case coordpb.Read_KIND_CHILDREN:
		return watch.OneShotChildren, true
	default:
		return 0, false
	}
}

// addOneShot sets the watch of a read. The machine's read lock is held.
func (h *hub) addOneShot(q *reading) error {
	kind, _ := q.oneShotKind()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addLocked(q.c, q.read.GetWatchId(), watchInfo{path: q.read.GetPath(), kind: kind})
}

func (h *hub) addLocked(c *conn, id uint64, w watchInfo) error {
	most := h.s.limits.WatchesPerSession
	if len(c.watches) >= most {
		return &limitError{kind: fsm.ErrLimit, what: "watches of one session", have: int64(len(c.watches)) + 1, most: int64(most), setting: settingWatches}
	}
	if !h.watches.Add(c.sub, id, w.path, w.kind) {
		return fmt.Errorf("watch id %d is in use: %w", id, znode.ErrBadArguments)
	}
	c.watches[id] = w
	return nil
}

// register answers the registration of a lasting watch: the reply, then what
// was missed or the present state, then whatever comes. The machine's read lock
// keeps every apply out meanwhile.
func (h *hub) register(q *reading, v *fsm.View) {
	w := q.watch
	info := watchInfo{path: w.GetPath(), kind: watchKinds[w.GetKind()], withData: w.GetWithData()}
	h.mu.Lock()
	defer h.mu.Unlock()
	it := q.reply(v)
	err := h.mayRegisterLocked(q, v)
	if err == nil {
		err = h.addLocked(q.c, q.id, info)
	}
	if err != nil {
		it.err = h.s.faults.wire(err, q.id, q.op)
		q.answer(it, 0)
		return
	}
	it.registers, it.read = true, &readResult{}
	if planted.On(planted.FireBeforeReply) {
		defer time.AfterFunc(time.Millisecond, func() { q.answer(it, 0) })
	} else {
		q.answer(it, 0)
	}
	known := true
	if since := zxid.ID(w.GetSince()); since != 0 {
		known = h.resumeLocked(q, info, since)
		if !known {
			h.queueLocked(q.c, q.id, v.Zxid, resyncEvent(info))
		}
	}
	if w.GetInitial() && (w.GetSince() == 0 || !known) {
		h.queueLocked(q.c, q.id, v.Zxid, presentState(q, v))
	}
}

// mayRegisterLocked refuses what was taken back meanwhile, and to show data that
// the client may not read. A watch without data shows no more than exists, which
// everybody may ask.
func (h *hub) mayRegisterLocked(q *reading, v *fsm.View) error {
	takenBack := q.c.pending[q.id]
	delete(q.c.pending, q.id)
	if takenBack {
		return fsm.ErrCancelled
	}
	if !q.watch.GetInitial() || !q.watch.GetWithData() {
		return nil
	}
	_, _, err := v.Tree.Get(q.watch.GetPath(), q.caller)
	if isNoNode(err) {
		return nil
	}
	return err
}

// resumeLocked queues what the watch has missed since a transaction. It reports
// false if that is not known any more, or is more than the stream's queue takes
// in one go: the client reads again then.
func (h *hub) resumeLocked(q *reading, info watchInfo, since zxid.ID) bool {
	var missed []*event
	var at []zxid.ID
	room := q.c.out.room()
	known := h.history.Since(since, info.kind, info.path, func(ev watch.Event) {
		if room < 0 {
			return
		}
		e := newEvent(&ev, info.withData)
		room -= e.size()
		missed, at = append(missed, e), append(at, ev.Change.Zxid)
	})
	if !known || room < 0 {
		return false
	}
	for i, e := range missed {
		h.queueLocked(q.c, q.id, at[i], e)
	}
	return true
}

// presentState is the event a watch with an initial state begins with.
func presentState(q *reading, v *fsm.View) *event {
	path := q.watch.GetPath()
	st, ok := v.Tree.Exists(path)
	if !ok {
		return &event{kind: coordpb.EventType_EVENT_ABSENT, path: path, last: true}
	}
	e := &event{kind: coordpb.EventType_EVENT_PRESENT, path: path, last: true, stat: &st}
	if q.watch.GetWithData() {
		e.withData = true
		e.data, _, _ = v.Tree.Get(path, q.caller) // mayRegisterLocked has asked for permission
	}
	return e
}

// remove takes a watch away; its reply says that no event follows.
func (h *hub) remove(c *conn, id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, waits := c.pending[id]; waits {
		c.pending[id] = true
	}
	delete(c.watches, id)
	return h.watches.Remove(c.sub, id)
}

// expect notes that a watch is about to be registered.
func (h *hub) expect(c *conn, id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.pending[id] = false
}

// forgetPending notes that a watch will not be registered.
func (h *hub) forgetPending(c *conn, id uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(c.pending, id)
}

// readable says whether a client may see the data of a change: by the ACL that the
// node had then, and also by the one that it has now, if it is still there.
func readable(v *fsm.View, c *znode.Caller, change *znode.Change) bool {
	if c.Trusted || isSuper(c) {
		return true
	}
	if !change.Readable(c) {
		return false
	}
	_, _, err := v.Tree.Get(change.Path, c)
	return err == nil || errors.Is(err, znode.ErrNoNode)
}

func isSuper(c *znode.Caller) bool {
	for _, id := range c.Identities {
		if id == superIdentity {
			return true
		}
	}
	return false
}
