package counter

import (
	"context"
	"slices"
)

// maxBatch bounds how many Adds share a write.
const maxBatch = 4096

// request is one Add.
type request struct {
	delta int64
	done  chan answer // cap 1
	batch *batch      // that it is in; guarded by the counter's mu
}

type answer struct {
	now int64
	err error
}

// batch is the Adds of one write.
type batch struct {
	requests []*request
	ctx      context.Context // done when nobody waits for the batch any more
	cancel   context.CancelFunc
	waiting  int // callers; guarded by the counter's mu
}

// enter puts a request into the queue and sees to it that it is worked on.
func (c *Counter) enter(r *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, r)
	if !c.running {
		c.running = true
		go c.work()
	}
}

// leave takes note that nobody waits for a request any more. It reports whether
// the request was still in the queue, so that nothing of it was sent.
func (c *Counter) leave(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.batch == nil {
		c.queue = slices.DeleteFunc(c.queue, func(o *request) bool { return o == r })
		return true
	}
	if r.batch.waiting--; r.batch.waiting == 0 {
		r.batch.cancel()
	}
	return false
}

// work empties the queue. It ends when that is empty: at the latest when the
// session is over, which ends every write.
func (c *Counter) work() {
	var s state
	known := false
	for {
		b := c.next()
		if b == nil {
			return
		}
		s, known = c.apply(b, s, known)
		b.cancel()
	}
}

// next makes a batch of the queue, nil if that is empty.
func (c *Counter) next() *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.running, c.queue = false, nil
		return nil
	}
	n := min(len(c.queue), maxBatch)
	b := &batch{requests: slices.Clone(c.queue[:n]), waiting: n}
	c.queue = slices.Delete(c.queue, 0, n)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	for _, r := range b.requests {
		r.batch = b
	}
	return b
}

// apply adds a batch to the number and answers its requests. s is the state that
// an earlier write has left, if known. It returns what is known then.
func (c *Counter) apply(b *batch, s state, known bool) (state, bool) {
	for tries := 0; ; tries++ {
		fresh := !known
		if fresh {
			var err error
			if s, err = c.read(b.ctx); err != nil {
				b.answer(nil, err)
				return s, false
			}
		}
		answers, sum, some := b.add(c.path, s.value)
		if !some && !fresh { // no write will show that s is still true
			known = false
			continue
		}
		if !some {
			b.answer(answers, nil)
			return s, true
		}
		next, err := c.write(b.ctx, c.settled, s, sum)
		if err == nil {
			b.answer(answers, nil)
			return next, true
		}
		if conflict(err) {
			known, err = false, pause(b.ctx, tries)
		}
		if err != nil {
			b.answer(nil, err)
			return s, false
		}
	}
}

// add adds the requests up, one behind the other, and returns the answers that
// are right if the sum is written over now. Those that do not fit are left out;
// some reports whether any does fit.
func (b *batch) add(path string, now int64) (answers []answer, sum int64, some bool) {
	for _, r := range b.requests {
		next := now + r.delta
		if (next < now) != (r.delta < 0) {
			answers = append(answers, answer{err: &OverflowError{Path: path, Now: now, Delta: r.delta}})
			continue
		}
		now, some = next, true
		answers = append(answers, answer{now: now})
	}
	return answers, now, some
}

// answer gives each request its answer, or all of them an error.
func (b *batch) answer(answers []answer, err error) {
	for i, r := range b.requests {
		if err != nil {
			r.done <- answer{err: err}
		} else {
			r.done <- answers[i]
		}
	}
}
