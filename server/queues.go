package server

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

const (
	// keepFrom is the number of children from which on the order of a queue is
	// kept: a look at fewer of them costs next to nothing.
	keepFrom = 500
	// keepUpTo is the number of children up to which it is built: that is done
	// under the machine's read lock, and takes about 25 ms for so many. A queue
	// that grows past it afterwards stays.
	keepUpTo = 100_000
	// maxKept bounds the queues that are kept. Places in others are found by a
	// look at all children.
	maxKept = 1000
	// maxParts bounds the texts by which the names of one queue are kept apart.
	maxParts = 4
	// keepIdle is how long a queue is kept that nobody asks for.
	keepIdle = 10 * time.Minute
)

// queues keeps the order of the children of nodes that have very many of them in
// a queue, so that a place in it is found without a look at all: the handover of
// a lock takes the same time with ten waiters and with ten thousand.
//
// It is a cache. Each use compares it with the Stat of the node, whose cversion
// rises by one with each child that comes or goes; what does not agree is built
// anew. It is safe for concurrent use.
type queues struct {
	clock stopwatch
	kept  atomic.Int32 // len(byPath): most transactions meet no queue
	built atomic.Int64 // how often one was built from all children

	mu     sync.Mutex // guards below
	byPath map[string]*keptQueue
}

// keptQueue is the order of the children of one node. The lock is for those who
// read at the same time: changes come while nobody reads.
type keptQueue struct {
	asked int64 // stopwatch time; guarded by queues.mu

	mu       sync.Mutex // guards below
	known    bool       // it was built
	czxid    zxid.ID    // of the node
	cversion int64      // up to which the queue has followed
	order    znode.Queue
	// parts are the names that contain a text somebody asked for: who looks for
	// the last writer in a long line of readers must not pass them all.
	parts map[string]*znode.Queue
}

// queueRead asks for the place of a child, and for the last name before it that
// contains a text; "" is in every name.
type queueRead struct {
	path, child, containing string
	caller                  *znode.Caller
}

func newQueues(clock stopwatch) *queues {
	return &queues{clock: clock, byPath: make(map[string]*keptQueue)}
}

// place is [znode.Tree.Predecessor]. The machine's read lock is held.
func (qs *queues) place(t *znode.Tree, q *queueRead) (before string, ahead int, st znode.Stat, err error) {
	_, _, dir, err := t.ChildrenPage(q.path, "", 1, q.caller)
	if err != nil || dir.NumChildren < keepFrom {
		return t.Predecessor(q.path, q.child, q.containing, q.caller)
	}
	own, exists := t.Exists(strings.TrimSuffix(q.path, "/") + "/" + q.child)
	if k := qs.keep(q.path, &dir); exists && k != nil {
		if before, ahead, ok := k.place(qs, t, q, &dir); ok {
			return before, ahead, own, nil
		}
	}
	return t.Predecessor(q.path, q.child, q.containing, q.caller)
}

// keep returns the queue of a node, and begins to keep it if that is worth it;
// nil if not.
func (qs *queues) keep(path string, dir *znode.Stat) *keptQueue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	k := qs.byPath[path]
	if k == nil && len(qs.byPath) < maxKept && dir.NumChildren <= keepUpTo {
		k = &keptQueue{}
		qs.byPath[strings.Clone(path)] = k
		qs.kept.Add(1)
	}
	if k != nil {
		k.asked = qs.clock.now()
	}
	return k
}

// place finds the place of a child. It builds the queue if it is not up to date.
func (k *keptQueue) place(qs *queues, t *znode.Tree, q *queueRead, dir *znode.Stat) (before string, ahead int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.known || k.czxid != dir.Czxid || k.cversion != dir.Cversion {
		if dir.NumChildren > keepUpTo {
			return "", 0, false
		}
		names, _, err := t.Children(q.path, q.caller)
		if err != nil {
			return "", 0, false
		}
		k.order.Fill(names)
		k.parts = nil
		k.known, k.czxid, k.cversion = true, dir.Czxid, dir.Cversion
		qs.built.Add(1)
	}
	before, ahead, ok = k.order.Before(q.child)
	if !ok || q.containing == "" {
		return before, ahead, ok
	}
	part := k.part(q.containing)
	if part == nil {
		return "", 0, false
	}
	return part.Last(q.child), ahead, true
}

// part returns the part of the queue whose names contain a text, nil if too many
// parts are kept already.
func (k *keptQueue) part(containing string) *znode.Queue {
	if part := k.parts[containing]; part != nil || len(k.parts) == maxParts {
		return part
	}
	if k.parts == nil {
		k.parts = make(map[string]*znode.Queue, 1)
	}
	part := new(znode.Queue)
	part.Fill(k.order.Names(containing))
	k.parts[strings.Clone(containing)] = part
	return part
}

// applied follows one transaction. It runs under the machine's write lock.
func (qs *queues) applied(changes []znode.Change) {
	if qs.kept.Load() == 0 {
		return
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if c.Type != znode.Created && c.Type != znode.Deleted {
			continue
		}
		at := strings.LastIndexByte(c.Path, '/')
		if k := qs.byPath[c.Path[:max(at, 1)]]; k != nil {
			k.follow(c.Path[at+1:], c.Type)
		}
	}
}

func (k *keptQueue) follow(name string, what znode.ChangeType) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cversion++
	turn := (*znode.Queue).Remove
	if what == znode.Created {
		turn = (*znode.Queue).Add
	}
	turn(&k.order, name)
	for text, part := range k.parts {
		if strings.Contains(name, text) {
			turn(part, name)
		}
	}
}

// reset forgets all queues: the state is another one.
func (qs *queues) reset() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	clear(qs.byPath)
	qs.kept.Store(0)
}

// sweep forgets the queues that nobody asks for any more.
func (qs *queues) sweep() {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for path, k := range qs.byPath {
		if qs.clock.since(k.asked) > keepIdle {
			delete(qs.byPath, path)
			qs.kept.Add(-1)
		}
	}
}
