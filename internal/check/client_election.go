package check

import (
	"context"

	"github.com/coordd/coord/recipes/election"
	"github.com/coordd/coord/recipes/lock"
)

// Leading is a leadership, as the history knows it: a lock that is held Alone, with
// values that its holder tells.
type Leading struct {
	*Held
	l *election.Leadership
}

// Campaign records a candidacy. value must be one that nobody else proclaims.
func (c *Client) Campaign(ctx context.Context, e *election.Election, value string) (*Leading, error) {
	r := c.begin(Acquire, e.Path())
	r.As, r.Data = Alone, value
	var l *election.Leadership
	h, err := c.acquire(ctx, r, func(ctx context.Context) (_ *lock.Handle, err error) {
		if l, err = e.Campaign(ctx, []byte(value)); err != nil {
			return nil, err
		}
		return l.Handle, nil
	})
	if err != nil {
		return nil, err
	}
	return &Leading{Held: h, l: l}, nil
}

// Proclaim changes the value that observers see. One call at a time.
func (l *Leading) Proclaim(ctx context.Context, value string) error {
	r := l.record(Proclaim)
	r.Data = value
	err := l.l.Proclaim(ctx, []byte(value))
	r.End, r.Outcome = l.c.h.now(), Done
	if err != nil { // it may have been done before the leader heard that it is none
		r.Outcome, r.Detail = Unknown, err.Error()
	}
	l.c.h.Add(r)
	return err
}

// Resign gives the leadership up. It has ended when it is called.
func (l *Leading) Resign(ctx context.Context) error { return l.giveUp(ctx, l.l.Resign) }

// Observe records who leads until ctx ends or the session. It returns the error that
// it ended with.
func (c *Client) Observe(ctx context.Context, e *election.Election) error {
	r := c.begin(Observing, e.Path())
	r.End = r.Begin
	number := c.h.Add(r)
	defer func() {
		end := c.begin(Unwatch, e.Path())
		end.Watch, end.End = number, end.Begin
		c.h.Add(end)
	}()
	for l, err := range e.Observe(ctx) {
		if err != nil {
			return err
		}
		o := c.begin(Observed, e.Path())
		o.Watch, o.Missed, o.Zxid = number, l.Missed, l.Zxid
		c.told(&o, l)
	}
	return nil
}

// Leader asks who leads; election.ErrNoLeader is an answer, too.
func (c *Client) Leader(ctx context.Context, e *election.Election) error {
	r := c.begin(LeaderRead, e.Path())
	l, err := e.Leader(ctx)
	if err != nil {
		return err
	}
	c.told(&r, l)
	return nil
}

// told records who was said to lead.
func (c *Client) told(r *Record, l election.Leader) {
	r.End, r.Outcome = c.h.now(), Done
	r.Found, r.Token, r.Data, r.Stat.Owner = !l.None(), uint64(l.Token), string(l.Value), l.Session
	c.h.Add(*r)
}
