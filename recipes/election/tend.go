package election

import (
	"context"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/renewal"
)

// tend puts the leader's znode back when somebody deletes it. It ends with the
// leadership.
func (l *Leadership) tend() {
	ctx := l.Context()
	var pause renewal.Pause
	for ctx.Err() == nil {
		err := l.untilDeleted(ctx)
		if e := l.restore(ctx); err == nil {
			err = e
		}
		if err == nil {
			pause.Reset()
		} else if pause.Wait(ctx) != nil {
			return
		}
	}
}

// untilDeleted returns nil when the znode may not be there any more.
func (l *Leadership) untilDeleted(ctx context.Context) error {
	l.mu.Lock()
	since := l.stat.Czxid
	l.mu.Unlock()
	for ev, err := range l.c.Watch(ctx, l.e.leaderNode(), client.Since(since)) {
		if err != nil || ev.Type == client.EventDeleted || ev.Type == client.EventResync {
			return err
		}
	}
	return ctx.Err()
}

// restore makes the znode again if it is not there.
func (l *Leadership) restore(ctx context.Context) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	stat, value := l.stat, l.value
	l.mu.Unlock()
	st, ok, err := l.c.Exists(ctx, l.e.leaderNode())
	if err != nil || ok && st.Czxid == stat.Czxid {
		return err
	}
	return l.publish(ctx, value)
}
