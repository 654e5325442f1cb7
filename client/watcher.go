package client

import (
	"context"

	"github.com/coordd/coord/api/coordpb"
)

// Bounds of what is kept for one watch whose loop is slow. Past them the watch
// is cancelled at the server and resumed when the loop has caught up.
const (
	watchQueueEvents = 1024
	watchQueueBytes  = 1 << 20
)

// watcher is one lasting watch, over all connections of a session. Its fields
// are guarded by the session's lock, except for those that do not change.
//
// Invariant: every event of a transaction up to pos was queued for the loop;
// of transaction (zxid) those up to index were.
type watcher struct {
	s    *Session
	path string // the cluster's
	opts watchOptions
	wake chan struct{} // cap 1: there are events, or err

	id    uint64 // of the present registration, 0 = none
	live  bool   // it was answered
	begun bool   // some registration was answered
	told  bool   // the initial state was queued for the loop
	after Zxid   // marks up to this one are older than replayed events
	full  bool   // registration given up until the queue is empty
	pos   Zxid
	zxid  Zxid
	index uint32
	queue []*coordpb.Event
	bytes int
	err   error
}

// begin registers the watch for as long as the session lives.
func (w *watcher) begin() error {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usableLocked(); err != nil {
		return err
	}
	s.all[w] = struct{}{}
	w.register()
	return nil
}

// register asks for the events behind pos, on the present connection, under a
// new id: events of an earlier registration that are still on their way are
// then recognised. mu is held.
func (w *watcher) register() {
	s := w.s
	if s.conn == nil || w.full {
		return
	}
	since, initial := w.pos, w.opts.initial && !w.begun
	if w.opts.initial && w.opts.since == 0 && !w.told {
		// The connection may have broken between the answer and the state that it
		// has announced: then the watch begins anew.
		since, initial, w.begun = 0, true, false
	}
	s.lastID++
	w.id, w.live = s.lastID, false
	s.watches[w.id] = w
	c := &call{kind: callWatch, watch: w, fn: func(*call) {}}
	c.req.Id = w.id
	c.req.Watch = &coordpb.Watch{
		Path: w.path, Kind: w.opts.kind, WithData: w.opts.withData, Since: uint64(since),
		Initial: initial, Mode: w.opts.mode.toProto(),
		MinZxid: max(s.core.seen.Load(), uint64(w.pos)), AfterSeq: s.line.last(),
	}
	c.measure()
	s.calls[w.id] = c
	s.outbox = append(s.outbox, c)
	s.kickLocked()
}

// detach takes note that the registration is gone with its connection. mu is
// held.
func (w *watcher) detach(cn *conn) {
	w.advance(cn)
	w.forget()
}

// advance moves the position to the newest mark of the connection. A mark that
// is not newer than the answer to the registration may stand before events that
// the registration made the server send again, so it proves nothing. mu is held.
func (w *watcher) advance(cn *conn) {
	if w.live && cn.mark > w.after {
		w.pos = max(w.pos, cn.mark)
	}
}

// forget ends the registration on this side. mu is held.
func (w *watcher) forget() {
	delete(w.s.watches, w.id)
	delete(w.s.calls, w.id)
	w.id, w.live = 0, false
}

// cancel ends the registration on both sides. mu is held.
func (w *watcher) cancel() {
	s := w.s
	if w.id == 0 || s.conn == nil {
		return
	}
	if reg := s.calls[w.id]; reg != nil {
		reg.dropped = true // not sent yet, or sent: then unwatch comes behind it
	}
	c := &call{kind: callUnwatch, fn: func(*call) {}}
	c.req.Id, c.req.Unwatch = w.id, true
	c.measure()
	s.outbox = append(s.outbox, c)
	s.kickLocked()
	w.forget()
}

// registered takes in the answer to a registration: events after its zxid are
// sent. mu is held.
func (s *Session) registered(cn *conn, r *coordpb.Reply, mark Zxid) {
	w := s.watches[r.Id]
	if w == nil || passing(r.GetError().GetCode()) {
		return // no registration, or one that is asked for again
	}
	if failed(r.Error) {
		if !gone(r.Error.Code) && r.Error.Code != coordpb.Code_CODE_SESSION_MOVED {
			w.forget()
			w.fail(fromProto("watch", "", cn.server, r.Error))
		}
		return
	}
	w.live, w.after = true, mark
	if !w.begun && w.opts.since == 0 {
		w.pos = max(w.pos, Zxid(r.Zxid))
	}
	w.begun = true
}

// event takes in one event. mu is held.
func (s *Session) event(cn *conn, e *coordpb.Event) {
	w := s.watches[e.WatchId]
	if w == nil {
		return
	}
	switch e.Type {
	case coordpb.EventType_EVENT_PRESENT, coordpb.EventType_EVENT_ABSENT:
		w.told = true
		w.push(e)
		return
	case coordpb.EventType_EVENT_RESYNC:
		w.push(e)
		w.pos = max(Zxid(e.Zxid), w.pos)
		w.zxid, w.index = 0, 0
		return
	default:
	}
	z := Zxid(e.Zxid)
	if z > w.zxid || z == w.zxid && e.Index > w.index {
		if len(w.queue) >= watchQueueEvents || w.bytes >= watchQueueBytes {
			w.overflow(cn)
			return
		}
		w.zxid, w.index = z, e.Index
		w.push(e)
	}
	if e.Last {
		w.pos = max(w.pos, z)
	}
}

// overflow gives up the registration until the loop has caught up; the event at
// hand and all later ones are fetched again then. mu is held.
func (w *watcher) overflow(cn *conn) {
	w.advance(cn)
	w.cancel()
	w.full = true
}

func (w *watcher) push(e *coordpb.Event) {
	w.queue = append(w.queue, e)
	w.bytes += eventBytes + len(e.Path) + len(e.Data)
	signal(w.wake)
}

// eventBytes is about what an event costs beside its path and data.
const eventBytes = 256

// fail ends the watch with an error, behind the events that are queued. mu is
// held.
func (w *watcher) fail(err error) {
	if w.err == nil {
		w.err = err
	}
	delete(w.s.all, w)
	signal(w.wake)
}

// take waits for events. An error is final; it may come together with the last
// events.
func (w *watcher) take(ctx context.Context) ([]*coordpb.Event, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if events, err := w.grab(); len(events) > 0 || err != nil {
			return events, err
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
		}
	}
}

// grab empties the queue. If the watch was given up because it was full, it
// goes on now.
func (w *watcher) grab() ([]*coordpb.Event, error) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	events := w.queue
	w.queue, w.bytes = nil, 0
	if w.full && w.err == nil {
		w.full = false
		w.register()
	}
	return events, w.err
}

// stop ends the watch.
func (w *watcher) stop() {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end == nil {
		w.cancel()
		w.forget()
	}
	delete(s.all, w)
}
