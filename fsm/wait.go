package fsm

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
)

// waiters are the goroutines that wait for a rising number to reach a value.
// The zero value is ready.
type waiters struct {
	n  atomic.Int64 // how many; lets wake pass without the lock
	mu sync.Mutex
	q  waitQueue // the smallest target first
}

type waiter struct {
	target uint64
	done   chan struct{}
	at     int // index in the queue, -1 when it has left
}

// wait returns when now has reached target. The number is raised before wake
// is called, so looking at it again after entering the queue misses nothing.
func (w *waiters) wait(ctx context.Context, now *atomic.Uint64, target uint64) error {
	if now.Load() >= target {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	x := w.enter(target)
	if now.Load() >= target {
		w.leave(x)
		return nil
	}
	select {
	case <-x.done:
		return nil
	case <-ctx.Done():
		w.leave(x)
		return ctx.Err()
	}
}

func (w *waiters) enter(target uint64) *waiter {
	x := &waiter{target: target, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	heap.Push(&w.q, x)
	w.n.Add(1)
	return x
}

func (w *waiters) leave(x *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if x.at >= 0 {
		heap.Remove(&w.q, x.at)
		w.n.Add(-1)
	}
}

func (w *waiters) wake(now uint64) {
	if w.n.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.q) > 0 && w.q[0].target <= now {
		close(heap.Pop(&w.q).(*waiter).done)
		w.n.Add(-1)
	}
}

// waitQueue is a heap by target.
type waitQueue []*waiter

func (q waitQueue) Len() int           { return len(q) }
func (q waitQueue) Less(i, j int) bool { return q[i].target < q[j].target }

func (q waitQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *waitQueue) Push(x any) {
	w := x.(*waiter)
	w.at = len(*q)
	*q = append(*q, w)
}

func (q *waitQueue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	w.at = -1
	return w
}
