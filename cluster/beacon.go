package cluster

import "sync"

// beacon tells any number of goroutines that something has changed, without
// saying what: they look again. The zero value is ready.
type beacon struct {
	mu sync.Mutex
	ch chan struct{}
}

// C returns a channel that is closed at the next flash. Take it before looking
// at the state, or a change in between is missed.
func (b *beacon) C() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// flash wakes all who wait.
func (b *beacon) flash() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}

// nudge is a beacon for one goroutine: a nudge before the wait is not lost, two
// are one. Make it with newNudge.
type nudge chan struct{}

func newNudge() nudge { return make(nudge, 1) }

func (n nudge) push() {
	select {
	case n <- struct{}{}:
	default: // one is waiting already
	}
}
