package client

import "sync"

// stateQueue tells a listener each state, in order, without holding up those
// who change it. It is bounded by the number of state changes of a session
// while one call of the listener lasts.
type stateQueue struct {
	listener func(State)
	wake     chan struct{}

	// mu guards the fields below.
	mu     sync.Mutex
	queued []State
	closed bool
}

func (q *stateQueue) start(listener func(State)) {
	if listener == nil {
		return
	}
	q.listener, q.wake = listener, make(chan struct{}, 1)
	// Nobody waits for this goroutine, because Close may be called by the
	// listener itself. It ends when it has told the last state.
	go q.run()
}

func (q *stateQueue) put(st State) {
	if q.listener == nil {
		return
	}
	q.mu.Lock()
	q.queued = append(q.queued, st)
	q.mu.Unlock()
	q.signal()
}

func (q *stateQueue) close() {
	if q.listener == nil {
		return
	}
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *stateQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *stateQueue) run() {
	for range q.wake {
		q.mu.Lock()
		states, closed := q.queued, q.closed
		q.queued = nil
		q.mu.Unlock()
		for _, st := range states {
			q.listener(st)
		}
		if closed {
			return
		}
	}
}

// setState records a state and queues it for the listener. Final states stay.
// mu is held.
func (s *Session) setState(st State) {
	if s.state == st || s.state == Expired || s.state == Closed {
		return
	}
	s.state = st
	s.states.put(st)
}
