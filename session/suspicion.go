package session

import "time"

// How much silence is written into the log.
const (
	// A session is first marked at 2/5 of its timeout. Clients of ZooKeeper ping
	// after a third of it: a sooner mark would be made for living ones too, and
	// cost two writes for each ping.
	firstMarkOver, firstMarkUnder = 2, 5
	// Then it is marked again whenever its silence has grown by an eighth of its
	// timeout: that is what a leader may forget, for five marks in all.
	marksPerTimeout = 8
)

// FirstMark is the silence after which a session with this timeout is suspect.
func FirstMark(timeout time.Duration) time.Duration {
	return timeout * firstMarkOver / firstMarkUnder
}

// doubtful is when its silence is to be marked next.
func (l *liveness) doubtful() time.Duration {
	return l.heard + max(FirstMark(l.timeout), l.marked+l.timeout/marksPerTimeout)
}

// Suspects returns the sessions whose silence is to be marked, the longest
// overdue first: those that have been silent for [FirstMark], and those whose
// silence has grown by another eighth of their timeout since they were marked.
func (e *Expiry) Suspects(now time.Duration) []ID {
	return e.collect(&e.agendas[bySuspect], now, (*liveness).doubtful)
}

// Suspect says that a mark was proposed that tells of so much silence. It must
// be called in one step with the proposal, see [CountedSuspect], and silent be
// what [Expiry.SilentFor] says in that step: a sign of life that is counted
// between the two would be taken for silence by the next leader.
func (e *Expiry) Suspect(id ID, silent time.Duration) {
	if l := e.sessions[id]; l != nil {
		l.suspect, l.marked = true, silent
		e.agendas[bySuspect].move(l, l.nextSuspicion())
	}
}

// Trust says that no mark of the session is in the log: its removal was applied
// and no mark proposed since, or a command of the session was applied that makes
// void what was proposed before. If the session is silent still, it is marked
// again at once, with all the silence.
func (e *Expiry) Trust(id ID) {
	if l := e.sessions[id]; l != nil {
		l.suspect, l.marked = false, 0
		e.agendas[bySuspect].move(l, l.nextSuspicion())
	}
}
