package client

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/coordd/coord/api/coordpb"
)

// pulses keeps the sessions of one client alive: one pulse for each endpoint
// that serves any of them. It is safe for concurrent use.
type pulses struct {
	core *core

	// mu guards the fields below, and users of each pulse. It may be held when
	// the lock of a pulse is taken, which may be held when a session's is.
	mu sync.Mutex
	at map[string]*pulse
}

func newPulses(c *core) *pulses { return &pulses{core: c, at: map[string]*pulse{}} }

// pulse sends the heartbeats of all sessions of a client that are served by one
// endpoint, on a TCP connection of its own, so that no queue of requests or large
// replies can delay them. It lives as long as it has members.
type pulse struct {
	core     *core
	endpoint string
	stop     context.CancelFunc
	wg       sync.WaitGroup
	wake     chan struct{} // cap 1: the first in due has changed
	users    int           // members that joined and have not left; guarded by pulses.mu

	// mu guards the fields below and those of the members that say so.
	mu      sync.Mutex
	members map[SessionID]*member
	due     dueQueue
	most    int                     // heartbeats that one message may carry
	cut     context.CancelCauseFunc // ends the present connection; nil without one
	heard   time.Time               // when that brought its newest answer, or began
}

// member is one connection of one session, as the pulse sees it.
type member struct {
	cn    *conn
	pulse *pulse
	id    SessionID
	first uint64 // no heartbeat of this connection has a smaller number

	// Guarded by pulse.mu.
	gone    bool
	next    time.Time   // when its next heartbeat is due
	place   int         // in pulse.due
	silence *time.Timer // fires when no heartbeat was counted for too long
}

// join begins to send heartbeats for the session of cn, the first one at once.
func (ps *pulses) join(cn *conn) *member {
	s := cn.s
	s.mu.Lock()
	m := &member{cn: cn, id: s.id, first: s.beats.number + 1}
	most := max(1, int(s.limits.GetBeatsPerMessage()))
	s.mu.Unlock()

	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.at[cn.endpoint]
	first := p == nil
	if first {
		p = &pulse{core: ps.core, endpoint: cn.endpoint, wake: make(chan struct{}, 1), members: map[SessionID]*member{}}
		ps.at[cn.endpoint] = p
	}
	p.users++
	m.pulse = p
	p.add(m, most)
	if first {
		p.start()
	}
	return m
}

// leave ends what join has begun. The last one to leave ends the connection.
func (ps *pulses) leave(m *member) {
	p := m.pulse
	p.mu.Lock()
	p.dropLocked(m)
	p.mu.Unlock()

	ps.mu.Lock()
	p.users--
	last := p.users == 0
	if last {
		delete(ps.at, p.endpoint)
	}
	ps.mu.Unlock()
	if last {
		p.stop()
		p.wg.Wait()
	}
}

func (p *pulse) start() {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.wg.Go(func() { p.run(ctx) })
}

// add takes a member in. It stands in for an older connection of its session.
func (p *pulse) add(m *member, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.members[m.id]; old != nil {
		p.dropLocked(old)
	}
	p.most = most
	p.members[m.id] = m
	m.silence = time.AfterFunc(m.patience(), func() { p.missed(m) })
	m.next = time.Now()
	heap.Push(&p.due, m)
	signal(p.wake)
}

func (p *pulse) dropLocked(m *member) {
	if m.gone {
		return
	}
	m.gone = true
	m.silence.Stop()
	heap.Remove(&p.due, m.place)
	delete(p.members, m.id)
}

func (m *member) patience() time.Duration { return beatPatience(m.cn.s.Timeout()) }

// missed is called when no heartbeat of a member was counted for too long: its
// session should be somewhere else. If nobody's was, the connection itself may
// be dead, and is made anew.
func (p *pulse) missed(m *member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.gone {
		return
	}
	m.silence.Reset(beatInterval(m.cn.s.Timeout()))
	began := time.Now().Add(-m.patience())
	if p.cut != nil && !p.heard.After(began) {
		p.cut(errNoAnswer)
	}
	p.core.streams.silent(p.endpoint, began)
	signal(m.cn.move)
}

// answered takes in an answer.
func (p *pulse) answered(a *coordpb.BeatAnswer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	m := p.members[SessionID(a.SessionId)]
	if m == nil {
		return
	}
	switch m.judge(a) {
	case counted:
		m.silence.Reset(m.patience())
	case refused:
		signal(m.cn.move)
		p.setNextLocked(m, time.Now().Add(m.cn.s.Timeout()/12))
	case uncounted:
	}
}

// setNextLocked says when the next heartbeat of a member is due.
func (p *pulse) setNextLocked(m *member, at time.Time) {
	m.next = at
	heap.Fix(&p.due, m.place)
	signal(p.wake)
}

// take makes the next message of what is due; nil if nothing is. The members in
// it are due again an interval later.
func (p *pulse) take() *coordpb.HeartbeatRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.due) == 0 || p.due[0].next.After(now) {
		return nil
	}
	var beats []*coordpb.Beat
	for len(beats) < p.most && len(p.due) > 0 {
		m := p.due[0]
		timeout := m.cn.s.Timeout()
		if m.next.After(now.Add(timeout / beatEarly)) {
			break
		}
		if b := m.nextBeat(); b != nil {
			beats = append(beats, b)
		}
		m.next = now.Add(beatInterval(timeout))
		heap.Fix(&p.due, 0)
	}
	switch len(beats) {
	case 0:
		return nil
	case 1:
		b := beats[0]
		return &coordpb.HeartbeatRequest{SessionId: b.SessionId, Secret: b.Secret, Connection: b.Connection, Number: b.Number}
	default:
		return &coordpb.HeartbeatRequest{Beats: beats}
	}
}

// beatEarly is the part of the timeout, as its divisor, by which a heartbeat may
// be sent before it is due so that it travels with others.
const beatEarly = 50

// untilDue is the time until the next heartbeat is due.
func (p *pulse) untilDue() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.due) == 0 {
		return time.Hour // add wakes
	}
	return max(0, time.Until(p.due[0].next))
}

// shortest is the smallest timeout of the members, a minute at most.
func (p *pulse) shortest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	least := time.Minute
	for _, m := range p.members {
		least = min(least, m.cn.s.Timeout())
	}
	return least
}

// dueQueue is a heap of members by the time of their next heartbeat.
type dueQueue []*member

func (q dueQueue) Len() int           { return len(q) }
func (q dueQueue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q dueQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *dueQueue) Push(x any) {
	m := x.(*member)
	m.place = len(*q)
	*q = append(*q, m)
}

func (q *dueQueue) Pop() any {
	old := *q
	m := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return m
}
