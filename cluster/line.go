package cluster

import (
	"bytes"
	"slices"
	"time"

	"github.com/coordd/coord/fsm"
)

// Waiter is told what became of a proposal.
type Waiter interface {
	// Applied is called once, under the machine's write lock, in log order, and
	// behind Hook.Applied of the same command: it must be quick and must not
	// block or call the machine. r is a final answer (r.Status.Final()), with
	// one exception: StatusGap says that a number before this one was never
	// submitted, which is the submitter's fault.
	Applied(r *fsm.Result)
}

// WaiterFunc is a function as a Waiter.
type WaiterFunc func(*fsm.Result)

// Applied implements Waiter.
func (f WaiterFunc) Applied(r *fsm.Result) { f(r) }

// pending is a command that entered the cluster at this server and has not been
// seen applied.
type pending struct {
	line    *line
	seq     uint64
	cmd     []byte
	waiters []Waiter
	// shared: cmd has been handed out, so it must not be changed any more.
	shared bool
	since  time.Duration // when it came, on the node's clock
}

// line is what is pending on one number line. The forwarder's lock guards it.
//
// Invariant: queue rises in seq; bytes are those of its commands; its first sent
// commands were handed out in the present attempt.
type line struct {
	ref   fsm.LineRef
	queue []*pending
	bytes int
	sent  int
	// attempt counts the offerings of the line from its oldest number. Gaps of
	// an earlier offering say nothing about the present one.
	attempt uint32
	turn    turn
}

// find returns the position of seq, or where it would stand.
func (l *line) find(seq uint64) (int, bool) {
	// Numbers follow one another, so it is nearly always where it should be.
	if len(l.queue) > 0 {
		if first := l.queue[0].seq; seq >= first && seq-first < uint64(len(l.queue)) {
			if i := int(seq - first); l.queue[i].seq == seq {
				return i, true
			}
		}
	}
	return slices.BinarySearchFunc(l.queue, seq, func(p *pending, seq uint64) int {
		switch {
		case p.seq < seq:
			return -1
		case p.seq > seq:
			return 1
		}
		return 0
	})
}

// add appends a command, or, if its number is pending already, puts it in the
// place of the one that is: whichever copy is applied answers both. It returns
// nil if nothing new has to be sent.
func (l *line) add(seq uint64, cmd []byte, w Waiter) (p *pending, replaced int) {
	i, found := l.find(seq)
	if found {
		p = l.queue[i]
		replaced = len(p.cmd)
		l.bytes += len(cmd) - replaced
		p.cmd, p.shared = cmd, false
		p.waiters = append(p.waiters, w)
		return p, replaced
	}
	p = &pending{line: l, seq: seq, cmd: cmd, waiters: []Waiter{w}}
	l.queue = slices.Insert(l.queue, i, p)
	l.bytes += len(cmd)
	l.sent = min(l.sent, i) // numbers come in order; if not, what is behind goes again
	return p, 0
}

// settle takes out the number that was answered; nil if it is not pending.
func (l *line) settle(seq uint64) *pending {
	i, found := l.find(seq)
	if !found {
		return nil
	}
	p := l.queue[i]
	l.bytes -= len(p.cmd)
	if i < l.sent {
		l.sent--
	}
	if i == 0 {
		l.queue[0] = nil
		l.queue = l.queue[1:]
	} else {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	return p
}

// again begins the next attempt, from the oldest number.
func (l *line) again() {
	l.attempt++
	l.sent = 0
}

// waits says that something is to be sent.
func (l *line) waits() bool { return l.sent < len(l.queue) }

// bytesToSend returns the command of p as an offering of the present attempt.
func (p *pending) bytesToSend() []byte {
	if p.shared {
		p.cmd = bytes.Clone(p.cmd)
	}
	p.shared = true
	fsm.SetAttempt(p.cmd, p.line.attempt)
	return p.cmd
}
