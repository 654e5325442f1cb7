package client

import (
	"context"
	"time"
)

// listenTick is how often the supervisor looks at a connection that is in use.
const listenTick = 50 * time.Millisecond

// supervise watches over cn until it is lost (true), or the session should look
// for another server or is over (false). It rests while nothing is outstanding.
func (s *Session) supervise(ctx context.Context, f *finder, cn *conn) (lost bool) {
	tick := time.NewTicker(listenTick)
	defer tick.Stop()
	s.busy(cn)
	for {
		select {
		case <-ctx.Done():
			return false
		case <-cn.done:
			return true
		case <-cn.move:
			return false
		case <-cn.busy:
			tick.Reset(listenTick)
		case <-tick.C:
			working := s.look(cn)
			silent, answered := cn.ear.listen(cn.heard.Load(), working)
			if answered {
				f.patience = hearPatience
			}
			if silent >= f.patienceFor() {
				s.note(cn.endpoint, time.Now(), errNoAnswer)
				s.core.streams.silent(cn.endpoint, time.Now().Add(-silent))
				f.grow()
				return false
			}
			if !working {
				tick.Stop()
			}
		}
	}
}

func (f *finder) patienceFor() time.Duration {
	if len(f.s.core.endpoints) == 1 {
		return max(f.patience, lonePatience)
	}
	return f.patience
}

// ear measures silence in ticks, so that the path of a request needs no clock.
type ear struct {
	heard   uint64
	waiting bool // something was outstanding at the last tick
	silent  time.Duration
}

// listen takes in one tick: heard counts the messages received so far.
func (e *ear) listen(heard uint64, outstanding bool) (silent time.Duration, answered bool) {
	answered = heard != e.heard
	if answered || !outstanding || !e.waiting {
		e.silent = 0
	} else {
		e.silent += listenTick
	}
	e.heard, e.waiting = heard, outstanding
	return e.silent, answered
}

// busy makes the next sending wake the supervisor only if it rests.
func (s *Session) busy(cn *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = false
	signal(cn.kick)
}

// look does what is due at a tick and reports whether anything is outstanding.
// When nothing is, it sends the last acknowledgement and lets the supervisor
// rest.
func (s *Session) look(cn *conn) (working bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) > 0 && !time.Now().Before(s.heldTil) {
		s.release()
	}
	working = s.line.offered > 0 || len(s.calls) > 0
	s.idle = !working
	if s.idle && s.line.ackSent != s.line.acked() {
		signal(cn.kick)
	}
	return working
}
