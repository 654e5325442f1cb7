// Package stall is a disk, as tests see it, that can be held up: what is written
// waits. It may be used from any goroutine, in real time and in a bubble of
// testing/synctest.
package stall

import "sync"

// Disk is held up while a stall lasts. The zero value moves.
type Disk struct {
	mu     sync.Mutex // guards below
	stalls int
	moving chan struct{} // closed when no stall is left; nil: there is none
}

// Stall holds the disk up until resume, which may be called twice. Stalls add up.
func (d *Disk) Stall() (resume func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stalls++; d.stalls == 1 {
		d.moving = make(chan struct{})
	}
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.stalls--; d.stalls == 0 {
			close(d.moving)
			d.moving = nil
		}
	})
}

// Stalled says whether the disk is held up.
func (d *Disk) Stalled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalls > 0
}

// Wait waits while the disk is held up, or until given is closed; nil never is.
func (d *Disk) Wait(given <-chan struct{}) {
	d.mu.Lock()
	moving := d.moving
	d.mu.Unlock()
	if moving == nil {
		return
	}
	select {
	case <-moving:
	case <-given:
	}
}
