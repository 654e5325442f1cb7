package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Take waits for an item and claims it. Takers get items in the order in which
// they came, of what is free at that time the first by priority and then by age.
// The claim lasts until Done or Return, and as long as the session: then the item
// comes out again.
//
// If ctx ends first, Take returns its error and leaves nothing behind; an item
// that was claimed at that moment comes out again, with one delivery more.
func (q *Queue) Take(ctx context.Context) (*Item, error) {
	if q.c.Session().Timeout() <= 0 {
		return nil, fmt.Errorf("queue %s: %w: the client has no session", q.path, client.ErrBadArguments)
	}
	for {
		it, err := q.takeOne(ctx)
		switch {
		case errors.Is(err, errAgain):
		case err != nil:
			return nil, err
		case q.opts.maxDeliveries > 0 && it.Deliveries > q.opts.maxDeliveries:
			if err := it.bury(ctx); err != nil {
				return nil, err
			}
		default:
			return it, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// takeOne stands in the line once.
func (q *Queue) takeOne(ctx context.Context) (*Item, error) {
	p, err := q.join(ctx)
	if err != nil {
		return nil, err
	}
	defer p.leave(ctx)
	if err := p.first(ctx); err != nil {
		return nil, err
	}
	var c *claim
	err = q.index.follow(ctx, func(ctx context.Context) error {
		c, err = p.claim(ctx)
		return err
	})
	if err != nil {
		c.abandon()
		return nil, err
	}
	return c.open(ctx)
}

// claim is the claim of one item: an ephemeral znode with the item's name.
type claim struct {
	q    *Queue
	item indexed
	stat client.Stat // of the claim
}

func (c *claim) itemNode() string { return c.q.at(itemsFolder) + "/" + c.item.name.text }
func (c *claim) folder() string   { return c.q.at(itemsFolder) + "/" + claimsFolder }
func (c *claim) node() string     { return c.folder() + "/" + c.item.name.text }

// own is this very claim, once it is made.
func (c *claim) own() settle.Node { return settle.Node{Path: c.node(), Stat: c.stat} }

// abandon has the claim deleted as soon as the session can. A nil claim is none.
func (c *claim) abandon() {
	if c != nil {
		c.own().Remove(c.q.c)
	}
}

// claim claims the first item that is free, and waits for one if there is none.
func (p *place) claim(ctx context.Context) (*claim, error) {
	x := p.q.index
	if err := x.catchUp(ctx); err != nil {
		return nil, err
	}
	for {
		e := x.first()
		if e == nil {
			select {
			case <-x.wake:
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c := &claim{q: p.q, item: *e}
		ok, err := p.try(ctx, c)
		if err != nil {
			return nil, err
		}
		if ok {
			return c, nil
		}
		if err := rest(ctx); err != nil {
			return nil, err
		}
	}
}

// rest waits for a moment after a claim in vain, so that one that is in vain again
// and again, for a reason that is not foreseen, costs little.
func rest(ctx context.Context) error {
	t := time.NewTimer(5 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try claims one item and leaves the line in the same transaction. It returns
// false if that was not possible because things are not as they were known.
//
// The transaction also makes a child of the item and deletes it again: that leaves
// nothing but its trace in the item's cversion, and so counts the delivery.
func (p *place) try(ctx context.Context, c *claim) (bool, error) {
	delivery := c.itemNode() + "/" + deliveryName + newID()
	ops := []client.Op{
		client.OpCreate(c.node(), settle.Card(p.q.c), client.WithEphemeral()),
		client.OpCheckNode(c.itemNode(), c.item.czxid, 0),
		client.OpCreate(delivery, nil), client.OpDelete(delivery, client.AnyVersion),
	}
	line := len(ops)
	if !p.gone {
		ops = append(ops, p.own.Delete())
	}
	undo := func(made []client.OpResult) <-chan error { return settle.NodeOf(made[0]).Remove(p.q.c) }
	made, err := settle.Write(ctx, p.q.c, undo, ops...)
	if err == nil {
		p.gone, c.stat = true, made[0].Stat
		return true, nil
	}
	var e *client.Error
	switch {
	case !refused(err) || !errors.As(err, &e):
		return false, err
	case e.Index == line:
		p.gone = true // somebody has deleted it; the claim does not depend on it
		return false, nil
	case e.Index == 0 && errors.Is(err, client.ErrNoNode):
		return false, settle.Folders(ctx, c.q.c, c.folder())
	}
	return false, p.q.index.catchUp(ctx)
}

// refused says that a transaction was not done because something in the tree was
// not as it should be.
func refused(err error) bool {
	return errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion) || errors.Is(err, client.ErrNodeExists)
}
