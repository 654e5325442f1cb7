package recipetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/coordtest"
)

// Fault is what happens at a step.
type Fault string

// Faults. A step is a message of the client: right before it is sent, or right
// after it has arrived and before the client sees it.
const (
	// None is a run in which nothing happens.
	None Fault = "none"
	// Cancel ends the context of Act.
	Cancel Fault = "cancel the context"
	// Lose loses the message, a request before it was sent or a reply after the
	// commit, and breaks the connections.
	Lose Fault = "lose the message"
	// Blink loses nothing but breaks the connections.
	Blink Fault = "break the connections"
	// Cut cuts the client off until its session has expired.
	Cut Fault = "cut the link"
	// Expire expires the session.
	Expire Fault = "expire the session"
	// Kill makes the client vanish for good, without a word.
	Kill Fault = "kill the client"
	// Pause makes the process stand still until its session has expired.
	Pause Fault = "pause the process"
	// Restart kills the leader and starts it again.
	Restart Fault = "restart the leader"
)

var everyFault = []Fault{None, Cancel, Lose, Blink, Cut, Expire, Kill, Pause, Restart}

// away is how long a client is cut off or paused: it loses its session.
const away = 2 * Timeout

// mayFail says that Act may return an error. A session survives connections and
// servers.
func (f Fault) mayFail() bool { return f != None && f != Lose && f != Blink && f != Restart }

// lasting is how long after the end of Act a fault may be felt by the others: until
// the session of a victim that cannot be reached has expired.
func (f Fault) lasting() time.Duration {
	switch f {
	case Cut, Kill, Pause:
		return away + Timeout
	default:
		return time.Second
	}
}

// strike is one fault that waits for its step.
type strike struct {
	fault   Fault
	step    int64
	cluster *coordtest.Cluster
	victim  *client.Client
	cancel  context.CancelFunc // of Act
	watch   *observer

	armed atomic.Bool
	steps atomic.Int64
	once  sync.Once
	over  chan struct{} // closed when a pause is over; nil without one
	undo  []func()      // at the end of the run
	wait  sync.WaitGroup
}

// fate is what becomes of the message at which a fault strikes.
type fate uint8

const (
	passes fate = iota
	isLost
	waits // for the end of the pause
	never // it has nobody to go to
)

// at counts a message and lets the fault happen if it is its turn.
func (s *strike) at(session client.SessionID) fate {
	if !s.armed.Load() || s.steps.Add(1) != s.step {
		return passes
	}
	f := passes
	s.once.Do(func() { f = s.happen(session) })
	return f
}

// struck says that the fault has happened.
func (s *strike) struck() bool { return s.steps.Load() >= s.step }

func (s *strike) happen(session client.SessionID) fate {
	switch s.fault {
	case Cancel:
		s.cancel()
	case Lose:
		s.cluster.Break(s.victim)
		return isLost
	case Blink:
		s.cluster.Break(s.victim)
	case Cut:
		s.until(s.cluster.Partition(s.victim))
	case Expire:
		s.watch.excuse(0)
		s.cluster.ExpireID(session)
	case Kill:
		s.watch.bury()
		s.undo = append(s.undo, s.cluster.Partition(s.victim))
		return never
	case Pause:
		s.watch.excuse(away)
		s.over = make(chan struct{})
		resume := s.cluster.Pause(s.victim)
		s.until(func() { resume(); close(s.over) })
		return waits
	case Restart:
		s.wait.Go(func() { s.cluster.Restart(s.cluster.AwaitLeader()) }) // it takes a while
	case None:
	}
	return passes
}

// until ends a disturbance when its time is over, at the latest with the run.
func (s *strike) until(end func()) {
	end = sync.OnceFunc(end)
	s.undo = append(s.undo, end)
	time.AfterFunc(away, end)
}

// end undoes what is left of the fault. Nothing strikes any more.
func (s *strike) end() {
	s.armed.Store(false)
	s.once.Do(func() {}) // after this, undo is complete
	for _, f := range s.undo {
		f()
	}
	s.wait.Wait()
}
