package cluster

import (
	"fmt"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

const (
	// crowdWait is how long a command may be under way before it counts as one
	// that stands in a queue: if none is faster for crowdInterval, less is let in.
	crowdWait     = 500 * time.Millisecond
	crowdInterval = time.Second
	// crowdShrink divides what may be pending while commands stand in a queue.
	crowdShrink = 8
	// retryLeast and retryMost bound how soon the refused are told to come again.
	retryLeast = 100 * time.Millisecond
	retryMost  = 5 * time.Second
)

// crowd judges by the age of what is answered whether there is a standing queue:
// bytes alone do not say how long they wait (as in CoDel, it is the fastest of an
// interval that counts: a burst passes, a queue stays). The zero value is quiet;
// the user locks.
type crowd struct {
	began    time.Duration // of the interval
	fastest  time.Duration // in it; 0: none yet
	standing time.Duration // how long everything waits; 0: no queue stands
}

// settled notes that a command was answered age after it came.
func (c *crowd) settled(now, age time.Duration) {
	if age = max(age, 1); c.fastest == 0 || age < c.fastest {
		c.fastest = age
	}
	if age < crowdWait {
		c.standing = 0
	}
	if now-c.began < crowdInterval {
		return
	}
	c.standing = 0
	if c.fastest >= crowdWait {
		c.standing = c.fastest
	}
	c.began, c.fastest = now, 0
}

// room is how much may be pending in all.
func (c *crowd) room() (commands, bytes int) {
	if c.standing > 0 {
		return maxPendingCommands / crowdShrink, maxPendingBytes / crowdShrink
	}
	return maxPendingCommands, maxPendingBytes
}

// OverloadedError is the ErrOverloaded of a moment. errors.Is finds that.
type OverloadedError struct {
	// RetryAfter is when there may be room again. It is above 0.
	RetryAfter time.Duration
}

// Error implements error.
func (e *OverloadedError) Error() string {
	return fmt.Sprintf("%v: too much is unanswered; come again in %v", ErrOverloaded, e.RetryAfter)
}

// Unwrap makes it an ErrOverloaded.
func (e *OverloadedError) Unwrap() error { return ErrOverloaded }

// crowding returns an OverloadedError if nothing more should be taken into a
// line for now. A line may have as much pending as is still free, so that one
// that has little always finds room: with one that takes all it can, half is left,
// with two a third.
func (f *forwarder) crowding(l *line) error {
	commands, size := f.crowd.room()
	commands, size = commands-f.count, size-f.bytes
	if l != nil && (len(l.queue) >= commands || l.bytes >= size) || commands <= 0 || size <= 0 {
		return &OverloadedError{RetryAfter: min(max(f.crowd.standing, retryLeast), retryMost)}
	}
	return nil
}

// crowdedSession is crowding for a session's line.
func (f *forwarder) crowdedSession(s session.ID, generation uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crowding(f.sessions[lineKey{s, generation}])
}

// crowdedOwn is crowding for the server's own line.
func (f *forwarder) crowdedOwn() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crowding(f.own)
}

// MayWrite says whether a session's line may have one more write: nil, or an
// OverloadedError while so much is unanswered that its client should wait, or
// a *DiskFullError while the cluster takes nothing that needs room. What ends a session
// or gives something back need not ask. One client cannot make it refuse another
// that has little unanswered.
func (n *Node) MayWrite(line fsm.LineRef) error {
	if err := n.fwd.crowdedSession(line.Session, line.Generation); err != nil {
		return err
	}
	return n.diskFull()
}

// Overloaded is MayWrite for calls without a session, and for new sessions.
func (n *Node) Overloaded() error {
	if err := n.fwd.crowdedOwn(); err != nil {
		return err
	}
	return n.diskFull()
}
