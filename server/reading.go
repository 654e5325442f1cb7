package server

import (
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// readPatience is how long a read waits for a leader, or for this server to
// catch up, before the client is told to look elsewhere.
const readPatience = 10 * time.Second

// reading is one read, or one registration of a watch, on its way:
//
//	round (linearizable only) → wait for zxid and write → wait for room → View
//
// It belongs to whoever holds it; the parts hand it on.
type reading struct {
	c      *conn // nil for a call without a session
	id     uint64
	op     opName
	start  int64 // stopwatch
	caller *znode.Caller

	read  *coordpb.Read // one of both
	watch *coordpb.Watch

	after uint64  // this write of the session must be applied here
	need  zxid.ID // this server must have applied it

	// answer takes the reply under the machine's read lock; size is what it
	// keeps alive.
	answer func(it item, size int)
	gone   func() bool // nobody waits for the answer any more
}

// newReading is a read of a stream.
func newReading(c *conn, r *coordpb.Request, start int64) *reading {
	q := &reading{
		c: c, id: r.GetId(), start: start, caller: &c.caller,
		read: r.GetRead(), watch: r.GetWatch(),
		answer: c.out.reply, gone: c.isStopped,
	}
	if q.watch != nil {
		q.op = opWatch
		q.after = q.watch.GetAfterSeq()
		q.need = max(c.floor, zxid.ID(q.watch.GetMinZxid()), zxid.ID(q.watch.GetSince()))
		return q
	}
	q.op = opNameOfRead(q.read.GetKind())
	q.after = q.read.GetAfterSeq()
	q.need = max(c.floor, zxid.ID(q.read.GetMinZxid()))
	return q
}

// mode is how fresh the answer must be.
func (q *reading) mode() coordpb.ReadMode {
	switch {
	case q.read != nil && q.read.GetKind() == coordpb.Read_KIND_SYNC:
		return coordpb.ReadMode_READ_MODE_LINEARIZABLE
	case q.read != nil:
		return q.read.GetMode()
	case q.watch.GetInitial():
		return q.watch.GetMode()
	}
	return coordpb.ReadMode_READ_MODE_SESSION // a watch from now on asks for no state
}

// check refuses what no state can answer.
func (q *reading) check(l *Limits) error {
	if m := q.mode(); m < 0 || m > coordpb.ReadMode_READ_MODE_STALE {
		return malformed("read mode %d is unknown", m)
	}
	if q.watch != nil {
		return q.checkWatch(l)
	}
	switch {
	case q.op == opNone:
		return malformed("read of kind %d is unknown", q.read.GetKind())
	case q.op == opSync, q.op == opEphemerals && q.read.GetPath() == "":
		return nil
	}
	if q.read.GetLimit() < 0 {
		return malformed("limit %d is negative", q.read.GetLimit())
	}
	if n := len(q.read.GetContaining()); n > l.PathBytes {
		return &limitError{kind: fsm.ErrTooLarge, what: "bytes of a text to look for", have: int64(n), most: int64(l.PathBytes), setting: settingPath}
	}
	if q.read.GetWatchId() != 0 && !q.maySetWatch() {
		return malformed("a %s cannot set a watch", q.op)
	}
	return checkPath(q.read.GetPath(), false, l)
}

func (q *reading) maySetWatch() bool {
	_, ok := q.oneShotKind()
	return ok && q.c != nil
}

func (q *reading) checkWatch(l *Limits) error {
	if _, ok := watchKinds[q.watch.GetKind()]; !ok {
		return malformed("watch of kind %d is unknown", q.watch.GetKind())
	}
	if q.id == 0 {
		return malformed("a watch needs an id")
	}
	return checkPath(q.watch.GetPath(), false, l)
}

// expired says whether the read has waited for too long.
func (q *reading) expired(s stopwatch) bool { return s.since(q.start) > readPatience }

// fail answers without a look at the state. z is a zxid whose events are
// queued.
func (q *reading) fail(z zxid.ID, e *coordpb.Error) {
	if q.watch != nil {
		q.c.s.hub.forgetPending(q.c, q.id)
	}
	q.answer(item{id: q.id, op: q.op, start: q.start, path: q.path(), zxid: z, err: e}, 0)
}

func (q *reading) path() string { return q.read.GetPath() + q.watch.GetPath() } // one of both is nil

// postpone sets the read aside while its stream has too much to send.
func (q *reading) postpone() bool { return q.c != nil && q.c.postpone(q) }

// reply is an item for the answer at z.
func (q *reading) reply(v *fsm.View) item {
	return item{id: q.id, op: q.op, start: q.start, path: q.path(), zxid: v.Zxid}
}

func opNameOfRead(k coordpb.Read_Kind) opName {
	switch k {
	case coordpb.Read_KIND_GET:
		return opGet
	case coordpb.Read_KIND_EXISTS:
		return opExists
	case coordpb.Read_KIND_CHILDREN:
		return opChildren
	case coordpb.Read_KIND_ACL:
		return opGetACL
	case coordpb.Read_KIND_WALK:
		return opWalk
	case coordpb.Read_KIND_SYNC:
		return opSync
	case coordpb.Read_KIND_EPHEMERALS:
		return opEphemerals
	case coordpb.Read_KIND_COUNT:
		return opCount
	case coordpb.Read_KIND_PREDECESSOR:
		return opPredecessor
	case coordpb.Read_KIND_UNSPECIFIED:
	}
	return opNone
}
