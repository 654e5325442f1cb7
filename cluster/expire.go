package cluster

import (
	"context"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// Expire ends a session as the leader does when it has heard nothing from it for
// its timeout; for tests of what happens then. It returns once that is applied
// here. If this server does not lead the error is ErrNotLeader, or that of the
// leadership that ended meanwhile; if there is no such session it says why
// (session.ErrExpired, ErrClosed, ErrUnknown).
func (n *Node) Expire(ctx context.Context, id session.ID) error {
	for proposed := false; ; proposed = true {
		r := n.reign.Load()
		if r == nil {
			return ErrNotLeader
		}
		s, err := n.sessionNow(id)
		switch {
		case err != nil && proposed:
			return nil
		case err != nil:
			return err
		}
		// It does nothing if the session has sent something meanwhile.
		done := make(chan error, 1)
		r.batch.propose(&fsm.Command{Kind: fsm.CmdExpire, Expire: s.named(r.term)}, func(err error) { done <- err })
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sessionNow is a session as the table has it, or why it has it no more.
func (n *Node) sessionNow(id session.ID) (s sighting, err error) {
	n.machine.View(func(v *fsm.View) {
		if live := v.Sessions.Get(id); live != nil {
			s = sighting{id, live.Generation, live.Touched, live.Timeout, live.Suspected != 0}
			return
		}
		err = v.Sessions.Gone(id)
	})
	return s, err
}
