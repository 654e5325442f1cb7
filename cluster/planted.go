//go:build planted

package cluster

import (
	"slices"
	"sync"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
)

// lastReign is what each server knew of the sessions when it led the last time.
var lastReign sync.Map // *Node -> *liveness

func init() {
	planted.Register(planted.OldLeadersClock, func(x ...any) {
		l := x[0].(*liveness)
		if old, ok := lastReign.Swap(l.node, l); ok {
			l.goOn(old.(*liveness), x[1].(*fsm.View))
		}
	})
}

// goOn counts the silence of sessions from where the old leadership has left them.
func (l *liveness) goOn(old *liveness, v *fsm.View) {
	old.mu.Lock()
	defer old.mu.Unlock()
	gone := l.node.now() - old.at
	var sessions []*session.Session
	for s := range v.Sessions.All() {
		c := *s
		if silent, ok := old.expiry.SilentFor(s.ID, old.clock.Now()); ok {
			c.Suspected = silent + gone
		}
		sessions = append(sessions, &c)
	}
	l.expiry.Reset(l.clock.Now(), slices.Values(sessions))
}
