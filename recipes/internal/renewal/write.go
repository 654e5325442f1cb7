package renewal

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/client"
)

// grace is how long the outcome of a write is waited for after its context has
// ended. It is found out in any case.
const grace = time.Second

// Write does ops in one transaction and knows whether it did. If ctx ends first
// the write is withdrawn, or undone with undo if it had been done already; if
// that takes long Write returns and the rest happens in the background, at the
// latest until the session is over. undo must not block.
func Write(ctx context.Context, c *client.Client, undo func([]client.OpResult), ops ...client.Op) ([]client.OpResult, error) {
	type outcome struct {
		results []client.OpResult
		err     error
	}
	outcomes := make(chan outcome, 1)
	go func() { // ends when the outcome is certain, at the latest with the session
		results, err := c.WriteSettled(ctx, ops...)
		outcomes <- outcome{results, err}
	}()
	late := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })
	defer stop()
	select {
	case o := <-outcomes:
		if o.err == nil && ctx.Err() != nil {
			undo(o.results)
			return nil, ctx.Err()
		}
		return o.results, o.err
	case <-late:
		go func() {
			if o := <-outcomes; o.err == nil {
				undo(o.results)
			}
		}()
		return nil, ctx.Err()
	}
}

// Remove deletes the node that transaction czxid has created for session owner,
// if it is still there, as soon as the session can. The outcome comes over the
// channel.
func Remove(c *client.Client, node string, czxid client.Zxid, owner client.SessionID) <-chan error {
	done := make(chan error, 1)
	op := client.OpDeleteNode(node, czxid, owner)
	if err := c.WriteAsync(func(_ []client.OpResult, err error) { done <- err }, op); err != nil {
		done <- err
	}
	return done
}

// Gone says whether a removal that ended with err leaves the node not there.
func Gone(err error) bool {
	return err == nil || errors.Is(err, client.ErrNoNode) || errors.Is(err, client.ErrBadVersion)
}

// MakeFolder makes path, all missing parts as containers.
func MakeFolder(ctx context.Context, c *client.Client, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := c.Create(ctx, path[:i], nil, client.WithContainer())
		if err != nil && !errors.Is(err, client.ErrNodeExists) {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	return nil
}
