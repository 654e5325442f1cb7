package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/settle"
)

// join puts an entry at the end of each queue, all in one transaction. If ctx
// ends while it is not known whether they were made, that is found out in the
// background and they are removed.
func (m *Multi) join(ctx context.Context) (*MultiHandle, error) {
	if err := m.check(ctx); err != nil {
		return nil, err
	}
	one := &m.locks[0].folder // all have the same options and the same session
	opts, err := one.opts.settle(m.c.Session())
	if err != nil {
		return nil, err
	}
	undo := func(made []client.OpResult) <-chan error { return removeAll(m.c, nodesOf(made)) }
	for range maxParents {
		c := opts.card()
		made, err := settle.Write(ctx, m.c, undo, m.newEntries(opts, c)...)
		if err == nil {
			return newMultiHandle(m, opts, c, made), nil
		}
		if !errors.Is(err, client.ErrNoNode) {
			return nil, one.ended(ctx, err)
		}
		for _, l := range m.locks {
			if err := l.makeFolder(ctx); err != nil {
				return nil, one.ended(ctx, err)
			}
		}
	}
	return nil, fmt.Errorf("locks %s: %w: a folder is deleted again and again", strings.Join(m.Paths(), " "), client.ErrNoNode)
}

// newEntries are the operations that put an entry at the end of each queue.
func (m *Multi) newEntries(opts options, c card) []client.Op {
	ops := make([]client.Op, len(m.locks))
	for i, l := range m.locks {
		ops[i] = l.newEntry(roleLock, opts, c)
	}
	return ops
}

func nodesOf(made []client.OpResult) []settle.Node {
	out := make([]settle.Node, len(made))
	for i, r := range made {
		out[i] = settle.NodeOf(r)
	}
	return out
}

// each runs f for every lock at the same time, with a context that is done when
// one of the locks is lost or one f has failed, and returns the first error.
func (h *MultiHandle) each(ctx context.Context, f func(ctx context.Context, p *spot) error) error {
	ctx, cancel := h.within(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, l := range h.handles {
		wg.Go(func() {
			if err := f(ctx, l.place); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	wg.Wait()
	return first
}

// wait returns when all locks are held.
func (h *MultiHandle) wait(ctx context.Context) error {
	waiting, stop := refusing(ctx, h.refuseDeadlock())
	defer stop()
	err := h.each(waiting, func(ctx context.Context, p *spot) error { return p.untilFirst(ctx) })
	if refused := context.Cause(waiting); err != nil && errors.Is(refused, ErrDeadlock) {
		return refused
	}
	if err != nil {
		return err
	}
	return h.grant(ctx)
}

// claim returns a *BusyError unless all locks are held now.
func (h *MultiHandle) claim(ctx context.Context) error {
	if err := h.each(ctx, func(ctx context.Context, p *spot) error { return p.first(ctx) }); err != nil {
		return err
	}
	return h.grant(ctx)
}

// grant makes the places, which are the first in their queues, the holders. What
// is for a holder alone is written down for all of them in one transaction.
func (h *MultiHandle) grant(ctx context.Context) error {
	one := h.handles[0].place
	if one.opts.lockDelay > 0 || one.opts.waitLimit > 0 {
		if err := h.record(ctx); err != nil {
			return err
		}
	}
	for _, l := range h.handles {
		l.granted(l.place.entry, fence.Token(l.place.entry.Stat.Czxid))
	}
	if err := one.enough(ctx); err != nil {
		return err
	}
	return h.lostError()
}

// record is that of a spot, for all of them.
func (h *MultiHandle) record(ctx context.Context) error {
	var ops []client.Op
	c := h.handles[0].place.card
	c.Acquired = now()
	for _, l := range h.handles {
		ops = append(ops, l.place.entry.Check(), l.place.opts.acquired(l.place.entry.Path, c.encode()))
	}
	_, err := settle.Write(ctx, h.c, nil, ops...)
	var e *client.Error
	switch {
	case err == nil:
		for _, l := range h.handles {
			l.place.card = c
		}
		return nil
	case settle.Missing(err) && errors.As(err, &e) && e.Index >= 0:
		return h.handles[e.Index/2].place.missing()
	default:
		return err
	}
}

// leave gives up all places and returns err, or what made it useless to wait.
func (h *MultiHandle) leave(ctx context.Context, err error) error {
	lost := h.lostError()
	h.finish(lost)
	if left := h.claimed(); !h.handles[0].hold.SessionOver() {
		_ = settle.Await(ctx, removeAll(h.c, left), settle.Grace)
	}
	return h.handles[0].place.f.ended(ctx, cmp.Or(lost, err))
}
