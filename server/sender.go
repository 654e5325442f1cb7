package server

import (
	"runtime"
	"slices"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
)

// frameBytes is how much one message carries, except for a single larger reply.
const frameBytes = 64 << 10

// sink is the part of a gRPC stream that the sender needs.
type sink interface {
	Send(m *coordpb.SessionReply) error
}

// sender sends what is in the outbox of one stream: all that waits, as few
// messages as possible. It runs on one goroutine.
//
// In a message, events come before replies, so events are moved ahead of
// replies that were queued before them. That is allowed, an event may always
// come earlier, but not ahead of the reply that registers its watch.
type sender struct {
	c   *conn
	out sink
	enc encoder
	msg coordpb.SessionReply

	size       int
	registered bool // msg has a reply that registers a watch
	replies    int
	queued     []time.Time // when the events in msg were queued
	now        int64       // stopwatch, read once for all that is sent in one go
}

// run sends until the goodbye is out, the stream breaks, or stop is closed and
// nothing waits.
func (s *sender) run(stop <-chan struct{}) error {
	var spare []item
	for {
		select {
		case <-s.c.out.wake:
		case <-stop:
		}
		runtime.Gosched() // let those who are busy queueing queue some more
		fired := s.c.s.hub.firedZxid()
		s.now = s.c.s.clock.now()
		stopped := s.c.isStopped() // before the look: whoever stops it has queued the last words by then
		p := s.c.out.take(spare[:0], stopped)
		if p.closed {
			fired = 0 // events that came since are not among the items
		}
		if err := s.send(&p, uint64(fired)); err != nil {
			return err
		}
		if p.goodbye != nil || len(p.items) == 0 && stopped {
			return nil
		}
		if cap(p.items) <= maxSlab {
			clear(p.items)
			spare = p.items
		} else {
			spare = nil
		}
	}
}

// send sends what was taken in as few messages as size and order allow: the
// last one says goodbye, if it is time to. fired is a transaction whose events
// are all sent when these items are.
func (s *sender) send(p *parcel, fired uint64) error {
	readable := s.readable(p.items)
	for i := range p.items {
		it := &p.items[i]
		if s.size >= frameBytes || it.event != nil && s.registered {
			if err := s.flush(s.stamp(fired, false)); err != nil {
				return err
			}
		}
		s.add(it, readable)
	}
	if p.goodbye != nil {
		s.msg.Goodbye = &coordpb.Goodbye{Error: p.goodbye}
	} else if s.size == 0 && !p.progress {
		return nil
	}
	return s.flush(s.stamp(fired, true))
}

// stamp is how far the client is with this message: what the last reply in it
// shows, or fired if nothing is left behind.
func (s *sender) stamp(fired uint64, all bool) uint64 {
	if all {
		return max(fired, s.msg.Zxid)
	}
	return s.msg.Zxid
}

func (s *sender) add(it *item, readable map[*event]bool) {
	if it.event != nil {
		e := s.enc.event(it, readable == nil || !it.event.withData || readable[it.event])
		s.msg.Events = append(s.msg.Events, e)
		s.queued = append(s.queued, it.event.queued)
		s.size += it.event.size()
		return
	}
	r := s.enc.reply(it, s.c.s.faults)
	s.msg.Replies = append(s.msg.Replies, r)
	s.msg.Zxid = max(s.msg.Zxid, uint64(it.zxid))
	s.replies++
	s.registered = s.registered || it.registers
	s.size += itemOverhead
	if it.read != nil {
		s.size += it.read.size
	}
	s.c.s.metrics.done(it, fsm.Code(r.GetError().GetCode()), s.now, s.c)
}

// flush sends the message under construction and makes its parts free again.
func (s *sender) flush(zxid uint64) error {
	last := s.c.lastSent.Load()
	s.msg.Zxid = max(zxid, last)
	err := s.out.Send(&s.msg)
	s.c.lastSent.Store(s.msg.Zxid)
	n := s.replies
	s.enc.reset()
	s.msg.Replies, s.msg.Events = recycle(s.msg.Replies), recycle(s.msg.Events)
	s.msg.Zxid, s.size, s.registered, s.replies = 0, 0, false, 0
	if err == nil {
		s.c.sent(n)
		s.lagged()
	}
	return err
}

// lagged counts how long the events that were just sent had waited.
func (s *sender) lagged() {
	if len(s.queued) == 0 {
		return
	}
	now := time.Now()
	for _, t := range s.queued {
		s.c.s.metrics.watchLag.observe(now.Sub(t))
	}
	if s.queued = s.queued[:0]; cap(s.queued) > maxSlab {
		s.queued = nil
	}
}

// recycle empties a list and keeps its memory unless there is much of it.
func recycle[T any](list []*T) []*T {
	if cap(list) > maxSlab {
		return nil
	}
	clear(list)
	return list[:0]
}

// readable finds out for which events the client may see the data it asked
// for; nil if none has any.
func (s *sender) readable(items []item) map[*event]bool {
	asks := func(it item) bool { return it.event != nil && it.event.withData && it.event.change != nil }
	if !slices.ContainsFunc(items, asks) {
		return nil
	}
	out := make(map[*event]bool)
	s.c.s.machine.View(func(v *fsm.View) {
		for i := range items {
			if e := items[i].event; asks(items[i]) {
				out[e] = readable(v, &s.c.caller, e.change)
			}
		}
	})
	return out
}
