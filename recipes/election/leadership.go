package election

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Leadership is a lock.Handle with two more verbs. It is safe for concurrent
// use.
type Leadership struct {
	*lock.Handle
	e    *Election
	c    *client.Client // in the session that leads
	turn chan struct{}  // cap 1: whoever has put something in may write the znode

	// mu guards the fields below.
	mu    sync.Mutex
	stat  client.Stat // of the leader's znode, as far as it was made by us
	value []byte
	down  bool // the znode is taken down, or about to
}

// lead makes the holder of the lock known as the leader.
func (e *Election) lead(ctx context.Context, h *lock.Handle, value []byte) (*Leadership, error) {
	l := &Leadership{Handle: h, e: e, c: h.Session().Client(), turn: make(chan struct{}, 1), value: slices.Clone(value)}
	l.turn <- struct{}{}
	err := l.publish(ctx, l.value)
	<-l.turn
	if err != nil {
		l.takeDown()
		return nil, err
	}
	context.AfterFunc(h.Context(), l.takeDown) // however it ends
	go l.tend()
	return l, nil
}

// Proclaim changes the value that observers see. A leader that is none any more
// cannot: the error matches lock.ErrLost or lock.ErrReleased.
func (l *Leadership) Proclaim(ctx context.Context, value []byte) error {
	if err := l.enter(ctx); err != nil {
		return err
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	stat := l.stat
	l.mu.Unlock()
	value = slices.Clone(value)
	data, err := l.card(value)
	if err != nil {
		return err
	}
	node := l.e.leaderNode()
	_, err = l.c.Txn(ctx, l.Guard(), client.OpCheckNode(node, stat.Czxid, stat.EphemeralOwner), client.OpSet(node, data, client.AnyVersion))
	switch {
	case failed(err, 0):
		return l.deposed(ctx)
	case failed(err, 1): // somebody has deleted it
		return l.publish(ctx, value)
	case err != nil && !l.Held():
		return fmt.Errorf("%w; %w", context.Cause(l.Context()), err)
	case err != nil:
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value = value
	return nil
}

// Resign gives the leadership up, as Handle.Release does for the lock: the
// leader's context is done before anybody else can lead. It is idempotent and
// works with a ctx that is done.
func (l *Leadership) Resign(ctx context.Context) error {
	l.takeDown() // sent before the release, so that no observer sees a leader that is none
	return l.Handle.Release(ctx)
}

// Release is Resign.
func (l *Leadership) Release(ctx context.Context) error { return l.Resign(ctx) }

// enter waits for the turn to write the leader's znode.
func (l *Leadership) enter(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.mu.Lock()
	down := l.down
	l.mu.Unlock()
	switch {
	case !l.Held():
		<-l.turn
		return context.Cause(l.Context())
	case down: // it resigns just now
		<-l.turn
		return lock.ErrReleased
	}
	return nil
}

// deposed says why we do not lead, after the cluster has said that we do not.
func (l *Leadership) deposed(ctx context.Context) error {
	err := l.Verify(ctx) // it takes note of a loss
	if !l.Held() {
		return context.Cause(l.Context())
	}
	if err != nil {
		return err
	}
	// Verify has found the queue entry, and the transaction has not: only a
	// restored backup does that.
	return fmt.Errorf("%w: its queue entry is another one", lock.ErrLost)
}
