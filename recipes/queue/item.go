package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
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

	claim   *claim
	session *client.Session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stop    func() bool // of the wait for the session's end

	// mu guards the fields below.
	mu       sync.Mutex
	timer    *time.Timer
	over     error         // not nil once lost, done or returned: the cause of ctx
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
		claim:      c, session: c.q.c.Session(), finished: make(chan struct{}),
	}
	base := fence.NewContext(context.Background(), fence.Grant{Lock: c.q.fullPath(c.itemNode()), Token: it.Token})
	it.ctx, it.cancel = context.WithCancelCause(base)
	it.mu.Lock() // the session may be over already
	it.stop = context.AfterFunc(it.session.Context(), func() { it.lose(context.Cause(it.session.Context())) })
	it.timer = time.AfterFunc(it.nextLook(), it.look)
	it.mu.Unlock()
	go it.watchClaim()
	return it
}

// Context is a child of nothing. It is done when the claim is lost, and when the
// item is done or returned; context.Cause is then a *LostError, ErrDone or
// ErrReturned. It is done by this client's own clock a tenth of the session's
// timeout before the earliest moment at which silence can give the item to
// another. It carries the token for [fence.FromContext].
func (it *Item) Context() context.Context { return checkedContext{it.ctx, it} }

// checkedContext looks at the clock whenever it is asked, so that the first
// question after a pause of the process gets the right answer.
type checkedContext struct {
	context.Context
	it *Item
}

func (c checkedContext) Done() <-chan struct{} {
	c.it.check()
	return c.Context.Done()
}

func (c checkedContext) Err() error {
	c.it.check()
	return c.Context.Err()
}

// marginPart of the session's timeout is the safety margin.
const marginPart = 10

// remaining is the time until the claim counts as lost if nothing is heard from
// the cluster any more.
func (it *Item) remaining() time.Duration {
	s := it.session
	return s.DeadlineAt() - s.Timeout()/marginPart - s.Now()
}

// check makes the item lost if its time is over. A claim that is given up while
// the session may still come back is deleted when the margin is over: the work
// has that long to stop.
func (it *Item) check() {
	if it.session.Context().Err() != nil {
		it.lose(context.Cause(it.session.Context()))
		return
	}
	if it.remaining() <= 0 && it.lose(ErrMargin) {
		time.AfterFunc(it.session.Timeout()/marginPart, it.claim.abandon)
	}
}

// look is run by the timer.
func (it *Item) look() {
	it.check()
	it.mu.Lock()
	defer it.mu.Unlock()
	if it.over == nil {
		it.timer.Reset(it.nextLook())
	}
}

// nextLook is the time to the next look at the clock. Timers stand still while the
// machine sleeps, so it is not simply what remains.
func (it *Item) nextLook() time.Duration {
	return max(time.Millisecond, min(it.remaining(), it.session.Timeout()/4))
}

func (it *Item) lostBy(reason error) *LostError {
	return &LostError{Queue: it.claim.q.path, ID: it.ID, Token: it.Token, Reason: reason}
}

// lose makes the item lost. It returns false if it was over.
func (it *Item) lose(reason error) bool { return it.drop(it.lostBy(reason)) }

// drop ends the item with a cause. It returns false if it was over.
func (it *Item) drop(cause error) bool {
	it.mu.Lock()
	if it.over != nil {
		it.mu.Unlock()
		return false
	}
	it.over = cause
	it.timer.Stop()
	it.mu.Unlock()
	it.cancel(cause)
	it.stop()
	return true
}

// watchClaim tells of the end of the claim. It ends with the item.
func (it *Item) watchClaim() {
	c := it.claim
	for ev, err := range c.q.c.Watch(it.ctx, c.node(), client.Since(c.stat.Czxid)) {
		switch {
		case it.ctx.Err() != nil:
			return
		case err != nil:
			it.check()
			if it.lose(err) { // who cannot be told of its end must not rely on it
				c.abandon()
			}
			return
		case ev.Type == client.EventDeleted:
			it.lose(it.removed())
			return
		case ev.Type == client.EventResync:
			st, ok, err := c.q.c.Exists(it.ctx, c.node(), client.Mode(client.Linearizable))
			if err == nil && (!ok || !c.own().Same(st)) {
				it.lose(it.removed())
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
	t := time.NewTimer(reasonWait)
	defer t.Stop()
	select {
	case <-it.session.Context().Done():
		return context.Cause(it.session.Context())
	case <-it.ctx.Done():
	case <-t.C:
	}
	return ErrRemoved
}
