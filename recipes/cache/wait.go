package cache

import (
	"context"
	"errors"
	"time"

	"github.com/coordd/coord/client"
)

// WaitSynced waits until the copy shows the whole subtree. It does not start Run.
func (c *Cache) WaitSynced(ctx context.Context) error {
	return c.await(ctx, func() bool { return c.synced })
}

// eventGrace is how long an event may take to come before it is asked whether
// there is one to come at all.
const eventGrace = 50 * time.Millisecond

// WaitZxid waits until the copy contains every change of the subtree up to
// transaction z: that of a write (Stat.Mzxid, or Stat.Czxid of a create) or of a
// read (Node.Zxid). For a transaction of the subtree that is when its event has
// come. For another one the Stats of the subtree are read, without data: nothing
// else tells that nothing is missing. It waits for Run to run, and returns ctx's
// error if that ends first.
func (c *Cache) WaitZxid(ctx context.Context, z client.Zxid) error {
	reached := func() bool { return c.synced && c.pos >= z }
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, eventGrace)
	err := c.await(short, reached)
	cancel()
	if err == nil || ctx.Err() != nil {
		return err
	}
	p, err := c.probe(ctx, z)
	if err != nil {
		return err
	}
	if err := c.await(ctx, func() bool { return c.pos >= z || p.met(c.view, c.pos) }); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pos < z { // no change of the subtree is between the two
		c.pos, c.at = z, max(c.at, z)
		c.tell()
	}
	return nil
}

// proof says which state of the subtree contains every change up to the
// transaction that was asked for.
type proof struct {
	newest client.Zxid // the newest change that the Stats show
	absent bool        // there is no root
}

// met says whether a state that is complete up to pos contains all of that.
func (p proof) met(t *tree, pos client.Zxid) bool {
	if p.absent {
		return len(t.nodes) == 0
	}
	return pos >= p.newest
}

// probe reads the Stats of the subtree, none of them older than z. Each change up
// to z shows there, or a later one that has covered it does: a node's data in its
// mzxid, what came or went below it in its pzxid.
func (c *Cache) probe(ctx context.Context, z client.Zxid) (proof, error) {
	var p proof
	for n, err := range c.c.Walk(ctx, c.root, client.WithoutData(), client.Mode(client.ReadSession), client.AtLeast(z)) {
		switch {
		case errors.Is(err, client.ErrNoNode):
			return proof{absent: true}, nil
		case err != nil:
			return proof{}, err
		}
		if !n.Denied { // what may not be read is not in the copy
			p.newest = max(p.newest, n.Stat.Mzxid, n.Stat.Pzxid)
		}
	}
	return p, nil
}
