package queue

import (
	"container/heap"
	"context"
	"strings"
	"sync"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/cache"
)

// index is what this process knows of the items: names only, and which of them
// can be taken. It follows the queue only while somebody here is the first in
// line; in between it stands still, and then catches up with what has changed,
// so that no item is listed twice.
type index struct {
	c     *client.Client
	root  string
	items *cache.Cache
	turn  chan struct{} // cap 1: who has put something in follows

	// mu guards the fields below.
	//
	// Invariant: free has every entry that can be taken, and maybe others.
	mu    sync.Mutex
	known map[string]*indexed
	free  freeHeap
	wake  chan struct{} // cap 1: something became free
}

// indexed is what is known under one item's name.
type indexed struct {
	name    itemName
	czxid   client.Zxid // 0: there is no such item
	claimed bool        // by a taker, or held back
	queued  bool        // it is in free
}

func (e *indexed) takeable() bool { return e.czxid != 0 && !e.claimed }

func newIndex(c *client.Client, root string) *index {
	x := &index{c: c, root: root, turn: make(chan struct{}, 1), known: map[string]*indexed{}, wake: make(chan struct{}, 1)}
	x.items = cache.New(c, root, cache.WithoutData(), cache.OnChange(x.change))
	return x
}

// change takes in one change of the folder of items.
func (x *index) change(ch cache.Change) {
	rest, ok := strings.CutPrefix(ch.Node.Path, x.root+"/")
	if !ok || ch.Type != client.EventCreated && ch.Type != client.EventDeleted {
		return
	}
	there := ch.Type == client.EventCreated
	x.mu.Lock()
	defer x.mu.Unlock()
	first, second, deep := strings.Cut(rest, "/")
	switch {
	case !deep:
		x.update(first, func(e *indexed) {
			if e.czxid = 0; there {
				e.czxid = ch.Node.Stat.Czxid
			}
		})
	case first == claimsFolder:
		x.update(second, func(e *indexed) { e.claimed = there })
	}
}

// update changes what is known under a name, if it is an item's. mu is held.
func (x *index) update(text string, f func(*indexed)) {
	e := x.known[text]
	if e == nil {
		name, ok := parseItem(text)
		if !ok {
			return
		}
		e = &indexed{name: name}
		x.known[text] = e
	}
	f(e)
	switch {
	case e.takeable():
		if !e.queued {
			e.queued = true
			heap.Push(&x.free, e)
		}
		select {
		case x.wake <- struct{}{}:
		default:
		}
	case e.czxid == 0 && !e.claimed:
		delete(x.known, text)
	}
}

// first is the item that is next, nil if there is none.
func (x *index) first() *indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(x.free) > 0 {
		if e := x.free[0]; e.takeable() {
			found := *e
			return &found
		}
		heap.Pop(&x.free).(*indexed).queued = false
	}
	return nil
}

// follow keeps the index up while f runs. It returns f's error, or why the queue
// cannot be followed any more; f's context is done then.
func (x *index) follow(outer context.Context, f func(context.Context) error) error {
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-outer.Done():
		return outer.Err()
	}
	ctx, cancel := context.WithCancelCause(outer)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cancel(x.items.Run(ctx))
	}()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		if err = outer.Err(); err == nil {
			err = context.Cause(ctx)
		}
	}
	cancel(nil)
	<-ended
	return err
}

// catchUp waits until the index shows all that was there when it was called: each
// item, claim and return that anybody can know of. The pzxid of a folder says when
// the last child came or went.
func (x *index) catchUp(ctx context.Context) error {
	var newest client.Zxid
	mode := client.Linearizable // and what is read then is not older
	for _, folder := range []string{x.root, x.root + "/" + claimsFolder} {
		st, _, err := x.c.Exists(ctx, folder, client.Mode(mode))
		if err != nil {
			return err
		}
		newest, mode = max(newest, st.Pzxid), client.ReadSession
	}
	return x.items.WaitZxid(ctx, newest)
}

// freeHeap is a heap of entries in the order in which they come out.
type freeHeap []*indexed

func (h freeHeap) Len() int           { return len(h) }
func (h freeHeap) Less(i, j int) bool { return h[i].name.compare(h[j].name) < 0 }
func (h freeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *freeHeap) Push(e any) { *h = append(*h, e.(*indexed)) }

// Pop implements heap.Interface.
func (h *freeHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return e
}
