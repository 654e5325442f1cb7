package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/renewal"
	"github.com/coordd/coord/recipes/internal/settle"
)

// maxTries bounds how often in a row a new leader tries to take the place of
// what stands at the leader's znode, if that is another thing each time.
const maxTries = 20

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
	undo := func(made []client.OpResult) <-chan error { return l.remove(made[len(made)-1].Stat) }
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
			if !l.Held() { // which may be what cut the question short
				return context.Cause(l.Context())
			}
			if err != nil {
				return err
			}
			if replace = nil; ok {
				replace = &st
			}
		case replace != nil && failed(err, 1):
			replace = nil
		case !l.Held():
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
	return errors.As(err, &e) && e.Index == i && settle.Missing(err)
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

func (l *Leadership) remove(stat client.Stat) <-chan error {
	return settle.Node{Path: l.e.leaderNode(), Stat: stat}.Remove(l.c)
}

func (l *Leadership) card(value []byte) ([]byte, error) {
	data, err := json.Marshal(card{
		Owner: l.Owner(), Since: time.Now().UTC().Truncate(time.Millisecond),
		Node: l.Node(), Token: l.FencingToken(), Value: value,
	})
	if err != nil {
		return nil, fmt.Errorf("proclaim %s: %w", l.Path(), err)
	}
	return data, nil
}
