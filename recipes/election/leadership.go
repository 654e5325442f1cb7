package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/renewal"
	"github.com/coordd/coord/recipes/internal/settle"
	"github.com/coordd/coord/recipes/lock"
)

// maxTries bounds how often in a row a new leader tries to take the place of
// what stands at the leader's znode, if that is another thing each time.
const maxTries = 20

// Leadership is a lock.Handle with two more verbs. It is safe for concurrent
// use.
type Leadership struct {
	*lock.Handle
	e     *Election
	c     *client.Client // in the session that leads
	owner string
	turn  chan struct{} // cap 1: whoever has put something in may write the znode

	// mu guards the fields below.
	mu    sync.Mutex
	stat  client.Stat // of the leader's znode, as far as it was made by us
	value []byte
	down  bool // the znode is taken down, or about to
}

// lead makes the holder of the lock known as the leader.
func (e *Election) lead(ctx context.Context, h *lock.Handle, value []byte) (*Leadership, error) {
	l := &Leadership{Handle: h, e: e, c: h.Session().Client(), turn: make(chan struct{}, 1), value: slices.Clone(value)}
	n, err := l.c.Get(ctx, h.Node(), client.Mode(client.ReadSession))
	if err != nil && !errors.Is(err, client.ErrNoNode) {
		return nil, err
	}
	if err != nil || n.Stat.EphemeralOwner != h.Session().ID() {
		return nil, l.deposed(ctx)
	}
	var entry struct {
		Owner string `json:"owner"`
	}
	_ = json.Unmarshal(n.Data, &entry)
	l.owner = entry.Owner
	l.turn <- struct{}{}
	err = l.publish(ctx, l.value)
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
		return fmt.Errorf("%w; %w", renewal.Cause(l.Handle), err)
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
		return renewal.Cause(l.Handle)
	case down: // it resigns just now
		<-l.turn
		return lock.ErrReleased
	}
	return nil
}

// publish makes the leader's znode, in the place of one that a former leader has
// left. The transaction is only done while we lead. The caller has the turn.
func (l *Leadership) publish(ctx context.Context, value []byte) error {
	data, err := l.card(value)
	if err != nil {
		return err
	}
	ctx, cancel := renewal.Within(ctx, l.Context())
	defer cancel()
	node := l.e.leaderNode()
	undo := func(r []client.OpResult) { l.remove(r[len(r)-1].Stat) }
	var replace *client.Stat
	for range maxTries {
		ops := []client.Op{l.Guard(), client.OpCreate(node, data, client.WithEphemeral())}
		if replace != nil {
			ops = slices.Insert(ops, 1, client.OpDeleteNode(node, replace.Czxid, replace.EphemeralOwner))
		}
		results, err := settle.Write(ctx, l.c, undo, ops...)
		switch {
		case err == nil:
			l.published(results[len(results)-1].Stat, value)
			return nil
		case failed(err, 0):
			return l.deposed(ctx)
		case errors.Is(err, client.ErrNodeExists):
			st, ok, err := l.c.Exists(ctx, node)
			if err != nil {
				return err
			}
			if replace = nil; ok {
				replace = &st
			}
		case replace != nil && failed(err, 1):
			replace = nil
		case l.Context().Err() != nil:
			return context.Cause(l.Context())
		default:
			return err
		}
	}
	return fmt.Errorf("%s: %w: it is another one at every attempt to replace it", node, client.ErrUnavailable)
}

// failed says that a transaction failed because operation i did not find its
// node as it should be.
func failed(err error, i int) bool {
	var e *client.Error
	return errors.As(err, &e) && e.Index == i && (errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion))
}

// published takes note of the znode; if the leadership is over meanwhile it goes
// again.
func (l *Leadership) published(stat client.Stat, value []byte) {
	l.mu.Lock()
	down := l.down
	if !down {
		l.stat, l.value = stat, value
	}
	l.mu.Unlock()
	if down {
		l.remove(stat)
	}
}

// takeDown removes the leader's znode as soon as the session can. It does not
// wait.
func (l *Leadership) takeDown() {
	l.mu.Lock()
	stat, first := l.stat, !l.down
	l.down = true
	l.mu.Unlock()
	if first && stat.Czxid != 0 {
		l.remove(stat)
	}
}

func (l *Leadership) remove(stat client.Stat) {
	renewal.Remove(l.c, l.e.leaderNode(), stat.Czxid, stat.EphemeralOwner)
}

// deposed says why we do not lead, after the cluster has said that we do not.
func (l *Leadership) deposed(ctx context.Context) error {
	err := l.Verify(ctx) // it takes note of a loss
	if !l.Held() {
		return renewal.Cause(l.Handle)
	}
	if err != nil {
		return err
	}
	// Verify has found the queue entry, and the transaction has not: only a
	// restored backup does that.
	return fmt.Errorf("%w: its queue entry is another one", lock.ErrLost)
}

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

func (l *Leadership) card(value []byte) ([]byte, error) {
	data, err := json.Marshal(card{
		Owner: l.owner, Since: time.Now().UTC().Truncate(time.Millisecond),
		Node: l.Node(), Token: l.FencingToken(), Value: value,
	})
	if err != nil {
		return nil, fmt.Errorf("proclaim %s: %w", l.Path(), err)
	}
	return data, nil
}
