package cluster

import (
	"sync"
	"time"
)

// turnstile lets any number in, until somebody shuts it and has the inside for
// himself. Who comes meanwhile waits outside. The zero value is open. It waits on
// channels only, so that it works in fake time.
type turnstile struct {
	mu     sync.Mutex // guards below
	inside int
	shutCh chan struct{} // nil: open; closed when it opens again
	empty  chan struct{} // nil: nobody waits for that; closed when inside is 0
}

// enter goes in, or reports false when done was closed before. leave must follow.
func (t *turnstile) enter(done <-chan struct{}) bool {
	for {
		t.mu.Lock()
		shut := t.shutCh
		if shut == nil {
			t.inside++
			t.mu.Unlock()
			return true
		}
		t.mu.Unlock()
		select {
		case <-shut:
		case <-done:
			return false
		}
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside--; t.inside == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// shut lets nobody in any more and waits until nobody is inside. It reports
// false, and the turnstile is open, if that takes longer than limit. Only one may
// shut it at a time.
func (t *turnstile) shut(limit time.Duration) bool {
	t.mu.Lock()
	t.shutCh = make(chan struct{})
	if t.inside == 0 {
		t.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	t.empty = empty
	t.mu.Unlock()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		t.open()
		return false
	}
}

func (t *turnstile) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.shutCh)
	t.shutCh, t.empty = nil, nil
}
