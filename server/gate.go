package server

import "sync"

// gate counts what is going on and can be closed: nothing begins afterwards,
// and who closed it can wait for the rest. The zero value is open.
type gate struct {
	mu     sync.Mutex // guards closed; the group is only added to under it
	closed bool
	group  sync.WaitGroup
}

// begin reports false if the gate is closed. Otherwise done must follow.
func (g *gate) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.group.Add(1)
	return true
}

func (g *gate) done() { g.group.Done() }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// wait waits for what began before close.
func (g *gate) wait() { g.group.Wait() }
