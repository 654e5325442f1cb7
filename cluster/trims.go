package cluster

import (
	"sync"

	"github.com/coordd/coord/session"
)

// trims notes up to which write the clients of idle sessions have the answers.
// It is safe for concurrent use.
type trims struct {
	mu    sync.Mutex
	noted map[session.ID]uint64
}

func newTrims() *trims { return &trims{noted: make(map[session.ID]uint64)} }

func (t *trims) note(id session.ID, upto uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	old, known := t.noted[id]
	if known || len(t.noted) < maxTrimsNoted {
		t.noted[id] = max(old, upto)
	}
}

func (t *trims) take() map[session.ID]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	noted := t.noted
	t.noted = make(map[session.ID]uint64)
	return noted
}
