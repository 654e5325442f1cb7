package fsm

import (
	"fmt"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// newEpoch opens the epoch of a leadership, once in its term. Until then every
// other command of the term is answered "again", so that nothing gets ids or
// the clock of the leadership before.
func (m *Machine) newEpoch(c *Command) *Result {
	e := c.Epoch
	if m.now.term <= m.state.EpochTerm {
		return newResult(c, StatusRepeat, nil)
	}
	if e.Term != m.now.term {
		return newResult(c, StatusAgain, ErrOutdated)
	}
	if len(e.ClusterID) > MaxNameBytes {
		return newResult(c, StatusDone, tooLarge("cluster id, at most %d bytes", MaxNameBytes))
	}
	m.state.EpochTerm = m.now.term
	m.state.Clock = max(m.state.Clock, e.Clock)
	m.state.Zxid = max(m.state.Zxid, zxid.Make(nextEpoch(m.state.Zxid.Epoch(), e.MinEpoch), 0))
	if m.state.ClusterID == "" {
		m.state.ClusterID = e.ClusterID
	}
	return newResult(c, StatusDone, nil)
}

// nextEpoch is at most the last one there is; the counter of that one then goes
// on where it stands.
func nextEpoch(epoch, minEpoch uint32) uint32 {
	return min(max(epoch+1, minEpoch), zxid.MaxEpoch)
}

// boot gives a started server its number line.
func (m *Machine) boot(c *Command) *Result {
	b := c.Boot
	if b.Server == "" || len(b.Server) > MaxNameBytes {
		return newResult(c, StatusDone, badArguments("server name of %d bytes", len(b.Server)))
	}
	switch m.state.Sessions.Boot(b.Server, b.Nonce) {
	case session.BootRepeated:
		return newResult(c, StatusRepeat, nil)
	case session.BootStale:
		return newResult(c, StatusOldBoot, ErrOutdated)
	case session.Booted:
	}
	return newResult(c, StatusDone, nil)
}

// watched returns the session that a leader's command is about, if it is still
// as the leader saw it and the leader still leads.
func (m *Machine) watched(e *Expire) (*session.Session, error) {
	if e.Term != m.now.term {
		return nil, ErrOutdated
	}
	s := m.state.Sessions.Get(e.Session)
	if s == nil || s.Generation != e.Generation || s.Touched != e.Touched {
		return nil, ErrOutdated
	}
	return s, nil
}

func (m *Machine) expire(c *Command) *Result {
	s, err := m.watched(c.Expire)
	if err != nil {
		return newResult(c, StatusDone, err)
	}
	return m.finish(c, s.ID, session.Expired, znode.BySessionExpiry)
}

// kill ends a session on an operator's behalf.
func (m *Machine) kill(c *Command) *Result {
	k := c.Kill
	if m.state.Sessions.Get(k.Session) == nil {
		return newResult(c, StatusDone, fmt.Errorf("session %s: %w", k.Session, m.state.Sessions.Gone(k.Session)))
	}
	reason := k.Reason
	switch reason {
	case session.Expired, session.TakenOver, session.Restored:
	default: // Closed would claim that the session's last number was its close
		reason = session.Killed
	}
	return m.finish(c, k.Session, reason, znode.ByAdmin)
}

// finish ends a session in a transaction of its own.
func (m *Machine) finish(c *Command, id session.ID, reason session.EndReason, cause znode.Cause) *Result {
	tx := m.begin(&znode.Caller{Session: id, Trusted: true}, cause)
	m.endSession(tx, id, reason)
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	return r
}

// suspect writes down how long a session has been silent, so that elections in
// a row cannot keep a dead client's session alive. A mark only ever adds to the
// one that stands.
func (m *Machine) suspect(c *Command) *Result {
	s, err := m.watched(c.Expire)
	if err == nil {
		err = checkSilence(c.Expire.Silent)
	}
	if err != nil {
		return newResult(c, StatusDone, err)
	}
	if silent := min(c.Expire.Silent, s.Timeout); silent > s.Suspected {
		m.state.Sessions.Edit(s.ID).Suspected = silent
	}
	return newResult(c, StatusDone, nil)
}

// unsuspect takes the mark back. It asks for no more than the term: to take
// back too much only lets a session live longer.
func (m *Machine) unsuspect(c *Command) *Result {
	if c.Expire.Term != m.now.term {
		return newResult(c, StatusDone, ErrOutdated)
	}
	s := m.state.Sessions.Get(c.Expire.Session)
	if s == nil {
		return newResult(c, StatusDone, ErrOutdated)
	}
	if s.Suspected != 0 {
		m.state.Sessions.Edit(s.ID).Suspected = 0
	}
	return newResult(c, StatusDone, nil)
}

// reap deletes what the leader found past its time, all in one transaction and
// each only if it is still as it was found.
func (m *Machine) reap(c *Command) *Result {
	if c.Term != m.now.term {
		return newResult(c, StatusDone, ErrOutdated)
	}
	tx := m.begin(&znode.Caller{Trusted: true}, znode.ByReaper)
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	r.Ops = make([]znode.OpResult, len(c.Reap))
	for i, x := range c.Reap {
		r.Ops[i] = znode.OpResult{Kind: znode.OpDelete, Path: x.Path, Err: m.state.Tree.Reap(tx, x)}
	}
	return r
}

// trim drops answers that idle clients are known to have. It is the server's
// word, not a command of the sessions: it is no sign of life.
func (m *Machine) trim(c *Command) *Result {
	for _, t := range c.Trim {
		s := m.state.Sessions.Get(t.Session)
		if s != nil && t.Upto > s.Line.Acked() {
			m.state.Sessions.Edit(t.Session).Line.Ack(t.Upto)
		}
	}
	return newResult(c, StatusDone, nil)
}

// raiseFeature agrees on a higher level of behaviour. A server that does not
// know it would part from the others without noticing, so it stops.
func (m *Machine) raiseFeature(c *Command) *Result {
	switch {
	case c.Term != m.now.term:
		return newResult(c, StatusDone, ErrOutdated)
	case c.Feature > m.opts.FeatureLevel:
		m.fault = fmt.Errorf("the cluster has been raised to feature level %d, this server knows %d", c.Feature, m.opts.FeatureLevel)
	case c.Feature > m.state.FeatureLevel:
		m.state.FeatureLevel = c.Feature
	}
	return newResult(c, StatusDone, nil)
}

// removeServer forgets the number line of a server that left the cluster.
func (m *Machine) removeServer(c *Command) *Result {
	if c.Term != m.now.term {
		return newResult(c, StatusDone, ErrOutdated)
	}
	m.state.Sessions.RemoveServer(c.Server)
	return newResult(c, StatusDone, nil)
}
