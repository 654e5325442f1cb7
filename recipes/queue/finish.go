package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// Done takes the item out of the queue for good, in one transaction that also
// checks that it is still this taker's: after a loss nothing is changed, and the
// error matches ErrLost. Its context is done before the request is sent. It is
// idempotent. If ctx ends before there is an answer the error matches
// client.ErrUnknownOutcome; the request goes on, and another Done waits for its
// outcome.
func (it *Item) Done(ctx context.Context) error {
	return it.end(ctx, ErrDone, func() error { return it.claim.finish("done", nil) })
}

// Return gives the item back, to where it stood in the queue, so that it comes
// out again: at once, or with a delay, which the cluster keeps, after about that.
// The error matches ErrLost if it was lost before. It is idempotent, and works
// with a ctx that is done: it waits a moment then.
func (it *Item) Return(ctx context.Context, delay time.Duration) error {
	if delay < 0 {
		return fmt.Errorf("queue: %w: negative delay %s", client.ErrBadArguments, delay)
	}
	return it.end(ctx, ErrReturned, func() error { return it.claim.giveBack(delay) })
}

// bury moves an item that was given out too often to the dead ones.
func (it *Item) bury(ctx context.Context) error {
	c, dead := it.claim, it.claim.q.at(deadFolder)+"/"+it.claim.item.name.text
	move := func(to string) error {
		return c.finish("dead", []string{deadFolder}, client.OpCreate(to, it.Data))
	}
	err := it.end(ctx, ErrDone, func() error {
		err := move(dead)
		if errors.Is(err, client.ErrNodeExists) {
			// The folder of items was made anew since, and an item with the same
			// key has got the same number. No other item has this czxid.
			err = move(dead + "-" + strconv.FormatUint(uint64(c.item.czxid), 10))
		}
		return err
	})
	if errors.Is(err, ErrLost) {
		return nil // another taker will do it
	}
	return err
}

// end makes one of the requests that end an item, once, and waits for its outcome.
func (it *Item) end(ctx context.Context, how error, request func() error) error {
	over := it.hold.Over()
	it.mu.Lock()
	switch {
	case it.finish == nil && errors.Is(over, ErrLost):
		defer it.mu.Unlock()
		return over
	case it.finish == nil:
		it.finish = how
		it.mu.Unlock()
		it.hold.Come(how, false)
		go func() { // ends with the outcome, at the latest with the session
			it.result = it.outcome(request())
			close(it.finished)
		}()
	default: // it was called before
		first := it.finish
		it.mu.Unlock()
		if err := it.await(ctx); err != nil || errors.Is(first, how) {
			return err
		}
		return first
	}
	return it.await(ctx)
}

// await waits for the outcome as long as ctx lasts, and a little longer.
func (it *Item) await(ctx context.Context) error {
	select {
	case <-it.finished:
		return it.result
	case <-ctx.Done():
	}
	t := time.NewTimer(settle.Grace)
	defer t.Stop()
	select {
	case <-it.finished:
		return it.result
	case <-t.C:
		return fmt.Errorf("queue %s: item %s: %w, %w: the request goes on", it.claim.q.path, it.ID, ctx.Err(), client.ErrUnknownOutcome)
	}
}

// outcome says what the outcome of the request means for the item.
func (it *Item) outcome(err error) error {
	switch {
	case err == nil, errors.Is(err, client.ErrUnknownOutcome):
		return err
	case errors.Is(err, errClaimLost):
		return it.lostBy(ErrRemoved)
	case it.hold.SessionOver():
		return it.lostBy(context.Cause(it.hold.Session().Context()))
	default: // it cannot be done as it should; others may try
		it.claim.abandon()
		return err
	}
}

// errClaimLost says that the claim, or what was claimed, was not there any more.
var errClaimLost = errors.New("queue: no claim")

// write does operations of which the first is about the claim. If they were not
// done because something else was not as it should be, again is true, and at is
// which of them it was about.
func (c *claim) write(ops ...client.Op) (at int, again bool, err error) {
	_, err = c.q.c.WriteSettled(context.Background(), ops...)
	if !refused(err) {
		return 0, false, err
	}
	var e *client.Error
	if errors.As(err, &e) && e.Index > 0 {
		return e.Index, true, err
	}
	return 0, false, errClaimLost
}

// finish deletes claim and item, and turns the key, if there is one, into one that
// is remembered for the retention. more are further operations, which need the
// folders.
func (c *claim) finish(state string, folders []string, more ...client.Op) error {
	q := c.q
	key := q.at(keysFolder) + "/" + c.item.name.id
	keyed, forget, keyAt := c.item.name.keyed(), true, 2
	if keyed {
		folders = append(folders, keysFolder)
	}
	for range maxParents {
		ops := []client.Op{c.own().Delete(), client.OpDeleteNode(c.itemNode(), c.item.czxid, 0)}
		if keyed && forget {
			ops = append(ops, client.OpDelete(key, client.AnyVersion))
		}
		if keyed {
			ops = append(ops, client.OpCreate(key, []byte(state), client.WithTTL(ttl(q.opts.retention))))
		}
		at, again, err := c.write(append(ops, more...)...)
		switch {
		case err == nil || !again:
			return err
		case at == 1: // somebody has deleted the item under its taker
			c.abandon()
			return errClaimLost
		case keyed && at == keyAt: // somebody has deleted the key meanwhile, or put it there
			forget = !forget
		case errors.Is(err, client.ErrNodeExists): // what more there is to make
			return err
		}
		if err := q.folders(context.Background(), folders...); err != nil {
			return err
		}
	}
	return q.noFolder()
}

// giveBack deletes the claim. With a delay, a znode with a time limit takes its
// place.
func (c *claim) giveBack(delay time.Duration) error {
	ops := []client.Op{c.own().Delete()}
	if delay > 0 {
		ops = append(ops, client.OpCreate(c.node(), []byte("held back"), client.WithTTL(ttl(delay))))
	}
	_, _, err := c.write(ops...)
	return err
}
