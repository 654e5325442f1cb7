package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/recipes/lock"
)

// errTwoHolders would be a broken lock.
var errTwoHolders = errors.New("two contenders held the lock at once")

// lockLoad is the contention for one lock.
type lockLoad struct {
	*bench
	holders  atomic.Int32
	released atomic.Int64 // when the newest release began, since start
}

// startLock has all clients take and give back one lock over and over.
func (b *bench) startLock(ctx context.Context) (wait func() *tally) {
	l := &lockLoad{bench: b}
	ctx, cancel := context.WithCancel(ctx)
	tallies := make([]tally, len(b.clients))
	var wg sync.WaitGroup
	for i, c := range b.clients {
		wg.Go(func() {
			if err := l.contend(ctx, lock.New(c, b.root+"/lock"), &tallies[i]); err != nil {
				tallies[i].fail(err)
			}
		})
	}
	return func() *tally {
		cancel() // who waits in line does not wait for its turn
		wg.Wait()
		total := new(tally)
		for i := range tallies {
			total.merge(&tallies[i])
		}
		return total
	}
}

func (l *lockLoad) contend(ctx context.Context, m *lock.Mutex, t *tally) error {
	for l.phase.Load() != finished {
		h, err := m.Acquire(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		now := time.Since(l.start)
		if l.holders.Add(1) != 1 {
			return errTwoHolders
		}
		if last := l.released.Load(); last != 0 && l.phase.Load() == measuring {
			t.latency.add(now - time.Duration(last))
		}
		l.holders.Add(-1)
		l.released.Store(int64(time.Since(l.start)))
		if err := h.Release(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}
