package election

import (
	"context"
	"errors"
	"iter"

	"github.com/coordd/coord/client"
)

// Observe yields who leads: first as it is, then each change, in commit order:
// every new leader, every value that one proclaims, and a Leader with None() for
// each time that nobody leads. It watches one znode, so it is told of nothing
// else, however many candidates there are.
//
// When the servers no longer know all changes since a connection was lost, the
// state is read anew and yielded with Missed set, unless the same leader says what
// it said before: leaders that came and went in between, and gaps, are not seen
// then. The Token tells whether it is another leadership. Very late, when the servers no longer keep the value of a
// leader that has gone already, that leader has a Session but neither Value nor
// Token.
//
// The loop ends with an error as the last thing yielded when ctx is done or the
// client's session is over. A client made with client.WithoutSession observes
// without one.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		o := observer{e: e, first: true}
		opts := []client.WatchOption{client.WithData(), client.Initial(client.ReadDefault)}
		for ev, err := range e.c.Watch(ctx, e.leaderNode(), opts...) {
			changed := false
			if err == nil {
				changed, err = o.event(ctx, ev)
			}
			if err != nil {
				yield(Leader{}, err)
				return
			}
			if changed && !yield(o.last, nil) {
				return
			}
		}
	}
}

// observer is one loop of Observe.
type observer struct {
	e     *Election
	first bool        // nothing was yielded yet
	last  Leader      // what was yielded
	read  client.Zxid // changes up to here are in it already
}

// event takes in an event and says whether last is another one now.
func (o *observer) event(ctx context.Context, ev client.Event) (changed bool, err error) {
	next := Leader{Zxid: ev.Zxid}
	switch ev.Type {
	case client.EventPresent:
		next = leaderOf(ev.Data, ev.Stat, ev.Stat.Mzxid)
		if ev.DataDropped || ev.Data == nil {
			return o.reread(ctx, ev.Zxid)
		}
	case client.EventAbsent:
	case client.EventResync:
		return o.reread(ctx, ev.Zxid)
	case client.EventCreated, client.EventChanged:
		if ev.Zxid <= o.read {
			return false, nil
		}
		next = leaderOf(ev.Data, ev.Stat, ev.Zxid)
		if ev.DataDropped {
			if next, err = o.refetch(ctx, next, ev.Stat); err != nil {
				return false, err
			}
		}
	case client.EventDeleted:
		// A leader that replaces what a former one has left does it in one
		// transaction: there is no gap then.
		if ev.Zxid <= o.read || !ev.Last {
			return false, nil
		}
	default:
		return false, nil
	}
	return o.take(next), nil
}

// take makes next the newest and says whether it differs from the one before.
func (o *observer) take(next Leader) bool {
	if !o.first && o.last.same(next) {
		return false
	}
	o.first, o.last = false, next
	return true
}

// reread reads the state because changes may have been missed.
func (o *observer) reread(ctx context.Context, z client.Zxid) (bool, error) {
	n, err := o.e.c.Get(ctx, o.e.leaderNode(), client.AtLeast(z))
	switch {
	case errors.Is(err, client.ErrNoNode):
		// Also if nobody led before: leaders may have come and gone.
		o.first, o.last = false, Leader{Zxid: z, Missed: !o.first}
		return true, nil
	case err != nil:
		return false, err
	}
	o.read = n.Zxid
	next := leaderOf(n.Data, n.Stat, n.Stat.Mzxid)
	next.Missed = !o.first
	return o.take(next), nil
}

// refetch reads the value of a leader whose event came without it. What is read
// may be newer; of a leader that has gone already the value is not known.
func (o *observer) refetch(ctx context.Context, l Leader, stat client.Stat) (Leader, error) {
	n, err := o.e.c.Get(ctx, o.e.leaderNode(), client.AtLeast(l.Zxid))
	switch {
	case errors.Is(err, client.ErrNoNode):
		return l, nil
	case err != nil:
		return l, err
	case n.Stat.Czxid == stat.Czxid:
		return leaderOf(n.Data, n.Stat, n.Stat.Mzxid), nil
	}
	return l, nil
}
