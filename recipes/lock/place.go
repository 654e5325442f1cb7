package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/internal/settle"
)

// maxParents bounds how often the lock's folder is made again because it was
// reaped between its making and ours.
const maxParents = 10

// spot is one place in the queue: a queue entry of our own.
type spot struct {
	f      *folder
	role   role
	opts   options
	card   card
	entry  settle.Node
	handle *Handle
}

// newSpot is the place behind an entry that was just made. It has no handle yet.
func newSpot(f *folder, r role, opts options, c card, made client.OpResult) *spot {
	return &spot{f: f, role: r, opts: opts, card: c, entry: settle.NodeOf(made)}
}

// name is that of the entry, in the lock's folder.
func (p *spot) name() string { return strings.TrimPrefix(p.entry.Path, p.f.path+"/") }

// newEntry is the operation that puts an entry at the end of the queue.
func (f *folder) newEntry(r role, opts options, c card) client.Op {
	return client.OpCreate(f.path+"/"+settle.Name(string(r)), c.encode(), opts.entry()...)
}

// join puts a new entry at the end of the queue. If ctx ends while it is not
// known whether the entry was made, that is found out in the background and the
// entry removed.
func (f *folder) join(ctx context.Context, r role) (*spot, error) {
	if err := f.checkChain(ctx); err != nil {
		return nil, err
	}
	opts, err := f.opts.settle(f.c.Session())
	if err != nil {
		return nil, err
	}
	undo := func(made []client.OpResult) <-chan error { return settle.NodeOf(made[0]).Remove(f.c) }
	for range maxParents {
		c := opts.card()
		made, err := settle.Write(ctx, f.c, undo, f.newEntry(r, opts, c))
		if err == nil {
			p := newSpot(f, r, opts, c, made[0])
			p.handle = newHandle(p)
			return p, nil
		}
		if !errors.Is(err, client.ErrNoNode) {
			return nil, f.ended(ctx, err)
		}
		if err := f.makeFolder(ctx); err != nil {
			return nil, f.ended(ctx, err)
		}
	}
	return nil, fmt.Errorf("lock %s: %w: its folder is deleted again and again", f.path, client.ErrNoNode)
}

// ended prefers the end of the context to what it did to a request.
func (f *folder) ended(ctx context.Context, err error) error {
	over := ctx.Err()
	limit := over != nil && errors.Is(context.Cause(ctx), ErrWaitLimit)
	switch {
	case errors.Is(err, ErrWaitLimit), limit && errors.Is(err, over):
		return fmt.Errorf("lock %s: %w after %s", f.path, ErrWaitLimit, f.opts.waitLimit)
	case over != nil && !errors.Is(err, over):
		return errors.Join(over, err)
	default:
		return err
	}
}

// leave gives up the place and returns err, or what made it useless to wait.
func (p *spot) leave(ctx context.Context, err error) error {
	if lost := p.handle.lostError(); lost != nil {
		err = lost
	} else {
		p.handle.hold.Come(ErrReleased, false)
		_ = settle.Await(ctx, p.handle.node().Remove(p.f.c), settle.Grace)
	}
	return p.f.ended(ctx, err)
}

// first returns nil if the place is the first, else a *BusyError.
func (p *spot) first(ctx context.Context) error {
	for {
		at, err := p.look(ctx)
		if err != nil || at.Before == "" {
			return err
		}
		if err := p.f.seenFree(ctx, p.role, p.name()); err != nil {
			return err
		}
		// Meanwhile all that were before it have left, or it has.
	}
}

// look finds the place in the queue, and who is before it that it has to wait
// for. It is read in session order: what is read is not older than our own
// entry, and whoever stands before us was there before it; so who is not there
// has left.
func (p *spot) look(ctx context.Context) (client.Place, error) {
	at, err := p.predecessor(ctx)
	if err != nil && !errors.Is(err, client.ErrNoNode) {
		return client.Place{}, err
	}
	if err != nil || !p.entry.Same(at.Stat) {
		return client.Place{}, p.missing()
	}
	if k := kindOf(at.Before); k != "" && k != p.f.kind {
		return client.Place{}, fmt.Errorf("%w: %s belongs to a %s, and this is a %s", ErrOtherKind, at.Before, k, p.f.kind)
	}
	return at, nil
}

// missing is the error for a place whose entry is not there any more.
func (p *spot) missing() error {
	p.handle.awaitReason()
	return cmp.Or(p.handle.lostError(), ErrReleased)
}

// wait returns when the lock is held: when nobody is before the place any more
// and enter has let it in.
func (p *spot) wait(ctx context.Context, enter admit) error {
	waiting, cancel := p.handle.within(ctx)
	defer cancel()
	waiting, stop := p.refusing(waiting)
	defer stop()
	err := p.untilFirst(waiting)
	if err == nil {
		err = enter(waiting, p, true)
	}
	switch refused := context.Cause(waiting); {
	case err != nil && errors.Is(refused, ErrDeadlock):
		return refused
	case err != nil:
		return err
	default:
		return p.enough(ctx)
	}
}

// untilFirst watches the entry that it has to wait for and looks again when that
// has gone: it may have left from the middle of the queue.
func (p *spot) untilFirst(ctx context.Context) error {
	for {
		at, err := p.look(ctx)
		if err != nil || at.Before == "" {
			return err
		}
		if err := settle.UntilGone(ctx, p.f.c, at.Before); err != nil {
			return err
		}
	}
}

// record writes down, in the entry itself, that it holds the lock. From then on
// the time limit of a waiter is off, and the entry outlives an unclean end of
// its session by the lock-delay. It returns the entry's Stat.
func (p *spot) record(ctx context.Context) (client.Stat, error) {
	c := p.card
	c.Acquired = now()
	done, err := settle.Write(ctx, p.f.c, nil, p.entry.Check(), p.opts.acquired(p.entry.Path, c.encode()))
	if settle.Missing(err) {
		err = p.missing()
	}
	if err != nil {
		return client.Stat{}, err
	}
	p.card = c
	return done[1].Stat, nil
}

// enough returns when enough of the session is left for the lock to be worth
// having.
func (p *spot) enough(ctx context.Context) error {
	s := p.f.c.Session()
	for p.handle.Remaining() <= p.opts.minRemaining {
		t := time.NewTimer(s.Timeout() / 50)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-p.handle.Lost():
		}
		t.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.handle.lostError(); err != nil {
			return err
		}
	}
	return ctx.Err()
}
