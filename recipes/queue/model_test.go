package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/client"
	"github.com/coordd/coord/client/fakecoord"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/internal/rig"
)

// ledger is what is known of each item, by what the callers were told.
type ledger struct {
	t  *testing.T
	mu sync.Mutex
	// by id
	sent      map[string]bool // its Put returned without an error
	unknown   map[string]bool // by data: its Put has an unknown outcome
	holder    map[string]*Item
	token     map[string]fence.Token
	delivered map[string]int
	done      map[string]bool
	maybeDone map[string]bool
}

func newLedger(t *testing.T) *ledger {
	return &ledger{
		t: t, sent: map[string]bool{}, unknown: map[string]bool{}, holder: map[string]*Item{}, token: map[string]fence.Token{},
		delivered: map[string]int{}, done: map[string]bool{}, maybeDone: map[string]bool{},
	}
}

// take notes a delivery and checks it: nobody else has the item, unless he has
// been told that he lost it; it was not done; token and count have risen.
func (l *ledger) take(it *Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.holder[it.ID]; other != nil && other.Context().Err() == nil {
		l.t.Errorf("item %s was given out with token %s while %s has it", it.ID, it.Token, other.Token)
	}
	if l.done[it.ID] {
		l.t.Errorf("item %s was given out after it was done", it.ID)
	}
	if it.Token <= l.token[it.ID] || it.Deliveries <= l.delivered[it.ID] {
		l.t.Errorf("item %s: token %s after %s, delivery %d after %d", it.ID, it.Token, l.token[it.ID], it.Deliveries, l.delivered[it.ID])
	}
	l.holder[it.ID], l.token[it.ID], l.delivered[it.ID] = it, it.Token, it.Deliveries
}

// takenAway notes that an outsider is about to end the claim at the servers: no
// clock of the holder's tells him of that, so the next taker may come first.
func (l *ledger) takenAway(it *Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.holder, it.ID)
}

func (l *ledger) finish(it *Item, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		if l.done[it.ID] {
			l.t.Errorf("item %s was done twice", it.ID)
		}
		l.done[it.ID] = true
	case errors.Is(err, client.ErrUnknownOutcome):
		l.maybeDone[it.ID] = true
	}
}

// TestRandomSchedule has producers and workers at work while connections break,
// answers are lost, workers give up, give back, forget items, and die.
func TestRandomSchedule(t *testing.T) {
	r := random(t)
	for range rig.Times(8) {
		seed := r.Uint64()
		fake(t, 3, func(t *testing.T, c *fakecoord.Cluster) { randomRun(t, c, seed) })
	}
}

func randomRun(t *testing.T, c *fakecoord.Cluster, seed uint64) {
	const items, workers = 60, 5
	l := newLedger(t)
	faults, choice := newRand(seed), newRand(seed+1)
	var mu sync.Mutex
	pick := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return choice.IntN(n)
	}
	c.OnReply(func(string, *coordpb.Reply) fakecoord.Action {
		if faults.IntN(40) == 0 {
			return fakecoord.Cut
		}
		return fakecoord.Pass
	})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		q := New(connectIn(t, c), "/q")
		for i := range items {
			opts := []PutOption{Priority(pick(3))}
			if i%2 == 0 {
				opts = append(opts, Key(strconv.Itoa(i)))
			}
			limit, cancel := context.WithTimeout(ctx, time.Duration(20+pick(2000))*time.Millisecond)
			id, err := q.Put(limit, []byte(fmt.Sprint(i)), opts...)
			if err != nil && i%2 == 0 { // with a key it is simply repeated
				id, err = q.Put(ctx, []byte(fmt.Sprint(i)), opts...)
			}
			cancel()
			l.mu.Lock()
			if err == nil {
				l.sent[id] = true
			} else {
				l.unknown[strconv.Itoa(i)] = true
			}
			l.mu.Unlock()
		}
	})
	work := func(cl *client.Client) {
		q := New(cl, "/q")
		for ctx.Err() == nil && cl.Session().Context().Err() == nil {
			limit, cancel := context.WithTimeout(ctx, time.Duration(100+pick(8000))*time.Millisecond)
			it, err := q.Take(limit)
			cancel()
			if err != nil {
				continue
			}
			l.take(it)
			time.Sleep(time.Duration(pick(300)) * time.Millisecond)
			switch pick(10) {
			case 0:
				_ = it.Return(ctx, 0)
			case 1:
				l.takenAway(it)
				c.Expire(uint64(cl.Session().ID()))
				l.finish(it, it.Done(ctx))
			case 2:
				l.takenAway(it)
				c.Delete(it.claim.node())
				l.finish(it, it.Done(ctx))
			case 3:
				short, cancel := context.WithTimeout(ctx, time.Duration(pick(20))*time.Millisecond)
				l.finish(it, it.Done(short))
				cancel()
				if it.Done(ctx) == nil {
					l.mu.Lock()
					l.done[it.ID] = true
					l.mu.Unlock()
				}
			default:
				l.finish(it, it.Done(ctx))
			}
		}
	}
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if cl, err := dial(ctx, c); err == nil {
					work(cl)
					_ = cl.Close()
				}
			}
		})
	}
	wg.Go(func() { // ends when all is done
		for ctx.Err() == nil {
			time.Sleep(time.Second)
			l.mu.Lock()
			over := len(l.sent)+len(l.unknown) == items
			for id := range l.sent {
				over = over && (l.done[id] || l.maybeDone[id])
			}
			l.mu.Unlock()
			if over && len(c.Paths("/q/items/")) == 0 {
				stop()
			}
		}
	})
	wg.Wait()
	c.OnReply(nil)
	time.Sleep(time.Minute)
	synctest.Wait()
	for id := range l.sent {
		if !l.done[id] && !l.maybeDone[id] {
			t.Errorf("item %s got lost", id)
		}
	}
	for _, p := range left(c, "/q") {
		t.Errorf("%s is left", p)
	}
}

// connectIn is connect for goroutines.
func connectIn(t *testing.T, c *fakecoord.Cluster) *client.Client {
	cl, err := dial(t.Context(), c)
	if err != nil {
		t.Error(err)
		panic(err)
	}
	t.Cleanup(func() { _ = cl.Close() })
	return cl
}
