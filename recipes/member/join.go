package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Option changes a Join.
type Option func(*options)

type options struct {
	takeOver bool
	patience time.Duration
	waitSet  bool
}

// TakeOver makes Join replace whoever holds the id, at once and in one
// transaction, so that no list is without it. It is right where the one who
// starts last is the one that counts, as with a restarted process that need not
// wait for its predecessor's session to expire. The one replaced is told, if it
// lives, and does not come back: its membership ends with a *TakenError. (One that
// is out of the group just then is told when it comes back; if the id is free again
// by that time it has no means to know that it was replaced.)
func TakeOver() Option { return func(o *options) { o.takeOver = true } }

// Patience is how long Join waits for another holder of the id to go before it
// returns a *TakenError. The default is twice the session's timeout, long enough
// for a dead predecessor with a session like ours. Zero does not wait; a negative
// value waits as long as the context lasts. A member that rejoins does not wait:
// who has its id then is newer.
func Patience(d time.Duration) Option {
	return func(o *options) { o.patience, o.waitSet = d, true }
}

// maxTries bounds how often in a row the group's folder is made again, or a
// holder replaced, because it was another one when we came.
const maxTries = 20

// entry is one attempt to get a znode of our own into the group.
type entry struct {
	g     *Group
	id    string
	data  []byte
	opts  options
	c     *client.Client // of the session that will own it
	past  []client.SessionID
	until time.Time // the end of its patience, zero for none
}

// join returns the Stat of a znode of our own, made in the session of e.c.
func (e *entry) join(ctx context.Context) (client.Stat, error) {
	e.startPatience()
	var replace *client.Stat
	for range maxTries {
		stat, at, err := e.create(ctx, replace)
		switch {
		case err == nil:
			return stat, nil
		case replace != nil && at == 0 && settle.Gone(err):
			replace = nil
		case errors.Is(err, client.ErrNoNode):
			if err := settle.Folders(ctx, e.c, e.g.path); err != nil {
				return stat, err
			}
		case errors.Is(err, client.ErrNodeExists):
			if replace, err = e.holder(ctx); err != nil {
				return stat, err
			}
		default:
			return stat, err
		}
	}
	return client.Stat{}, fmt.Errorf("join %s: %w: the group changes under every attempt", e.g.node(e.id), client.ErrUnavailable)
}

func (e *entry) startPatience() {
	d := e.opts.patience
	if !e.opts.waitSet {
		d = 2 * e.c.Session().Timeout()
	}
	if d >= 0 {
		e.until = time.Now().Add(d)
	}
}

// create makes the znode, in the place of another one if told to. at is the
// position of the operation that failed.
func (e *entry) create(ctx context.Context, replace *client.Stat) (stat client.Stat, at int, err error) {
	node := e.g.node(e.id)
	ops := []client.Op{client.OpCreate(node, e.data, client.WithEphemeral())}
	if replace != nil {
		ops = slices.Insert(ops, 0, client.OpDeleteNode(node, replace.Czxid, replace.EphemeralOwner))
	}
	undo := func(made []client.OpResult) <-chan error { return settle.NodeOf(made[len(made)-1]).Remove(e.c) }
	results, err := settle.Write(ctx, e.c, undo, ops...)
	var ce *client.Error
	if errors.As(err, &ce) {
		at = ce.Index
	}
	if err != nil {
		return client.Stat{}, at, err
	}
	return results[len(results)-1].Stat, 0, nil
}

// holder looks at who has the id. It returns the Stat of a znode that is to be
// replaced, nil if it has gone or was waited for, or a *TakenError.
func (e *entry) holder(ctx context.Context) (*client.Stat, error) {
	n, err := e.c.Get(ctx, e.g.node(e.id), client.Mode(client.Linearizable))
	if errors.Is(err, client.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	owner := n.Stat.EphemeralOwner
	taken := &TakenError{Group: e.g.path, Holder: newMember(e.id, n.Data, n.Stat)}
	switch {
	case owner == 0 && n.Stat.Kind != client.TTL, owner == e.c.Session().ID():
		return nil, taken
	case slices.Contains(e.past, owner), e.opts.takeOver:
		return &n.Stat, nil
	default:
		return nil, e.untilGone(ctx, taken)
	}
}

// untilGone waits for the holder to go, as long as there is patience.
func (e *entry) untilGone(ctx context.Context, taken *TakenError) error {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if !e.until.IsZero() {
		waiting, cancel = context.WithDeadline(ctx, e.until)
	}
	defer cancel()
	for ev, err := range e.c.Watch(waiting, e.g.node(e.id), client.Initial(client.ReadSession)) {
		switch {
		case err != nil && ctx.Err() == nil && waiting.Err() != nil:
			return taken
		case err != nil:
			return err
		case ev.Type == client.EventDeleted, ev.Type == client.EventAbsent, ev.Type == client.EventResync:
			return nil
		case ev.Stat.Czxid != taken.Holder.Czxid:
			return nil // another one already
		}
	}
	return ctx.Err()
}
