package server

import (
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/watch"
	"github.com/coordd/coord/zxid"
)

// errForeign is returned to a heartbeat for a session whose connection is not
// at this server. It matches session.ErrMoved, whatever the reason: a client
// that attaches again learns the truth from the log.
var errForeign = fmt.Errorf("this server does not hold the session's connection: %w", session.ErrMoved)

// join makes a stream known.
func (h *hub) join(c stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns[c] = struct{}{}
}

// leaveStep is how many watches are forgotten under one hold of the hub's lock: a
// client with a hundred thousand that leaves must not stop the server for long.
const leaveStep = 1000

// leave forgets a stream, its watches, and that it is the one of session id.
func (h *hub) leave(c stream, id session.ID) {
	for more := true; more; {
		h.mu.Lock()
		c.forgetWatches() // none of those that are left for the next round is told
		more = h.watches.RemoveSome(c.subscriber(), leaveStep)
		if !more {
			delete(h.conns, c)
		}
		h.mu.Unlock()
	}

	h.ownMu.Lock()
	defer h.ownMu.Unlock()
	if o := h.owned[id]; o != nil && o.conn == c {
		o.conn = nil
		h.attached.Add(-1)
	}
}

// disownLocked forgets a session and returns what was known of it.
func (h *hub) disownLocked(id session.ID) *owned {
	o := h.owned[id]
	delete(h.owned, id)
	if o != nil && o.conn != nil {
		h.attached.Add(-1)
	}
	return o
}

// own makes c the stream of its session. An older stream of it is ended. It
// must be called under the machine's lock, so that no attach that follows is
// missed.
func (h *hub) own(c stream, info *fsm.SessionInfo) {
	h.ownMu.Lock()
	old := h.disownLocked(info.ID)
	h.attached.Add(1)
	h.owned[info.ID] = &owned{secret: info.Secret, gen: info.Generation, timeout: info.Timeout, conn: c}
	h.ownMu.Unlock()
	if old != nil && old.conn != nil && old.conn != c {
		old.conn.end(session.ErrMoved)
	}
}

// beat says whether this server may take a heartbeat of a session: its secret
// and connection number must be right. It takes no lock of the machine. now is
// the time on the server's stopwatch.
func (h *hub) beat(id session.ID, secret []byte, gen uint64, now int64, silence *silenceRatio) error {
	h.ownMu.RLock()
	o := h.owned[id]
	h.ownMu.RUnlock()
	switch {
	case o == nil:
		return errForeign
	case !sameSecret(secret, o.secret):
		return session.ErrWrongSecret
	case max(gen, 1) != o.gen: // a client may leave out that its connection is the first
		return session.ErrMoved
	}
	if last := o.beat.Swap(now); last != 0 {
		silence.observe(time.Duration(now-last), o.timeout)
	}
	return nil
}

// streams lists the present streams.
func (h *hub) streams() []stream { return h.appendStreams(nil) }

// appendStreams appends the present streams to dst.
func (h *hub) appendStreams(dst []stream) []stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	dst = slices.Grow(dst, len(h.conns))
	for c := range h.conns {
		dst = append(dst, c)
	}
	return dst
}

// responsive says that nobody sits on the hub's lock right now.
func (h *hub) responsive() bool {
	if !h.mu.TryLock() {
		return false
	}
	h.mu.Unlock()
	return true
}

// watchCount is the number of watches here, and of those of one session; -1 if
// the session has no stream here.
func (h *hub) watchCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.watches.Len()
}

func (h *hub) watchesOf(id session.ID) int64 {
	h.ownMu.RLock()
	o := h.owned[id]
	h.ownMu.RUnlock()
	if o == nil || o.conn == nil {
		return -1
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(h.watches.CountOf(o.conn.subscriber()))
}

// silentFor is the time since the last heartbeat here of a session.
func (h *hub) silentFor(id session.ID, now int64) (time.Duration, bool) {
	h.ownMu.RLock()
	defer h.ownMu.RUnlock()
	o := h.owned[id]
	if o == nil || o.beat.Load() == 0 {
		return 0, false
	}
	return time.Duration(now - o.beat.Load()), true
}

// watchCounts is the number of watches by kind.
func (h *hub) watchCounts() (out [watch.NumKinds]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range out {
		out[k] = h.watches.Count(watch.Kind(k))
	}
	return out
}

// eventTotal is the number of events queued so far.
func (h *hub) eventTotal() (n uint64) {
	for t := range h.events {
		n += h.events[t].Load()
	}
	return n
}

// reconcile drops what the table no longer says after a restored snapshot:
// sessions that ended or moved in the part that was never applied here.
func (h *hub) reconcile(v *fsm.View) {
	gone := make(map[session.ID]stream)
	h.ownMu.Lock()
	for id, o := range h.owned {
		if s := v.Sessions.Get(id); s != nil && s.Generation == o.gen {
			continue
		}
		if h.disownLocked(id); o.conn != nil {
			gone[id] = o.conn
		}
	}
	h.ownMu.Unlock()
	for id, c := range gone {
		if v.Sessions.Gone(id) != nil {
			c.end(goneError(v.Sessions, id))
		} else {
			c.end(session.ErrMoved)
		}
	}
}

// progressEvery is how often a stream with watches is told how far the server
// is although none of its watches fired: so that it can resume later without a
// Resync.
const progressEvery = 5 * time.Second

// markProgress asks the streams with watches for a progress mark.
func (h *hub) markProgress() {
	now := h.firedZxid()
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		c, ok := c.(*conn)
		if ok && len(c.watches) > 0 && zxid.ID(c.lastSent.Load()) < now {
			c.out.mark()
		}
	}
}
