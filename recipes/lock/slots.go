package lock

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/settle"
)

// slotsOf is the folder of a semaphore's slots. Its data is a slotsCard; each
// child is a taken slot, named by its number.
func slotsOf(lockPath string) string { return lockPath + "/slots" }

type slotsCard struct {
	Limit int `json:"limit"`
}

func (s *Semaphore) newSlots() client.Op {
	data, _ := json.Marshal(slotsCard{s.n}) // a number: it does not fail
	return client.OpCreate(slotsOf(s.path), data, client.WithContainer())
}

// limitIn reads the limit, 0 if there is none.
func limitIn(data []byte) int {
	var c slotsCard
	if json.Unmarshal(data, &c) != nil || c.Limit < 1 || c.Limit > MaxLimit {
		return 0
	}
	return c.Limit
}

// slotOf reads the name of a slot.
func slotOf(name string) (int, bool) {
	n, err := strconv.Atoi(name)
	return n, err == nil && n >= 0 && strconv.Itoa(n) == name
}

// slotsView is what a semaphore's slots were at one moment.
type slotsView struct {
	node  client.Node // their folder
	first int         // the lowest taken slot, -1 if none is
	free  int         // the lowest free slot, -1 if none is
}

// view reads which slots are taken. While more are taken than the limit allows,
// because it was lowered, none is free.
func (s *Semaphore) view(node client.Node, names []string) slotsView {
	v := slotsView{node: node, first: -1, free: -1}
	taken := make(map[int]bool)
	for _, name := range names {
		if n, ok := slotOf(name); ok {
			taken[n] = true
			if v.first < 0 || n < v.first {
				v.first = n
			}
		}
	}
	for n := range s.n {
		if len(taken) < s.n && !taken[n] {
			v.free = n
			break
		}
	}
	return v
}

// slots reads the slots in session order, so that nothing is missed that was
// there before our entry was made. It makes their folder if there is none.
func (s *Semaphore) slots(ctx context.Context) (slotsView, error) {
	for {
		node, err := s.c.Get(ctx, slotsOf(s.path), client.Mode(client.ReadSession))
		if err == nil {
			if have := limitIn(node.Data); have != s.n {
				return slotsView{}, &LimitError{Path: s.path, Have: have, Want: s.n}
			}
			var names []string
			if names, err = s.c.Children(ctx, slotsOf(s.path), client.Mode(client.ReadSession)); err == nil {
				return s.view(node, names), nil
			}
		}
		if !errors.Is(err, client.ErrNoNode) {
			return slotsView{}, err
		}
		if err := s.makeSlots(ctx); err != nil {
			return slotsView{}, err
		}
	}
}

func (s *Semaphore) makeSlots(ctx context.Context) error {
	_, err := s.c.Txn(ctx, s.newSlots())
	if errors.Is(err, client.ErrNoNode) {
		if err = s.makeFolder(ctx); err == nil {
			_, err = s.c.Txn(ctx, s.newSlots())
		}
	}
	if errors.Is(err, client.ErrNodeExists) || errors.Is(err, client.ErrNoNode) {
		return nil // it, or the folder, came or went meanwhile: look again
	}
	return err
}

// checkLimit returns a *LimitError if the semaphore is in use with another limit,
// and changes the limit of one that is not in use.
func (s *Semaphore) checkLimit(ctx context.Context) error {
	node, err := s.c.Get(ctx, slotsOf(s.path))
	if errors.Is(err, client.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	have := limitIn(node.Data)
	if have == s.n {
		return nil
	}
	names, err := s.c.Children(ctx, s.path)
	if err != nil && !errors.Is(err, client.ErrNoNode) {
		return err
	}
	if node.Stat.NumChildren > 0 || len(queueOf(names)) > 0 {
		return &LimitError{Path: s.path, Have: have, Want: s.n}
	}
	// The delete fails if a slot was taken meanwhile. One who has joined the
	// queue meanwhile, and wants the limit that was, finds another one when it
	// is its turn.
	_, err = s.c.Txn(ctx, client.OpDeleteNode(slotsOf(s.path), node.Stat.Czxid, 0), s.newSlots())
	switch {
	case errors.Is(err, client.ErrNoNode), errors.Is(err, client.ErrBadVersion):
		return nil // another was first: what it made is looked at in the queue
	case errors.Is(err, client.ErrNotEmpty):
		return &LimitError{Path: s.path, Have: have, Want: s.n}
	default:
		return err
	}
}

// enter takes a slot for the first in the queue. With wait it waits for one.
func (s *Semaphore) enter(ctx context.Context, p *spot, wait bool) error {
	for {
		at, err := s.slots(ctx)
		if err != nil {
			return err
		}
		if at.free >= 0 {
			if done, err := s.take(ctx, p, at); done || err != nil {
				return err
			}
			continue // the slots have changed meanwhile
		}
		if !wait {
			return s.full(ctx, at, p.name())
		}
		if err := s.untilChanged(ctx, at.node); err != nil {
			return err
		}
	}
}

// untilChanged returns when slots may have come or gone since they were read.
// Only the first in the queue watches them.
func (s *Semaphore) untilChanged(ctx context.Context, slots client.Node) error {
	for _, err := range s.c.Watch(ctx, slots.Path, client.NodeAndChildren(), client.Since(slots.Zxid)) {
		return err
	}
	return ctx.Err()
}

// take turns the first place in the queue into a slot, in one transaction: the
// slot is taken, the place is free for the next, and the limit is still ours. It
// reports whether it was done; not so, without an error, when the slots were no
// longer as they were seen.
func (s *Semaphore) take(ctx context.Context, p *spot, at slotsView) (bool, error) {
	c := p.card
	c.Acquired = now()
	slot := slotsOf(s.path) + "/" + strconv.Itoa(at.free)
	ops := []client.Op{
		p.entry.Delete(),
		client.OpCheckNode(slotsOf(s.path), at.node.Stat.Czxid, 0),
		client.OpCheck(slotsOf(s.path), at.node.Stat.Version),
		client.OpCreate(slot, c.encode(), p.opts.slot()...),
	}
	undo := func(done []client.OpResult) <-chan error { return settle.NodeOf(done[3]).Remove(s.c) }
	p.handle.ignore() // the entry goes by our own doing
	done, err := settle.Write(ctx, s.c, undo, ops...)
	if err == nil {
		p.card = c
		by := settle.NodeOf(done[3])
		p.handle.granted(by, fence.Token(by.Stat.Czxid))
		p.handle.watch()
		return true, nil
	}
	p.handle.watch()
	var e *client.Error
	if !errors.As(err, &e) || e.Index < 0 || ctx.Err() != nil {
		return false, err
	}
	switch {
	case e.Index == 0 && settle.Missing(err):
		return false, p.missing()
	case settle.Missing(err), errors.Is(err, client.ErrNodeExists):
		return false, nil
	default:
		return false, err
	}
}

// full describes a semaphore without a free slot.
func (s *Semaphore) full(ctx context.Context, at slotsView, own string) error {
	names, err := s.c.Children(ctx, s.path, client.Mode(client.ReadSession))
	if err != nil && !errors.Is(err, client.ErrNoNode) {
		return err
	}
	e := &BusyError{Path: s.path, Limit: s.n, Queue: len(queueOf(names))}
	if own != "" {
		e.Queue--
	}
	if at.first < 0 {
		return e
	}
	e.Holder, err = s.lookAt(ctx, slotsOf(s.path)+"/"+strconv.Itoa(at.first), slotParty)
	if err != nil {
		return err
	}
	return e
}

// others says that others are in the queue.
func (s *Semaphore) others(ctx context.Context) error {
	at, err := s.slots(ctx)
	if err != nil {
		return err
	}
	return s.full(ctx, at, "")
}
