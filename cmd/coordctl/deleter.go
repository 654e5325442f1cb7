package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// deletesAtOnce bounds how many deletes are under way.
	deletesAtOnce = 512
	// maxPasses bounds how often deleteall looks again for znodes that were
	// created meanwhile.
	maxPasses = 8
	// progressEvery is how often a long deletion says how far it is.
	progressEvery = 10 * time.Second
)

// deleter deletes a subtree over a session: its writes are done in the order in
// which they are made, so that children go before their parents although no
// answer is waited for.
type deleter struct {
	*env
	client  *client.Client
	root    string
	look    func() // for tests: called when a pass has looked and not yet deleted
	deleted atomic.Int64

	mu     sync.Mutex
	failed error // the first error that no further pass can cure
	busy   bool  // a node had children again, or was changed
}

// leftError says what a deletion could not delete. Exit code 4.
type leftError struct {
	root    string
	left    int64
	deleted int64
}

func (e *leftError) Error() string {
	return fmt.Sprintf("deleteall %s: %s left after %d passes, as others go on creating them (%d deleted)",
		e.root, plural(int(e.left), "znode"), maxPasses, e.deleted)
}

// run deletes in passes until nothing is left.
func (d *deleter) run(ctx context.Context) error {
	for range maxPasses {
		if err := d.pass(ctx); err != nil {
			if n := d.deleted.Load(); n > 0 {
				d.note("%s were deleted before this", plural(int(n), "znode"))
			}
			return err
		}
		if !d.busy {
			return nil
		}
		d.busy = false
	}
	s := survey{}
	if err := s.look(ctx, d.client, d.root, func() {}); err != nil {
		return err
	}
	return &codedError{exitPrecondition, &leftError{d.root, s.znodes, d.deleted.Load()}}
}

// pass deletes what there is now. It keeps no more than the way down to the
// present node: nodes come parents first, and one is deleted when the next is
// not below it.
func (d *deleter) pass(ctx context.Context) error {
	pace := d.pace(ctx)
	defer pace.stop()
	slots := make(chan struct{}, deletesAtOnce)
	said := time.Now()
	var open []string
	for n, err := range d.client.Walk(pace.ctx, d.root, client.WithoutData()) {
		if errors.Is(err, client.ErrNoNode) && d.deleted.Load() > 0 {
			break // all gone already
		}
		if err != nil {
			return pace.result(err)
		}
		pace.answered()
		for len(open) > 0 && !strings.HasPrefix(n.Path, open[len(open)-1]+"/") {
			if err := d.delete(pace, slots, open[len(open)-1]); err != nil {
				return err
			}
			open = open[:len(open)-1]
		}
		open = append(open, n.Path)
		if time.Since(said) > progressEvery {
			said = time.Now()
			d.note("%d deleted", d.deleted.Load())
		}
	}
	if d.look != nil {
		d.look()
	}
	for i := len(open) - 1; i >= 0; i-- {
		if err := d.delete(pace, slots, open[i]); err != nil {
			return err
		}
	}
	for range cap(slots) { // until all are answered
		if err := d.slot(pace, slots); err != nil {
			return err
		}
	}
	return d.failure()
}

// slot waits for room for one more delete.
func (d *deleter) slot(pace *pace, slots chan struct{}) error {
	select {
	case slots <- struct{}{}:
		return nil
	case <-pace.ctx.Done():
		return pace.result(pace.ctx.Err())
	}
}

func (d *deleter) delete(pace *pace, slots chan struct{}, path string) error {
	if err := d.failure(); err != nil {
		return err
	}
	if err := d.slot(pace, slots); err != nil {
		return err
	}
	return d.client.WriteAsync(func(_ []client.OpResult, err error) {
		pace.answered()
		d.took(err)
		<-slots
	}, client.OpDelete(path, client.AnyVersion))
}

func (d *deleter) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

// took takes note of what became of one delete.
func (d *deleter) took(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err == nil:
		d.deleted.Add(1)
	case errors.Is(err, client.ErrNoNode):
		// Somebody else has deleted it.
	case errors.Is(err, client.ErrNotEmpty):
		d.busy = true
	case d.failed == nil:
		d.failed = err
	}
}
