package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// rootLife is how long a run's znode stays where the run could not delete it.
	rootLife = 10 * time.Minute
	// sweepGrace is how long the deletion may take.
	sweepGrace = 5 * time.Second
	// maxReaped bounds how often folders are made again that were reaped, being
	// empty, while what goes into them was made.
	maxReaped = 20
)

// makeRoot makes the run's own znode, which stays while it is empty: locks come
// and go below it.
func (s *stage) makeRoot(ctx context.Context) error {
	c, err := s.cluster.dial(ctx, client.WithoutSession())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for range maxReaped {
		err = makeFolder(ctx, c, path.Dir(s.root))
		if err == nil {
			_, err = c.Create(client.WithRequestID(ctx, requestID()), s.root, nil, client.WithTTL(rootLife))
		}
		if !errors.Is(err, client.ErrNoNode) {
			return err
		}
	}
	return fmt.Errorf("make %s: %w", s.root, err)
}

// makeFolder makes a path, all missing parts as containers. One of them may be
// reaped before the next is made, which is ErrNoNode.
func makeFolder(ctx context.Context, c *client.Client, folder string) error {
	for i := 1; i <= len(folder); i++ {
		if i < len(folder) && folder[i] != '/' {
			continue
		}
		part := folder[:i]
		_, err := c.Create(client.WithRequestID(ctx, requestID()), part, nil, client.WithContainer())
		if err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// sweep deletes what this run has left in the tree. What it cannot delete is
// below a name that no other run uses.
func (s *stage) sweep() {
	if s.own != nil || s.cluster.Endpoints == "" {
		return // a cluster of our own goes away as a whole
	}
	ctx, cancel := context.WithTimeout(context.Background(), sweepGrace)
	defer cancel()
	c, err := s.cluster.dial(ctx, client.WithoutSession())
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	var paths []string
	for n, err := range c.Walk(ctx, s.root, client.WithoutData()) {
		if err != nil {
			return
		}
		paths = append(paths, n.Path)
	}
	for i := len(paths) - 1; i >= 0; i-- { // children first
		_ = c.Delete(client.WithRequestID(ctx, requestID()), paths[i], client.AnyVersion) // it may have gone by itself
	}
}

// requestID makes a write outside of a session repeatable when its answer is
// lost.
func requestID() string { return rand.Text() }
