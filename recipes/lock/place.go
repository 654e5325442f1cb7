package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coordd/coord/client"
)

const (
	// releaseGrace is how long the removal of a queue entry is waited for
	// although the caller's context is done. It goes on after that.
	releaseGrace = 5 * time.Second
	// leaveGrace is the same for a contender whose context has ended: it wants
	// to get away.
	leaveGrace = time.Second
	// maxParents bounds how often the lock's folder is made again because it
	// was reaped between its making and ours.
	maxParents = 10
)

// spot is one place in the queue: a queue entry of our own.
type spot struct {
	m      *Mutex
	opts   options
	name   string // of the entry, in the lock's folder
	stat   client.Stat
	handle *Handle
}

func (p *spot) node() string { return p.m.path + "/" + p.name }

// join puts a new entry at the end of the queue. If ctx ends while it is not
// known whether the entry was made, that is found out in the background and the
// entry removed.
func (m *Mutex) join(ctx context.Context) (*spot, error) {
	if err := m.checkChain(ctx); err != nil {
		return nil, err
	}
	opts, err := m.opts.settle(m.c.Session())
	if err != nil {
		return nil, err
	}
	for range maxParents {
		created, err := m.create(ctx, opts)
		if err == nil {
			p := &spot{m: m, opts: opts, name: strings.TrimPrefix(created.Path, m.path+"/"), stat: created.Stat}
			p.handle = newHandle(p)
			return p, nil
		}
		if !errors.Is(err, client.ErrNoNode) {
			return nil, m.joinError(ctx, err)
		}
		if err := m.makeFolder(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("lock %s: %w: its folder is deleted again and again", m.path, client.ErrNoNode)
}

// joinError prefers the context's own error to what it did to a request.
func (m *Mutex) joinError(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		return errors.Join(ctx.Err(), err)
	}
	return err
}

// create makes the queue entry and knows whether it did.
func (m *Mutex) create(ctx context.Context, opts options) (client.OpResult, error) {
	type outcome struct {
		res client.OpResult
		err error
	}
	op := client.OpCreate(m.path+"/"+newPrefix(), opts.card(time.Now()), client.WithEphemeral(), client.WithSequential())
	outcomes := make(chan outcome, 1)
	go func() { // ends when the outcome is certain, at the latest with the session
		results, err := m.c.WriteSettled(ctx, op)
		if err != nil || len(results) == 0 {
			outcomes <- outcome{err: err}
			return
		}
		outcomes <- outcome{res: results[0]}
	}()
	grace := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leaveGrace, func() { close(grace) }) })
	defer stop()
	select {
	case o := <-outcomes:
		if o.err == nil && ctx.Err() != nil {
			_, _ = settled(m.remove(o.res.Path, o.res.Stat), leaveGrace)
			return o.res, ctx.Err()
		}
		return o.res, o.err
	case <-grace:
		go func() {
			if o := <-outcomes; o.err == nil {
				m.remove(o.res.Path, o.res.Stat)
			}
		}()
		return client.OpResult{}, ctx.Err()
	}
}

// makeFolder makes the lock's path, all missing parts as containers.
func (m *Mutex) makeFolder(ctx context.Context) error {
	for i := 1; i <= len(m.path); i++ {
		if i < len(m.path) && m.path[i] != '/' {
			continue
		}
		_, err := m.c.Create(ctx, m.path[:i], nil, client.WithContainer())
		if err != nil && !errors.Is(err, client.ErrNodeExists) {
			return err
		}
	}
	return nil
}

// remove deletes a queue entry, that very one. The request is made in any case,
// as soon as the session can. Its outcome comes over the channel.
func (m *Mutex) remove(node string, stat client.Stat) <-chan error {
	done := make(chan error, 1)
	op := client.OpDeleteNode(node, stat.Czxid, stat.EphemeralOwner)
	if err := m.c.WriteAsync(func(_ []client.OpResult, err error) { done <- err }, op); err != nil {
		done <- err
	}
	return done
}

// settled waits for an outcome, up to the grace. It reports whether there is one.
func settled(done <-chan error, grace time.Duration) (err error, ok bool) {
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case err := <-done:
		return err, true
	case <-t.C:
		return nil, false
	}
}

// leave gives up the place and returns err, or what made it useless to wait.
func (p *spot) leave(ctx context.Context, err error) error {
	if lost := p.handle.lostError(); lost != nil {
		err = lost
	} else {
		p.handle.drop(ErrReleased)
		_, _ = settled(p.m.remove(p.node(), p.stat), leaveGrace)
	}
	return p.m.joinError(ctx, err)
}

// first returns nil entries if the place is the first, else those of all others.
func (p *spot) first(ctx context.Context) ([]entry, error) {
	for {
		at, err := p.look(ctx)
		if err != nil || at.Before == "" {
			return nil, err
		}
		names, err := p.m.c.Children(ctx, p.m.path, client.Mode(client.ReadSession))
		if err != nil && !errors.Is(err, client.ErrNoNode) {
			return nil, err
		}
		q := queueOf(names)
		own := slices.IndexFunc(q, func(e entry) bool { return e.name == p.name })
		if own > 0 {
			return slices.Delete(q, own, own+1), nil
		}
		// Meanwhile all that were before it have left, or it has.
	}
}

// look finds the place in the queue. It is read in session order: what is read
// is not older than our own entry, and whoever stands before us was there before
// it; so who is not there has left.
func (p *spot) look(ctx context.Context) (client.Place, error) {
	at, err := p.m.c.Predecessor(ctx, p.node(), client.Mode(client.ReadSession))
	if err != nil && !errors.Is(err, client.ErrNoNode) {
		return client.Place{}, err
	}
	if err != nil || at.Stat.Czxid != p.stat.Czxid {
		p.handle.awaitReason()
		return client.Place{}, cmp.Or(p.handle.lostError(), ErrReleased)
	}
	return at, nil
}

// wait returns when the place is the first and the lock is held. It watches the
// entry right before and looks again when that has gone: it may have left from
// the middle of the queue.
func (p *spot) wait(ctx context.Context) error {
	waiting, cancel := p.handle.within(ctx)
	defer cancel()
	for {
		at, err := p.look(waiting)
		if err != nil {
			return err
		}
		if at.Before == "" {
			return p.grant(ctx)
		}
		if err := p.untilGone(waiting, at.Before); err != nil {
			return err
		}
	}
}

// untilGone returns nil when the node is not there or its changes may have been
// missed.
func (p *spot) untilGone(ctx context.Context, node string) error {
	for ev, err := range p.m.c.Watch(ctx, node, client.Initial(client.ReadSession)) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case client.EventAbsent, client.EventDeleted, client.EventResync:
			return nil
		default: // it is still there
		}
	}
	return ctx.Err()
}

// grant makes the place the lock's holder, as soon as enough of the session is
// left.
func (p *spot) grant(ctx context.Context) error {
	s := p.m.c.Session()
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
