package election

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/lock"
)

// Errors, besides those of packages lock and client and of the caller's context.
var (
	// ErrNoLeader is returned by Leader when nobody leads.
	ErrNoLeader = errors.New("election: no leader")
	// ErrRunning is returned by Run while another Run of the same Election is
	// under way: it would be a second candidate in the same process, and its
	// function could start while that of the first has not stopped yet.
	ErrRunning = errors.New("election: already running")
)

// Election is an election by name. It is safe for concurrent use.
type Election struct {
	c       *client.Client
	path    string
	opts    []lock.Option
	running atomic.Bool
}

// New names an election; nothing is sent. The options are those of the lock that
// candidates queue for. Missing parts of path are made as containers.
func New(c *client.Client, path string, opts ...lock.Option) *Election {
	return &Election{c: c, path: path, opts: opts}
}

// Path is the election's path.
func (e *Election) Path() string { return e.path }

// leaderNode is the path of the znode in which the leader makes itself known.
func (e *Election) leaderNode() string { return strings.TrimSuffix(e.path, "/") + "/leader" }

// Campaign blocks until elected and made known. value is what observers see; it
// may be changed with Proclaim.
//
// If ctx ends first it leaves the queue and returns ctx's error. It returns early
// when its place in the queue is lost, with the errors of lock.Mutex.Acquire. It
// leads in the client's own session (or that of lock.WithSession) and ends with
// it; Run makes itself new ones.
func (e *Election) Campaign(ctx context.Context, value []byte) (*Leadership, error) {
	h, err := lock.New(e.c, e.path, e.opts...).Acquire(ctx)
	if err != nil {
		return nil, err
	}
	l, err := e.lead(ctx, h, value)
	if err != nil {
		_ = h.Release(ctx) // why it does not lead says more
		return nil, err
	}
	return l, nil
}

// Leader reads who leads at the moment. If nobody does the error is ErrNoLeader.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	n, err := e.c.Get(ctx, e.leaderNode())
	if errors.Is(err, client.ErrNoNode) {
		return Leader{}, fmt.Errorf("%w: %s", ErrNoLeader, e.path)
	}
	if err != nil {
		return Leader{}, err
	}
	l := leaderOf(n.Data, n.Stat, n.Stat.Mzxid)
	if l.None() || l.Node == "" {
		return Leader{}, fmt.Errorf("%w: %s", ErrNoLeader, e.path)
	}
	// Its queue entry may have been deleted before it heard of that.
	st, ok, err := e.c.Exists(ctx, l.Node)
	if err != nil {
		return Leader{}, err
	}
	if !ok || st.EphemeralOwner != l.Session {
		return Leader{}, fmt.Errorf("%w: %s", ErrNoLeader, e.path)
	}
	return l, nil
}

// Candidates shows the queue: the leader in Holders, the others in Waiters, also
// those of ZooKeeper clients. It reads the whole queue.
func (e *Election) Candidates(ctx context.Context) (lock.Info, error) {
	return lock.New(e.c, e.path, e.opts...).Inspect(ctx)
}
