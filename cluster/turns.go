package cluster

// turnBytes is how much of a line is sent before another one has its turn.
const turnBytes = 16 << 10

// turns decides in which order lines are sent, so that a client with much to send
// takes nothing from one with little (fair queueing as in fq_codel): lines that
// had nothing to send have their first turn before all that have; then each has
// its turn of turnBytes, round and round. Within a line the order is that of its
// numbers. The zero value is ready; the user locks.
//
// Bound: what is pending; see crowd.
type turns struct {
	fresh, rest fifo[*line]
	// idle hears of a line that takes part no more; nil: nobody does.
	idle func(*line)
}

// turn is the part of a line that turns looks after.
type turn struct {
	listed bool // in fresh or rest
	left   int  // bytes it may still send in its turn
}

// list lets a line take part, if it does not yet.
func (t *turns) list(l *line) {
	if !l.turn.listed {
		l.turn = turn{listed: true, left: turnBytes}
		t.fresh.push(l)
	}
}

func (t *turns) none() bool { return t.fresh.len() == 0 && t.rest.len() == 0 }

// take removes about limit bytes, in the order in which they are to be sent: at
// least one command if there is one.
func (t *turns) take(limit int) (cmds [][]byte) {
	for size := 0; size < limit; {
		from := &t.fresh
		if from.len() == 0 {
			if from = &t.rest; from.len() == 0 {
				break
			}
		}
		l := from.front()
		for l.waits() && l.turn.left > 0 && size < limit {
			b := l.queue[l.sent].bytesToSend()
			l.sent++
			l.turn.left -= len(b)
			size += len(b)
			cmds = append(cmds, b)
		}
		if l.waits() && l.turn.left > 0 {
			break // the message is full; its turn goes on
		}
		from.pop()
		t.turnOver(l, from == &t.fresh)
	}
	return cmds
}

// turnOver is called when a line has sent what it may. One that comes and goes
// stands in the line once, too, or it would always be before those.
func (t *turns) turnOver(l *line, wasFresh bool) {
	if !l.waits() && (!wasFresh || t.rest.len() == 0) {
		l.turn.listed = false
		if t.idle != nil {
			t.idle(l)
		}
		return
	}
	if l.turn.left <= 0 {
		l.turn.left += turnBytes
	}
	t.rest.push(l)
}

// fifo is a queue. The zero value is empty.
type fifo[T any] struct {
	items []T
	first int // of items
}

func (q *fifo[T]) len() int { return len(q.items) - q.first }

func (q *fifo[T]) front() T { return q.items[q.first] }

func (q *fifo[T]) push(v T) {
	if q.first > 0 && q.first*2 >= len(q.items) && len(q.items) == cap(q.items) { // half is free: no need to grow
		n := copy(q.items, q.items[q.first:])
		clear(q.items[n:])
		q.items, q.first = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *fifo[T]) pop() {
	var zero T
	q.items[q.first] = zero
	if q.first++; q.first == len(q.items) {
		q.items, q.first = q.items[:0], 0
	}
}
