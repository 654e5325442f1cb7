package cache

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/coordd/coord/client"
)

// Cache is a copy of a subtree. It is safe for concurrent use; it is kept up by
// Run, and empty before.
type Cache struct {
	c    *client.Client
	root string
	opts options
	run  chan struct{} // cap 1: a Run is in it

	// mu guards the fields below.
	//
	// Invariant: view is the subtree as it was at transaction at: every change up
	// to there is in it, and none after. Up to pos the listeners were told, too:
	// pos <= at. Both only rise.
	mu        sync.RWMutex
	view      *tree
	at, pos   client.Zxid
	synced    bool
	following bool          // a Run has a watch that tells it all changes after pos
	heard     time.Time     // when it was last certain to follow
	moved     chan struct{} // closed and replaced when one of the above has changed
}

// New makes an empty copy of the subtree at root; nothing is sent before Run.
func New(c *client.Client, root string, opts ...Option) *Cache {
	o := options{withData: true, keep: func(string) bool { return true }}
	for _, opt := range opts {
		opt(&o)
	}
	return &Cache{c: c, root: root, opts: o, run: make(chan struct{}, 1), view: newTree(), moved: make(chan struct{})}
}

// Root is the path of the subtree.
func (c *Cache) Root() string { return c.root }

// Get returns the node at a path. ok is false if there is none, if a filter has
// left it out, or if nothing was copied yet. The node's Zxid is the transaction
// that the copy is of. Its data must not be modified.
func (c *Cache) Get(path string) (n client.Node, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, ok = c.view.nodes[path]
	if ok {
		n.Zxid = c.at
	}
	return n, ok
}

// All returns the nodes at a path and below it as one state, parents before
// children and siblings in ascending order; "" stands for the root of the copy.
// It looks at every node.
func (c *Cache) All(path string) []client.Node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := c.view.below(path)
	for i := range out {
		out[i].Zxid = c.at
	}
	return out
}

// Children returns the names of a node's children, in ascending order.
func (c *Cache) Children(path string) []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	names := make([]string, 0, len(c.view.kids[path]))
	for name := range c.view.kids[path] {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Len is the number of nodes.
func (c *Cache) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.view.nodes)
}

// Bytes is about the memory of the copy, as MaxBytes counts it.
func (c *Cache) Bytes() int64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.view.bytes
}

// Zxid is the transaction that the copy is of; 0 before it is synced. It only
// rises, and only as far as the subtree is known to have changed, or not to have.
func (c *Cache) Zxid() client.Zxid {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.at
}

// Forever is what Stale says of a cache that was never synced.
const Forever time.Duration = 1<<63 - 1

// Stale is 0 while the copy follows the cluster, as far as this process knows:
// then it is behind by no more than events take to come. Else it is the time
// since that was last so: since the cluster was last heard, or since Run ended.
// A connection that has died in silence is noticed only when the session's
// heartbeats are not answered any more.
func (c *Cache) Stale() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.synced {
		return Forever
	}
	if c.following && c.connected() {
		c.heard = time.Now()
		return 0
	}
	since := time.Since(c.heard)
	if ack, ok := c.answered(); ok && c.following {
		since = min(since, ack)
	}
	return max(since, 1)
}

// connected says whether a server serves the session at this moment. What has no
// session is served request by request.
func (c *Cache) connected() bool {
	s := c.c.Session()
	return s.State() == client.Connected || s.Timeout() == 0
}

// answered is the time since the newest answered heartbeat was sent.
func (c *Cache) answered() (time.Duration, bool) {
	s := c.c.Session()
	if s.Timeout() == 0 {
		return 0, false
	}
	return s.Timeout() - (s.DeadlineAt() - s.Now()), true
}

// tell wakes everybody who waits for the copy to move. mu is held.
func (c *Cache) tell() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// await waits until ok, which is asked with mu held, is true.
func (c *Cache) await(ctx context.Context, ok func() bool) error {
	for {
		c.mu.RLock()
		done, moved := ok(), c.moved
		c.mu.RUnlock()
		if done {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
