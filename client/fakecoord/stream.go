package fakecoord

import (
	"context"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
)

// stream is one session stream. Its fields are guarded by the cluster's lock.
type stream struct {
	server  *Server
	c       *Cluster
	session *session // nil for MODE_NONE
	number  uint64
	watches map[uint64]*watch
	out     []*coordpb.SessionReply
	wake    chan struct{}
	cancel  context.CancelCauseFunc
	bye     bool
}

type watch struct {
	id       uint64
	path     string
	kind     coordpb.Watch_Kind
	withData bool
}

func (st *stream) put(m *coordpb.SessionReply) {
	if st.bye {
		return
	}
	m.Zxid = st.c.zxid
	st.out = append(st.out, m)
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// goodbye is the last message, or a part of the last that waits, as a real server
// sends it.
func (st *stream) goodbye(reason *coordpb.Error) {
	if st.bye {
		return
	}
	bye := &coordpb.Goodbye{Error: reason}
	if n := len(st.out); n > 0 {
		st.out[n-1].Goodbye = bye
	} else {
		st.put(&coordpb.SessionReply{Goodbye: bye})
	}
	st.bye = true
}

func (st *stream) cut(err error) { st.cancel(err) }

// send writes out what is queued until ctx ends. After a goodbye it ends the
// stream.
func (st *stream) send(ctx context.Context, g grpc.BidiStreamingServer[coordpb.SessionRequest, coordpb.SessionReply]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-st.wake:
		}
		st.server.hold(ctx)
		st.c.mu.Lock()
		out, bye := st.out, st.bye
		st.out = nil
		st.c.mu.Unlock()
		for _, m := range out {
			if ctx.Err() != nil || g.Send(m) != nil {
				return
			}
		}
		if bye {
			st.cancel(nil)
			return
		}
	}
}

// requests handles one message of the client.
func (st *stream) requests(m *coordpb.SessionRequest) {
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Messages++
	if st.session != nil && st.session.connection == st.number {
		c.acknowledge(st.session, m.Ack)
	}
	for _, r := range m.Requests {
		st.request(r)
	}
}

func (st *stream) request(r *coordpb.Request) {
	c := st.c
	switch {
	case st.server.notNow != coordpb.Code_CODE_OK && !r.Unwatch:
		st.reply(&coordpb.Reply{Seq: r.Seq, Id: r.Id, Error: code(st.server.notNow, "")})
	case r.Seq != 0:
		for c.frozen {
			c.thawed.Wait()
		}
		s := st.session
		switch {
		case s == nil:
			st.reply(&coordpb.Reply{Seq: r.Seq, Error: code(coordpb.Code_CODE_SESSION_EXPIRED, "")})
		case c.sessions[s.id] == nil && s.results[r.Seq] == nil:
			st.reply(&coordpb.Reply{Seq: r.Seq, Error: c.ended(s.id)})
		case s.connection != st.number:
			st.reply(&coordpb.Reply{Seq: r.Seq, Error: code(coordpb.Code_CODE_SESSION_MOVED, "")})
		default:
			st.reply(c.numbered(s, r))
		}
	case r.Read != nil:
		if r.Read.Mode == coordpb.ReadMode_READ_MODE_LINEARIZABLE {
			for c.frozen {
				c.thawed.Wait()
			}
		}
		res, e := c.read(r.Read, st.sessionID())
		st.reply(&coordpb.Reply{Id: r.Id, Zxid: c.zxid, Read: res, Error: e})
	case r.Watch != nil:
		st.register(r.Id, r.Watch)
	case r.Unwatch:
		c.counts.Unwatches++
		delete(st.watches, r.Id)
	}
}

// sessionID is that of the stream's session, 0 without one.
func (st *stream) sessionID() uint64 {
	if st.session == nil {
		return 0
	}
	return st.session.id
}

func (st *stream) reply(r *coordpb.Reply) {
	act := Pass
	if st.c.onReply != nil {
		act = st.c.onReply(st.server.name, r)
	}
	switch act {
	case Cut:
		st.cut(errCut)
	case Drop:
	case Pass:
		st.put(&coordpb.SessionReply{Replies: []*coordpb.Reply{r}})
	}
}

func (st *stream) register(id uint64, w *coordpb.Watch) {
	c := st.c
	c.counts.Watches++
	if st.watches[id] != nil {
		c.t.Errorf("watch %d is registered twice on one connection", id)
	}
	nw := &watch{id: id, path: w.Path, kind: w.Kind, withData: w.WithData}
	st.watches[id] = nw
	st.reply(&coordpb.Reply{Id: id, Zxid: c.zxid})
	if w.Initial {
		e := &coordpb.Event{WatchId: id, Path: w.Path, Zxid: c.zxid, Type: coordpb.EventType_EVENT_ABSENT}
		if n := c.nodes[w.Path]; n != nil {
			e.Type, e.Data = coordpb.EventType_EVENT_PRESENT, n.data
			e.Stat = proto.Clone(&n.stat).(*coordpb.Stat)
		}
		st.event(e)
	}
	if w.Since == 0 {
		return
	}
	if w.Since < c.floor {
		st.event(&coordpb.Event{WatchId: id, Type: coordpb.EventType_EVENT_RESYNC, Zxid: c.zxid})
		return
	}
	for i := 0; i < len(c.history); {
		j := i
		for j < len(c.history) && c.history[j].zxid == c.history[i].zxid {
			j++
		}
		if c.history[i].zxid > w.Since {
			nw.fire(st, c.history[i:j])
		}
		i = j
	}
}

// fire tells all watches of the stream about one transaction.
func (st *stream) fire(changes []*change) {
	for _, id := range slices.Sorted(maps.Keys(st.watches)) {
		st.watches[id].fire(st, changes)
	}
}

func (w *watch) fire(st *stream, changes []*change) {
	var events []*coordpb.Event
	for _, ch := range changes {
		typ, ok := w.match(ch)
		if !ok {
			continue
		}
		e := &coordpb.Event{
			WatchId: w.id, Type: typ, Path: ch.path, Zxid: ch.zxid, Index: ch.index,
			Stat: ch.stat, Cause: ch.cause, Session: ch.session,
		}
		if typ == coordpb.EventType_EVENT_CHILDREN {
			e.Path = w.path
		}
		if w.withData {
			e.Data = ch.data
		}
		events = append(events, e)
	}
	for i, e := range events {
		e.Last = i == len(events)-1
		st.event(e)
	}
}

func (w *watch) match(ch *change) (coordpb.EventType, bool) {
	child := parent(ch.path) == w.path && ch.path != "/" && ch.typ != coordpb.EventType_EVENT_CHANGED
	switch w.kind {
	case coordpb.Watch_KIND_CHILDREN:
		return coordpb.EventType_EVENT_CHILDREN, child
	case coordpb.Watch_KIND_RECURSIVE:
		return ch.typ, covers(w.path, ch.path)
	case coordpb.Watch_KIND_PERSISTENT:
		if child {
			return coordpb.EventType_EVENT_CHILDREN, true
		}
		return ch.typ, ch.path == w.path
	default:
		return ch.typ, ch.path == w.path
	}
}

// event queues one event in a message of its own. Its mark must not reach the
// transaction that the event is part of.
func (st *stream) event(e *coordpb.Event) {
	st.c.counts.Events++
	m := &coordpb.SessionReply{Events: []*coordpb.Event{e}}
	st.put(m)
	if e.Last || e.Type == coordpb.EventType_EVENT_RESYNC {
		m.Zxid = e.Zxid
	} else {
		m.Zxid = min(m.Zxid, e.Zxid-1)
	}
}
