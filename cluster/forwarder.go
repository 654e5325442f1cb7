package cluster

import (
	"sync"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

const (
	// maxPendingCommands and maxPendingBytes are what may be pending before
	// nothing more should be read from clients (see crowding). Submit itself takes
	// more, because what has a number must be taken.
	maxPendingCommands = 1 << 17
	maxPendingBytes    = 64 << 20
	// maxForwardBytes bounds one message on the forward stream, unless a single
	// command is larger.
	maxForwardBytes = 512 << 10
)

// forwarder keeps every command that entered at this server until it is seen
// applied, and offers it to the leader of the moment: in the order of its line,
// again after a change of leaders or a gap. The rule of number lines makes that
// safe: of all copies one is done.
//
// A command is settled by what the state machine of this server says about its
// line and number, whichever copy was applied and whoever led.
//
// It is safe for concurrent use. Settling is called under the machine's write
// lock; the forwarder's own lock is held for moments only.
type forwarder struct {
	wake nudge // out is not empty
	// server is this server's own line.
	serverID string
	boot     uint64
	// malformed hears of commands that are not offered; may be nil. It must not
	// block or call the forwarder.
	malformed func(error)
	now       func() time.Duration // the node's clock

	mu       sync.Mutex // guards what follows
	sessions map[lineKey]*line
	own      *line
	ownNext  uint64 // next number of the own line
	booted   bool   // the own line has begun: before that it is not offered
	bootCmd  []byte
	turns    turns // of lines with something to be sent
	crowd    crowd
	count    int // pending
	bytes    int
}

// lineKey names a session's line.
type lineKey struct {
	session    session.ID
	generation uint64
}

// newForwarder needs a clock that rises.
func newForwarder(self serverID, boot uint64, now func() time.Duration) *forwarder {
	boots := &fsm.Command{Kind: fsm.CmdBoot, Boot: &fsm.Boot{Server: string(self), Nonce: boot}}
	f := &forwarder{
		wake: newNudge(), serverID: string(self), boot: boot, now: now,
		sessions: make(map[lineKey]*line),
		own:      &line{ref: fsm.LineRef{Server: string(self), Boot: boot}},
		ownNext:  1,
		bootCmd:  fsm.AppendCommand(nil, boots),
	}
	f.turns.idle = f.forgetLocked
	return f
}

// forgetLocked forgets a session's line on which nothing is pending. It stays as
// long as it has a turn coming: a client that sends one write after the other
// would be a new one each time, and always first.
func (f *forwarder) forgetLocked(l *line) {
	key := lineKey{l.ref.Session, l.ref.Generation}
	if len(l.queue) == 0 && !l.turn.listed && f.sessions[key] == l {
		delete(f.sessions, key)
	}
}

// submit takes a command of a session's line.
func (f *forwarder) submit(ref fsm.LineRef, seq uint64, cmd []byte, w Waiter) {
	cmd = f.sound(ref, seq, cmd)
	f.mu.Lock()
	defer f.mu.Unlock()
	key := lineKey{ref.Session, ref.Generation}
	l := f.sessions[key]
	if l == nil {
		l = &line{ref: ref}
		f.sessions[key] = l
	}
	f.enqueueLocked(l, seq, cmd, w)
}

// propose gives a command the next number of the own line and takes it.
func (f *forwarder) propose(c *fsm.Command, w Waiter) {
	f.mu.Lock()
	defer f.mu.Unlock()
	numbered := *c
	numbered.Line, numbered.Seq = f.own.ref, f.ownNext
	f.ownNext++
	numbered.Ack = numbered.Seq - 1
	if len(f.own.queue) > 0 {
		numbered.Ack = f.own.queue[0].seq - 1
	}
	cmd := f.sound(numbered.Line, numbered.Seq, fsm.AppendCommand(nil, &numbered))
	f.enqueueLocked(f.own, numbered.Seq, cmd, w)
}

// sound returns cmd if the replicas can read it. A command that they cannot read
// stops every one of them, and one that the leader refuses would be offered for
// ever. So a skip takes its number: the numbers behind it are not stuck, and its
// waiter hears of an internal error.
func (f *forwarder) sound(ref fsm.LineRef, seq uint64, cmd []byte) []byte {
	err := fsm.Validate(cmd)
	if err == nil {
		return cmd
	}
	if f.malformed != nil {
		f.malformed(err)
	}
	return fsm.AppendCommand(nil, &fsm.Command{Kind: fsm.CmdSkip, Line: ref, Seq: seq, Code: fsm.CodeInternal})
}

func (f *forwarder) enqueueLocked(l *line, seq uint64, cmd []byte, w Waiter) {
	p, replaced := l.add(seq, cmd, w)
	f.bytes += len(cmd) - replaced
	if replaced > 0 {
		return // the copy on its way, or the next offering, answers both
	}
	f.count++
	p.since = f.now()
	f.listLocked(l)
}

// listLocked lets a line take part in the next message.
func (f *forwarder) listLocked(l *line) {
	if l == f.own && !f.booted || !l.waits() {
		return
	}
	f.turns.list(l)
	f.wake.push()
}

// drop forgets what is pending on a session's line. What was sent may still be
// applied.
func (f *forwarder) drop(s session.ID, generation uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := lineKey{s, generation}
	l := f.sessions[key]
	if l == nil {
		return
	}
	f.count -= len(l.queue)
	f.bytes -= l.bytes
	l.queue, l.bytes, l.sent = nil, 0, 0
	delete(f.sessions, key)
}

// applied settles the command that r answers, if it is pending here, and offers
// its line again if it has to be. Only called under the machine's write lock.
func (f *forwarder) applied(r *fsm.Result) {
	f.mu.Lock()
	l := f.lineLocked(r.Line)
	if l == nil {
		f.mu.Unlock()
		return
	}
	if !r.Status.Final() && !f.faultyLocked(l, r) {
		if r.Attempt == l.attempt {
			f.reofferLocked(l)
		}
		f.mu.Unlock()
		return
	}
	p := l.settle(r.Seq)
	if p != nil {
		f.count--
		f.bytes -= len(p.cmd)
		now := f.now()
		f.crowd.settled(now, now-p.since)
		f.forgetLocked(l)
	}
	f.mu.Unlock()
	if p == nil {
		return
	}
	for _, w := range p.waiters {
		if w != nil {
			w.Applied(r)
		}
	}
}

// faultyLocked says that r is a gap before the oldest number that is pending:
// nobody will ever fill it, because everything before was answered or never
// came.
func (f *forwarder) faultyLocked(l *line, r *fsm.Result) bool {
	return r.Status == fsm.StatusGap && r.Attempt == l.attempt && len(l.queue) > 0 && l.queue[0].seq == r.Seq
}

func (f *forwarder) lineLocked(ref fsm.LineRef) *line {
	switch {
	case ref.Session != 0:
		return f.sessions[lineKey{ref.Session, ref.Generation}]
	case ref.Server == f.serverID && ref.Boot == f.boot:
		return f.own
	}
	return nil
}

// reofferLocked begins the next attempt of a line, from its oldest number.
func (f *forwarder) reofferLocked(l *line) {
	l.again()
	f.listLocked(l)
}

// reofferAll begins the next attempt of every line: what was sent to the leader
// before may be lost.
func (f *forwarder) reofferAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reofferLocked(f.own)
	for _, l := range f.sessions {
		f.reofferLocked(l)
	}
	f.wake.push()
}

// setBooted says that the own line has begun in the state.
func (f *forwarder) setBooted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.booted {
		f.booted = true
		f.reofferLocked(f.own)
	}
}

// boots returns the command that begins the own line, nil when it has begun.
func (f *forwarder) boots() []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.booted {
		return nil
	}
	return f.bootCmd
}

// take removes what makes up the next message, nil if nothing waits.
func (f *forwarder) take() [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	cmds := f.turns.take(maxForwardBytes)
	if !f.turns.none() {
		f.wake.push()
	}
	return cmds
}

// load says how much is pending.
func (f *forwarder) load() (commands, bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count, f.bytes
}
