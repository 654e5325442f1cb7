package member

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/renewal"
	"github.com/coordd/coord/recipes/internal/settle"
)

// keptSessions is how many of its own former sessions a membership remembers, to
// know a znode that one of them has left. They end within their timeout.
const keptSessions = 16

// keep holds the membership until it is over: while the znode is there it waits,
// when it has gone it makes it again.
func (m *Membership) keep(s *renewal.Sessions) {
	defer close(m.done)
	for m.ctx.Err() == nil {
		m.hold()
		if err := m.rejoin(s); err != nil {
			m.cancel(err)
		}
	}
	m.remove(s)
}

// joined takes note of a znode of our own.
func (m *Membership) joined(s *client.Session, stat client.Stat, data published) {
	m.update(func() { m.session, m.stat, m.have = s, stat, data })
}

// update changes the state and tells those who wait for it.
func (m *Membership) update(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.changed)
	m.changed = make(chan struct{})
}

// hold returns when the znode has gone, its session is over, or the membership
// is.
func (m *Membership) hold() {
	s, stat := m.session, m.stat // only this goroutine sets them
	watching, cancel := context.WithCancel(m.ctx)
	gone := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(gone)
		m.untilGone(watching, s.Client(), stat)
	})
	defer wg.Wait()
	defer cancel()
	stop := context.AfterFunc(s.Context(), cancel)
	defer stop()
	for {
		select {
		case <-gone:
			if m.ctx.Err() == nil {
				m.update(func() { m.stat = client.Stat{} })
			}
			return
		case <-m.kick:
			m.publish(watching, s.Client(), stat)
		}
	}
}

// untilGone returns when the znode is not there any more, or ctx is done.
func (m *Membership) untilGone(ctx context.Context, c *client.Client, stat client.Stat) {
	var pause renewal.Pause
	for ctx.Err() == nil {
		for ev, err := range c.Watch(ctx, m.Node(), client.Since(stat.Czxid)) {
			if err != nil || ev.Type == client.EventResync {
				break
			}
			pause.Reset()
			if ev.Type == client.EventDeleted {
				return
			}
		}
		st, ok, err := c.Exists(ctx, m.Node(), client.Mode(client.Linearizable))
		if err == nil && (!ok || st.Czxid != stat.Czxid || st.EphemeralOwner != stat.EphemeralOwner) {
			return
		}
		_ = pause.Wait(ctx)
	}
}

// publish sets the znode's data to the newest, until that is done, refused, or
// pointless because the znode has gone.
func (m *Membership) publish(ctx context.Context, c *client.Client, stat client.Stat) {
	var pause renewal.Pause
	for {
		m.mu.Lock()
		want, have := m.want, m.have
		m.mu.Unlock()
		if want.version == have.version {
			return
		}
		_, err := c.Txn(ctx, client.OpCheckNode(m.Node(), stat.Czxid, stat.EphemeralOwner), client.OpSet(m.Node(), want.data, client.AnyVersion))
		switch {
		case err == nil:
			m.update(func() { m.have = want })
		case ctx.Err() != nil, errors.Is(err, client.ErrNoNode), errors.Is(err, client.ErrBadVersion):
			return // the rejoin brings the data along
		case lasting(err):
			m.refuse(want, err)
		default:
			if pause.Wait(ctx) != nil {
				return
			}
		}
	}
}

// lasting tells errors of the data from those of the moment.
func lasting(err error) bool { return renewal.Hopeless(err) || errors.Is(err, client.ErrQuotaExceeded) }

// refuse goes back to the data that the cluster has taken.
func (m *Membership) refuse(bad published, err error) {
	m.update(func() {
		m.refused, m.refusal = published{version: bad.version}, err
		if m.want.version == bad.version {
			m.want = m.have
		}
	})
}

// rejoin makes the znode again, in a new session if the present one is over, and
// tries until that is done. An error is the end of the membership.
func (m *Membership) rejoin(s *renewal.Sessions) error {
	var pause renewal.Pause
	for m.ctx.Err() == nil {
		m.mu.Lock()
		want, have := m.want, m.have
		m.mu.Unlock()
		err := m.tryRejoin(s, want)
		switch {
		case err == nil:
			return nil
		case m.ctx.Err() != nil:
		case errors.Is(err, ErrTaken):
			return err
		case lasting(err) && want.version != have.version:
			m.refuse(want, err)
			continue
		case renewal.Hopeless(err):
			return err
		}
		if pause.Wait(m.ctx) != nil {
			break
		}
	}
	return context.Cause(m.ctx)
}

func (m *Membership) tryRejoin(s *renewal.Sessions, want published) error {
	before := s.Current()
	session, err := s.Live(m.ctx)
	if err != nil {
		return err
	}
	if session != before {
		m.past = append(m.past, before.ID())
		m.past = m.past[max(0, len(m.past)-keptSessions):]
	}
	// Who has come meanwhile is newer than we are, and alive: it has waited for
	// us to go, or replaced us.
	opts := options{waitSet: true}
	e := entry{g: m.g, id: m.id, data: want.data, opts: opts, c: session.Client(), past: m.past}
	stat, err := e.join(m.ctx)
	if err == nil {
		m.joined(session, stat, want)
	}
	return err
}

// remove removes the znode and ends the session if it was opened here.
func (m *Membership) remove(s *renewal.Sessions) {
	m.mu.Lock()
	stat, session := m.stat, m.session
	m.mu.Unlock()
	var err error
	if stat.Czxid != 0 && session.Context().Err() == nil {
		t := time.NewTimer(session.Timeout() + leaveGrace) // the session ends before that
		defer t.Stop()
		select {
		case err = <-settle.Node{Path: m.Node(), Stat: stat}.Remove(session.Client()):
			if settle.Gone(err) || session.Context().Err() != nil {
				err = nil
			}
		case <-t.C:
			err = client.ErrUnknownOutcome
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveGrace)
	defer cancel()
	if e := s.Close(ctx); err == nil {
		err = e
	}
	m.update(func() { m.leftErr, m.stat = err, client.Stat{} })
}
