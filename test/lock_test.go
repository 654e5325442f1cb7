package test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/fence"
	"github.com/coordd/coord/recipes/lock"
)

// contender is one session in the queue of a lock.
type contender struct {
	id      int
	session *client.Session
	cancel  context.CancelFunc
}

// queue lets contenders in one after the other, so that the order in which they
// joined is known, and records who is granted.
type queue struct {
	t          *testing.T
	c          *processes
	watcher    *client.Client
	path       string
	contenders []*contender
	granted    chan grant
	wg         sync.WaitGroup
}

type grant struct {
	id     int
	handle *lock.Handle
	err    error
}

const (
	contenders      = 1000
	clientsPerQueue = 10
)

func newQueue(t *testing.T, c *processes, path string) *queue {
	return &queue{t: t, c: c, watcher: dial(t, c.endpoints()), path: path, granted: make(chan grant, contenders)}
}

// fill opens the sessions and lines them up behind a first holder, whose
// handle it returns.
func (q *queue) fill(ctx context.Context) *lock.Handle {
	q.t.Helper()
	first, err := lock.New(q.watcher, q.path).Acquire(ctx)
	if err != nil {
		q.t.Fatal(err)
	}
	var clients []*client.Client
	for range clientsPerQueue {
		clients = append(clients, dial(q.t, q.c.endpoints()))
	}
	for i := range contenders {
		c := clients[i%clientsPerQueue]
		s, err := c.NewSession(ctx, client.WithSessionTimeout(60*time.Second))
		if err != nil {
			q.t.Fatal(err)
		}
		waitCtx, cancel := context.WithCancel(ctx)
		k := &contender{id: i, session: s, cancel: cancel}
		q.contenders = append(q.contenders, k)
		q.wg.Go(func() {
			h, err := lock.New(c, q.path, lock.WithSession(s)).Acquire(waitCtx)
			q.granted <- grant{k.id, h, err}
		})
		q.waitLength(ctx, i+2)
	}
	return first
}

// waitLength waits until the queue has so many entries.
func (q *queue) waitLength(ctx context.Context, want int) {
	q.t.Helper()
	poll(q.t, 30*time.Second, "the queue", func() error {
		st, _, err := q.watcher.Exists(ctx, q.path, client.Mode(client.ReadSession))
		if err == nil && int(st.NumChildren) != want {
			err = fmt.Errorf("%d entries, want %d", st.NumChildren, want)
		}
		return err
	})
}

// events is how many events all servers have sent so far.
func (c *processes) events() (n uint64) {
	for _, p := range c.nodes {
		n += p.stats(c.t).EventsSent
	}
	return n
}

// next waits for the next grant, in the expected order.
func (q *queue) next(id int, above fence.Token) *lock.Handle {
	q.t.Helper()
	select {
	case g := <-q.granted:
		if g.err != nil {
			q.t.Fatalf("contender %d: %v", g.id, g.err)
		}
		if g.id != id {
			q.t.Fatalf("contender %d was granted before %d", g.id, id)
		}
		if g.handle.FencingToken() <= above {
			q.t.Fatalf("contender %d has token %s, not above %s", id, g.handle.FencingToken(), above)
		}
		return g.handle
	case <-time.After(30 * time.Second):
		q.t.Fatalf("contender %d was not granted within 30 s", id)
		return nil
	}
}

// left waits for the end of those that left the queue without a grant.
func (q *queue) left(want error, ids ...int) {
	q.t.Helper()
	for range ids {
		select {
		case g := <-q.granted:
			if !errors.Is(g.err, want) {
				q.t.Fatalf("contender %d left with %v, want %v", g.id, g.err, want)
			}
		case <-time.After(30 * time.Second):
			q.t.Fatal("a contender did not leave within 30 s")
		}
	}
}

// TestQueueOfAThousandIsFairAndWakesOneWaiter is the herd test: strict order,
// rising tokens, and one waiter woken by each release, whoever leaves from the
// middle and whoever leads.
func TestQueueOfAThousandIsFairAndWakesOneWaiter(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	q := newQueue(t, c, "/locks/busy")
	h := q.fill(ctx)

	const giveUp, lost, change = 100, 200, 300
	const measured = 90 // handovers counted, before anything disturbs
	before := c.events()
	for i := range measured {
		h = q.pass(ctx, h, i)
	}
	// A release deletes one node. Its own holder watches it and so does the next
	// in line; nobody else may hear of it.
	if sent := c.events() - before; sent < measured || sent > 2*measured {
		t.Errorf("%d releases sent %d events, want one waiter woken by each", measured, sent)
	}

	q.contenders[giveUp].cancel()
	q.left(context.Canceled, giveUp)
	if err := q.contenders[lost].session.Close(ctx); err != nil {
		t.Fatal(err)
	}
	q.left(client.ErrClosed, lost)
	for i := measured; i < contenders; i++ {
		if i == giveUp || i == lost {
			continue
		}
		if i == change {
			lead := c.leader()
			lead.kill()
			defer lead.start()
		}
		h = q.pass(ctx, h, i)
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
	q.wg.Wait()
	names, err := q.watcher.Children(ctx, q.path)
	if err != nil && !errors.Is(err, client.ErrNoNode) || len(names) != 0 {
		t.Errorf("left behind: %s, %v", strings.Join(names, " "), err)
	}
}

// pass releases h and returns the handle of contender i, who must be next.
func (q *queue) pass(ctx context.Context, h *lock.Handle, i int) *lock.Handle {
	q.t.Helper()
	token := h.FencingToken()
	if err := h.Release(ctx); err != nil {
		q.t.Fatalf("release for contender %d: %v", i, err)
	}
	return q.next(i, token)
}

// TestHolderLearnsOfItsLossBeforeTheNextHolder cuts holders off the network and
// checks the order of the two moments, with real processes and clocks.
func TestHolderLearnsOfItsLossBeforeTheNextHolder(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := dial(t, c.endpoints())
	var last fence.Token
	for round := range 5 {
		m := newMortal(t, c, fmt.Sprintf("/mortal-%d", round), 2*time.Second)
		h, err := lock.New(m.c, "/locks/l").Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		lost := make(chan time.Time, 1)
		go func() { <-h.Lost(); lost <- time.Now() }()
		m.cut()
		nh, err := lock.New(next, "/locks/l").Acquire(ctx)
		granted := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		select {
		case at := <-lost:
			t.Logf("the holder knew %s before the next one", granted.Sub(at))
		default:
			t.Error("the next holder was granted before the first one knew of its loss")
		}
		if h.Held() || !errors.Is(context.Cause(h.Context()), lock.ErrLost) {
			t.Errorf("the lost handle: held %v, cause %v", h.Held(), context.Cause(h.Context()))
		}
		if h.FencingToken() <= last || nh.FencingToken() <= h.FencingToken() {
			t.Errorf("tokens do not rise: %s, %s, %s", last, h.FencingToken(), nh.FencingToken())
		}
		last = nh.FencingToken()
		if err := nh.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
