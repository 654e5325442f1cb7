package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
)

// HerdOptions are those of [Herd].
type HerdOptions struct {
	Options
	Waiters  int // sessions in line behind the holder, at least one per release
	Releases int // how many handovers are counted
}

// Herd shows what a release costs: so many sessions wait for a lock, which is
// handed on a few times. It returns nil only if each release was told to no
// more than one of them. Its layer is [Predecessor].
func Herd(ctx context.Context, o HerdOptions) error {
	return perform(ctx, "herd", o.Options, func(ctx context.Context, s *stage) error {
		h := herdRun{stage: s, o: o, path: s.root + "/lock", wakeups: newWakeups()}
		ctx, cancel := context.WithCancel(ctx)
		defer h.wg.Wait()
		defer cancel()
		if err := h.gather(ctx); err != nil {
			return err
		}
		woken, err := h.handOn(ctx)
		if err != nil {
			return err
		}
		return h.judge(woken)
	})
}

const (
	herdClients = 8  // connections; a session needs none of its own
	herdAtOnce  = 32 // sessions that something is done with at the same time
)

// herdRun is one run. Contenders run in goroutines of wg.
type herdRun struct {
	*stage
	o       HerdOptions
	path    string
	wakeups *wakeups
	line    chan place // who has got the lock, one at a time
	wg      sync.WaitGroup

	sessions []*client.Session // of all contenders
	watcher  *client.Client
}

// place is the holder of the lock.
type place struct {
	node    string
	token   fence.Token
	release func(context.Context) error
	err     error
}

// gather has a holder take the lock and the others line up behind it.
func (h *herdRun) gather(ctx context.Context) error {
	if err := h.open(ctx); err != nil {
		return err
	}
	h.line = make(chan place, len(h.sessions))
	contend := contendWatchingPredecessor
	if !h.o.has(Predecessor) {
		contend = contendWatchingFolder
	}
	if err := makeFolder(ctx, h.watcher, h.path); err != nil {
		return err
	}
	for _, s := range h.sessions {
		h.wg.Go(func() { h.line <- contend(ctx, s.Client(), h.path) })
	}
	if err := h.length(ctx, len(h.sessions)); err != nil {
		return err
	}
	h.say("herd", "%d sessions wait in line for %s", h.o.Waiters, h.path)
	return nil
}

// open opens one session for each contender.
func (h *herdRun) open(ctx context.Context) error {
	var clients []*client.Client
	for range herdClients {
		c, err := h.dial(ctx, "herd", h.wakeups.option())
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	h.watcher = clients[0]
	h.sessions = make([]*client.Session, h.o.Waiters+1)
	return h.each(func(i int) (err error) {
		h.sessions[i], err = clients[i%herdClients].NewSession(ctx, client.WithSessionTimeout(longSession))
		return err
	})
}

// each calls f for each session, some at once.
func (h *herdRun) each(f func(i int) error) error {
	failures := make([]error, len(h.sessions))
	var wg sync.WaitGroup
	at := make(chan struct{}, herdAtOnce)
	for i := range h.sessions {
		wg.Go(func() {
			at <- struct{}{}
			defer func() { <-at }()
			failures[i] = f(i)
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

// length waits until so many stand in line.
func (h *herdRun) length(ctx context.Context, want int) error {
	for {
		st, _, err := h.watcher.Exists(ctx, h.path)
		if err != nil || int(st.NumChildren) >= want {
			return err
		}
		if err := lookAgain(ctx); err != nil {
			return fmt.Errorf("%d of %d contenders are in line: %w", st.NumChildren, want, err)
		}
	}
}

// handOn passes the lock on and returns how many others each release has woken.
func (h *herdRun) handOn(ctx context.Context) (woken []int, err error) {
	holder, err := h.next(ctx)
	for i := 0; err == nil && i < h.o.Releases; i++ {
		if err := h.watched(ctx, holder.node); err != nil {
			return nil, err
		}
		if err := holder.release(ctx); err != nil {
			return nil, err
		}
		before := holder.token
		if holder, err = h.next(ctx); err != nil {
			return nil, err
		}
		n, err := h.count(ctx)
		if err != nil {
			return nil, err
		}
		h.say("lock", "token %s is released, %s is next: %d of %d waiters woken", before, holder.token, n, h.o.Waiters-i)
		woken = append(woken, n)
	}
	return woken, err
}

func (h *herdRun) next(ctx context.Context) (place, error) {
	select {
	case p := <-h.line:
		return p, p.err
	case <-ctx.Done():
		return place{}, context.Cause(ctx)
	}
}

// watched waits until whoever is to be woken by the release of node is watching.
func (h *herdRun) watched(ctx context.Context, node string) error {
	want := 1
	if !h.o.has(Predecessor) {
		node, want = h.path, h.o.Waiters
	}
	for h.wakeups.watchers(node) < want {
		if err := lookAgain(ctx); err != nil {
			return fmt.Errorf("%d of %d watch %s: %w", h.wakeups.watchers(node), want, node, err)
		}
	}
	return nil
}

// count says how many sessions the last release was told to. A read that shows
// the release comes behind the event of it, if there is one.
func (h *herdRun) count(ctx context.Context) (int, error) {
	st, _, err := h.watcher.Exists(ctx, h.path)
	if err != nil {
		return 0, err
	}
	err = h.each(func(i int) error {
		_, _, err := h.sessions[i].Client().Exists(ctx, h.path, client.Mode(client.ReadSession), client.AtLeast(st.Pzxid))
		return err
	})
	return h.wakeups.of(st.Pzxid), err
}

// judge compares what the releases have cost.
func (h *herdRun) judge(woken []int) error {
	most := slices.Max(woken)
	if n := h.wakeups.missed(); n > 0 {
		h.say("cluster", "%d watches had to read again after a change of servers", n)
	}
	if most > 1 {
		return h.broken(ErrHerd, "one release has woken %d waiters, and one of them could go on", most)
	}
	return h.kept("no release has woken more than one of %d waiters", h.o.Waiters)
}
