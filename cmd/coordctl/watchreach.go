package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/coordd/coord/client"
)

// reach finds out beside a watch whether the cluster serves at all: no change is
// news only if there could have been one.
type reach struct {
	served atomic.Bool
	wg     sync.WaitGroup
}

// newReach asks once, for as long as ctx lasts.
func newReach(ctx context.Context, c *client.Client) *reach {
	r := new(reach)
	r.wg.Go(func() {
		if _, err := c.Sync(ctx); err == nil {
			r.served.Store(true)
		}
	})
	return r
}

// failed is called after the end of ctx. If that was the time limit of the watch
// and the cluster has never served until then, it returns the reason.
func (r *reach) failed(ctx context.Context, e *env, watching context.Context, path string) error {
	r.wg.Wait()
	if r.served.Load() || e.stale || !errors.Is(context.Cause(watching), errWatched) {
		return nil
	}
	all, err := e.askAll(ctx, diagnosisReserve(e.timeout))
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].err == nil && all[i].reply.MembersFromLeader {
			return nil // the time was too short to tell
		}
	}
	if err := unreachable("watch", all); err != nil {
		return err
	}
	return explain(&client.Error{Op: "watch", Path: path, Err: client.ErrUnavailable, Index: -1}, all)
}
