package server

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

const (
	// historyChanges and historyBytes bound what resuming watches can look back
	// on: half a minute of a busy cluster, days of a quiet one.
	historyChanges = 100_000
	historyBytes   = 32 << 20
)

// hub hears what the state machine applies and passes it on to the streams of
// this server. It implements fsm.Hook: those methods run under the machine's
// write lock. Everything else may be called from any goroutine.
type hub struct {
	s *Server

	// fired is the last transaction whose events are in all outboxes.
	fired atomic.Uint64
	// events counts what was queued, by type.
	events [coordpb.EventType_EVENT_ACL_CHANGED + 1]atomic.Uint64
	// deduplicated counts request ids that were answered from memory; leaders,
	// opened and closed count what was applied, slow the streams given up.
	deduplicated, leaders, slow atomic.Uint64

	opened [numProtocols]atomic.Uint64
	closed [numProtocols][session.Restored + 1]atomic.Uint64 // by reason

	// ended holds the streams whose session ended in the entry being applied.
	// Only the applying goroutine uses it.
	ended []endedConn

	mu      sync.Mutex // guards below; taken under the machine's lock
	watches *watch.Table
	history *watch.History
	conns   map[stream]struct{}
	shared  sharedEvent

	ownMu    sync.RWMutex // guards owned and ends; nothing is done under it but that
	owned    map[session.ID]*owned
	ends     recentEnds
	attached atomic.Int64 // owned sessions that have a stream; changed under ownMu
}

// owned is a session whose present connection is, or was last, at this server:
// its heartbeats are taken here, also while its stream is being renewed.
type owned struct {
	secret  session.Secret
	gen     uint64
	timeout time.Duration
	beat    atomic.Int64 // stopwatch time of the last heartbeat; 0: none
	conn    stream       // guarded by ownMu; nil if the stream has ended
}

// stream is one connection of a client, of either protocol.
type stream interface {
	// end lets what is queued go out, says why if the protocol can, and closes.
	end(err error)
	subscriber() *watch.Subscriber
	// The hub's lock is held in those that follow; they must not block.

	// notify queues an event for one of the stream's watches.
	notify(h *hub, ev *watch.Event)
	// replaced is called when a snapshot has replaced the state, which is at z.
	replaced(h *hub, z zxid.ID)
	// forgetWatches is called when the table has forgotten them all.
	forgetWatches()
}

type endedConn struct {
	conn   stream
	reason session.EndReason
}

// sharedEvent is the event made last. Ten thousand watches of one node are told
// of a change with one event, not ten thousand.
type sharedEvent struct {
	event    *event
	typ      watch.EventType
	zxid     zxid.ID
	withData bool
}

func newHub(s *Server) *hub {
	return &hub{
		s:       s,
		watches: watch.NewTable(),
		history: watch.NewHistory(historyChanges, historyBytes),
		conns:   make(map[stream]struct{}),
		owned:   make(map[session.ID]*owned),
	}
}

func (h *hub) firedZxid() zxid.ID { return zxid.ID(h.fired.Load()) }

// Applied implements fsm.Hook: events are queued before the waiter of the same
// command is told.
func (h *hub) Applied(r *fsm.Result, changes []znode.Change) {
	if r.Deduplicated {
		h.deduplicated.Add(1)
	}
	if r.Kind == fsm.CmdNewEpoch && r.Err == nil {
		h.leaders.Add(1)
	}
	if r.Session != nil && r.Status == fsm.StatusDone {
		h.bound(r)
	}
	if len(changes) > 0 {
		h.s.queues.applied(changes)
		h.mu.Lock()
		h.watches.Fire(changes, h.emit)
		h.shared.event = nil
		h.history.Append(changes)
		h.mu.Unlock()
	}
	if z := uint64(r.Zxid); z > h.fired.Load() { // a repeat carries an old one
		h.fired.Store(z)
	}
}

// bound looks whether a session that was opened or attached has left a stream
// of this server.
func (h *hub) bound(r *fsm.Result) {
	h.ownMu.Lock()
	o := h.owned[r.Session.ID]
	if o == nil || o.gen >= r.Session.Generation {
		h.ownMu.Unlock()
		return
	}
	h.disownLocked(r.Session.ID)
	h.ownMu.Unlock()
	if o.conn != nil {
		o.conn.end(session.ErrMoved)
	}
}

// SessionOpened implements fsm.Hook.
func (h *hub) SessionOpened(_ session.ID, by session.Protocol) { h.opened[protocolOf(by)].Add(1) }

// SessionEnded implements fsm.Hook. The stream is told at the end of the entry:
// the answer to the close that ended it comes first.
func (h *hub) SessionEnded(id session.ID, by session.Protocol, reason session.EndReason) {
	if closed := &h.closed[protocolOf(by)]; int(reason) < len(closed) {
		closed[reason].Add(1)
	}
	h.ownMu.Lock()
	o := h.disownLocked(id)
	h.ends.add(id, reason)
	h.ownMu.Unlock()
	if o == nil || o.conn == nil {
		return
	}
	if c, ok := o.conn.(*conn); ok {
		c.out.holdLast() // the entry may go on for a while
	}
	h.ended = append(h.ended, endedConn{o.conn, reason})
}

// EntryDone implements fsm.Hook.
func (h *hub) EntryDone(_, _ uint64, last zxid.ID) {
	h.fired.Store(uint64(last))
	h.s.reader.reached(uint64(last))
	h.sayEnded()
}

func (h *hub) sayEnded() {
	for i, e := range h.ended {
		e.conn.end(endError(e.reason))
		h.ended[i] = endedConn{}
	}
	h.ended = h.ended[:0]
}

// Restored implements fsm.Hook: what happened between the old state and the new
// is not known, so every watch is told to read again, and nothing can be
// resumed from before.
func (h *hub) Restored(_ uint64, last zxid.ID) {
	h.s.queues.reset()
	h.mu.Lock()
	h.history.Reset(last)
	for c := range h.conns {
		c.replaced(h, last)
	}
	h.mu.Unlock()
	h.fired.Store(uint64(last))
	h.s.reader.reached(uint64(last))
	h.sayEnded()
	poke(h.s.restored)
}

// replaced tells each watch of c to read again; one-shot ones are spent.
func (c *conn) replaced(h *hub, z zxid.ID) {
	for id, w := range c.watches {
		e := resyncEvent(w)
		if e.oneShot {
			h.watches.Remove(c.sub, id)
			delete(c.watches, id)
		}
		h.queueLocked(c, id, z, e)
	}
}

func resyncEvent(w watchInfo) *event {
	return &event{kind: coordpb.EventType_EVENT_RESYNC, path: w.path, last: true, oneShot: w.kind.OneShot()}
}

// emit takes one event from the watch table. hub.mu is held.
func (h *hub) emit(ev watch.Event) { ev.Sub.Data.(stream).notify(h, &ev) }

func (c *conn) subscriber() *watch.Subscriber { return c.sub }

func (c *conn) forgetWatches() { clear(c.watches) }

// notify queues an event for one watch, unless that was taken back meanwhile.
func (c *conn) notify(h *hub, ev *watch.Event) {
	info, ok := c.watches[ev.Watch]
	if !ok {
		return
	}
	if ev.OneShot {
		delete(c.watches, ev.Watch)
	}
	if c.session != 0 && ev.Change.Session == c.session && ev.Change.Cause != znode.ByRequest {
		c.out.holdLast() // the end of the stream's own session, see SessionEnded
	}
	h.queueLocked(c, ev.Watch, ev.Change.Zxid, h.share(ev, info.withData))
}

// share returns the event for ev, the same one as for the watch before if that
// was told the same.
func (h *hub) share(ev *watch.Event, withData bool) *event {
	s := &h.shared
	if e := s.event; e != nil && s.typ == ev.Type && s.zxid == ev.Change.Zxid && s.withData == withData &&
		e.index == ev.Index && e.last == ev.Last && e.oneShot == ev.OneShot && e.path == ev.Path {
		return e
	}
	*s = sharedEvent{event: newEvent(ev, withData), typ: ev.Type, zxid: ev.Change.Zxid, withData: withData}
	return s.event
}

// newEvent copies what the table or the history lends.
func newEvent(ev *watch.Event, withData bool) *event {
	change := *ev.Change
	return &event{
		kind: eventTypeOut(ev.Type), path: ev.Path, index: ev.Index, last: ev.Last,
		oneShot: ev.OneShot, withData: withData, dropped: ev.DataDropped, change: &change,
	}
}

func (h *hub) queueLocked(c *conn, id uint64, z zxid.ID, e *event) {
	h.events[e.kind].Add(1)
	if !c.out.event(id, z, e) {
		h.slow.Add(1)
		c.stop()
	}
}
