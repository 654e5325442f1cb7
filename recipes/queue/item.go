package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/hold"
)

// Item is an item that this process has claimed. Its methods may be called from
// any goroutine; its fields must not be modified.
type Item struct {
	ID       string
	Key      string // it was put with, "" for none
	Data     []byte
	Priority int
	// Deliveries is how often the item was given out, this time included. It is
	// counted when an item is claimed, whatever becomes of the claimer.
	Deliveries int
	// Token is the fencing token of this delivery, larger than that of every
	// earlier delivery of the item. Tokens of different items cannot be compared.
	Token fence.Token

	claim *claim
	hold  *hold.Hold

	// mu guards the fields below.
	mu       sync.Mutex
	finish   error         // ErrDone or ErrReturned once one of the two was called
	finished chan struct{} // closed when result is set
	result   error
}

// open reads the item that was claimed.
func (c *claim) open(ctx context.Context) (*Item, error) {
	n, err := c.q.c.Get(ctx, c.itemNode(), client.Mode(client.ReadSession))
	if err != nil {
		c.abandon()
		if errors.Is(err, client.ErrNoNode) { // claim and item were deleted by somebody
			return nil, errAgain
		}
		return nil, err
	}
	return c.newItem(n), nil
}

// newItem begins to watch over the claim of an item.
func (c *claim) newItem(n client.Node) *Item {
	name := c.item.name
	it := &Item{
		ID: name.id, Key: name.key(), Data: n.Data, Priority: name.priority, Token: fence.Token(c.stat.Czxid),
		Deliveries: int((n.Stat.Cversion + int64(n.Stat.NumChildren)) / 2), // so many children were made
		claim:      c, finished: make(chan struct{}),
	}
	base := fence.NewContext(context.Background(), fence.Grant{Lock: c.q.fullPath(c.itemNode()), Token: it.Token})
	s := c.q.c.Session()
	margin := s.Timeout() / marginPart
	// A claim that is given up while the session may still come back is deleted
	// when the margin is over: the work has that long to stop.
	late := func() { time.AfterFunc(margin, c.abandon) }
	it.hold = hold.New(base, s, margin, it.lostBy, late)
	go it.watchClaim()
	return it
}

// Context is a child of nothing. It is done when the claim is lost, and when the
// item is done or returned; context.Cause is then a *LostError, ErrDone or
// ErrReturned. It is done by this client's own clock a tenth of the session's
// timeout before the earliest moment at which silence can give the item to
// another. It carries the token for [fence.FromContext].
func (it *Item) Context() context.Context {
	return hold.Checked(it.hold.Context(), it.hold.Check)
}

// marginPart of the session's timeout is the safety margin.
const marginPart = 10

func (it *Item) lostBy(reason error) error {
	return &LostError{Queue: it.claim.q.path, ID: it.ID, Token: it.Token, Reason: reason}
}

// watchClaim tells of the end of the claim. It ends with the item.
func (it *Item) watchClaim() {
	c, ctx := it.claim, it.hold.Context()
	for ev, err := range c.q.c.Watch(ctx, c.node(), client.Since(c.stat.Czxid)) {
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			it.hold.Check()
			if it.hold.Lose(err) { // who cannot be told of its end must not rely on it
				c.abandon()
			}
			return
		case ev.Type == client.EventDeleted:
			it.hold.Lose(it.removed())
			return
		case ev.Type == client.EventResync:
			st, ok, err := c.q.c.Exists(ctx, c.node(), client.Mode(client.Linearizable))
			if err == nil && (!ok || !c.own().Same(st)) {
				it.hold.Lose(it.removed())
				return
			}
		}
	}
}

// reasonWait is how long the end of the session is waited for when its claim has
// gone: often that is seen first.
const reasonWait = time.Second

// removed is why the claim is not there any more.
func (it *Item) removed() error {
	session := it.hold.Session().Context()
	t := time.NewTimer(reasonWait)
	defer t.Stop()
	select {
	case <-session.Done():
		return context.Cause(session)
	case <-it.hold.Context().Done():
	case <-t.C:
	}
	return ErrRemoved
}
