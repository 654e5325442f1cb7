package session

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

// Expiry is the leader's book of signs of life. Times are those of its
// [ExpiryClock]. It proposes nothing by itself: the caller asks for [Expiry.Due]
// and [Expiry.Suspects], and says what it has proposed.
//
// A sign of life costs one look-up: it only writes down the later time. A
// session is moved in the order of expiry when its old time comes up, that is
// once in a timeout, however often it is heard.
//
// The rules are those that an exhaustive model found to keep the promise that
// no session is expired while its client may rightly believe in it:
//
//   - Only what the leader has counted is a sign of life, and the caller answers
//     a heartbeat only after [Expiry.Report] said [Counted].
//   - Once the expiry of a session is proposed, its reports are [Dropped] until
//     the proposal is decided: an answer given in between would be a lie.
//   - Once its suspicion is proposed, a report is answered only after the
//     suspicion has been taken back through the log ([CountedSuspect]): the next
//     leader counts from the mark and would not know of the answer.
//   - A new leader gives everybody a whole timeout; only the server that the
//     session is connected to may tell it more.
type Expiry struct {
	sessions map[ID]*liveness
	agendas  [orders]agenda
}

// liveness is what the leader knows of one session.
type liveness struct {
	id      ID
	timeout time.Duration
	heard   time.Duration

	provisional bool // heard is the start of this leadership, not a sign of life
	proposed    bool // its expiry is in the log and not decided
	suspect     bool // its suspicion is in the log, decided or not

	// key is when to look at the session in each order. It may be too early,
	// because signs of life do not move it; it is never too late.
	key   [orders]time.Duration
	place [orders]int
}

// never is the key of a session that waits for a decision.
const never = time.Duration(math.MaxInt64)

// NewExpiry returns an empty book.
func NewExpiry() *Expiry {
	e := &Expiry{sessions: make(map[ID]*liveness)}
	for i := range e.agendas {
		e.agendas[i].order = i
	}
	return e
}

// due is when the session may be expired: 1 % later than its timeout, for
// clocks that do not run alike.
func (l *liveness) due() time.Duration { return l.heard + l.timeout + l.timeout/100 }

// doubtful is when it has been silent for half of its timeout.
func (l *liveness) doubtful() time.Duration { return l.heard + l.timeout/2 }

// Reset begins a leadership at now, the moment its NewEpoch was applied, with
// the sessions of the table. Each is taken to have been heard now, until its
// own server says otherwise.
//
// One that is marked as suspect is taken to be silent for half its timeout:
// that much had passed when it was marked, and every answer since would have
// removed the mark. So a client that is dead goes even if leaders change before
// a whole timeout is over; and as no clock of another leader is believed in
// this, a step of the wall clocks cannot expire anybody early.
func (e *Expiry) Reset(now time.Duration, sessions iter.Seq[*Session]) {
	*e = *NewExpiry()
	for s := range sessions {
		l := &liveness{id: s.ID, timeout: s.Timeout, heard: now, provisional: true}
		if s.SuspectSince != 0 {
			l.suspect = true
			l.heard -= s.Timeout / 2
		}
		e.add(l)
	}
}

func (e *Expiry) add(l *liveness) {
	e.sessions[l.id] = l
	e.agendas[byDue].add(l, l.due())
	e.agendas[bySuspect].add(l, l.nextSuspicion())
	e.agendas[byTimeout].add(l, l.timeout)
}

func (l *liveness) nextSuspicion() time.Duration {
	if l.suspect {
		return never
	}
	return l.doubtful()
}

// Track adds a session that was opened now, or gives one that is tracked
// another timeout; that counts as a sign of life.
func (e *Expiry) Track(id ID, timeout, now time.Duration) {
	l := e.sessions[id]
	if l == nil {
		e.add(&liveness{id: id, timeout: timeout, heard: now})
		return
	}
	e.Heard(id, now)
	if l.timeout != timeout {
		l.timeout = timeout
		e.agendas[byTimeout].move(l, timeout)
		e.refresh(l)
	}
}

// refresh puts the session where its times say, at once.
func (e *Expiry) refresh(l *liveness) {
	if !l.proposed {
		e.agendas[byDue].move(l, l.due())
	}
	e.agendas[bySuspect].move(l, l.nextSuspicion())
}

// Forget takes a session out: it has ended.
func (e *Expiry) Forget(id ID) {
	l := e.sessions[id]
	if l == nil {
		return
	}
	delete(e.sessions, id)
	for i := range e.agendas {
		e.agendas[i].remove(l)
	}
}

// Len is the number of sessions tracked.
func (e *Expiry) Len() int { return len(e.sessions) }

// Heard says that a command of the session was applied at time at. An earlier
// time than is known changes nothing. What is in the log needs no other proof:
// it counts whoever brought it, and also while an expiry is proposed, which
// will then find the session touched.
func (e *Expiry) Heard(id ID, at time.Duration) {
	l := e.sessions[id]
	if l == nil {
		return
	}
	if l.provisional && at >= l.heard {
		l.provisional = false
	}
	l.heard = max(l.heard, at)
}

// Count is what became of a reported sign of life.
type Count uint8

const (
	// Dropped: the session is not tracked, or its expiry is proposed. The
	// report's answer names it as not counted.
	Dropped Count = iota
	// Counted: it may be answered after the term round.
	Counted
	// CountedSuspect: as Counted, but a suspicion is in the log. The caller
	// proposes its removal; when that was applied and [Expiry.SetSuspect] called,
	// the sign may be answered after the term round.
	CountedSuspect
)

// Report counts a sign of life that a server has told of: it was heard age ago,
// now being the time at which the report is read. fromOwner says that the
// report comes from the server and boot that the table has for the session's
// current generation; the caller has dropped reports for another term and
// entries of another generation.
//
// The first report of the owner replaces what a new leader has assumed, also by
// an earlier time. All others only ever make it later.
func (e *Expiry) Report(id ID, age, now time.Duration, fromOwner bool) Count {
	l := e.sessions[id]
	if l == nil || l.proposed {
		return Dropped
	}
	at := now - max(age, 0)
	if l.provisional && fromOwner {
		l.provisional = false
		lower := at < l.heard
		l.heard = at
		if lower {
			e.refresh(l)
		}
	} else {
		l.heard = max(l.heard, at)
	}
	if l.suspect {
		return CountedSuspect
	}
	return Counted
}

// Due returns the sessions that have been silent for their timeout and 1 %, and
// whose expiry is not proposed, the longest overdue first. It looks only at
// those whose time may have come.
func (e *Expiry) Due(now time.Duration) []ID {
	return e.collect(&e.agendas[byDue], now, (*liveness).due)
}

// Suspects returns the sessions that have been silent for half their timeout
// and are not suspect yet, the longest overdue first.
func (e *Expiry) Suspects(now time.Duration) []ID {
	return e.collect(&e.agendas[bySuspect], now, (*liveness).doubtful)
}

// collect moves those that were heard since to their later time and returns
// the others.
func (e *Expiry) collect(a *agenda, now time.Duration, when func(*liveness) time.Duration) []ID {
	var silent []*liveness
	for _, l := range a.reached(now) {
		at := when(l)
		a.move(l, at)
		if at <= now {
			silent = append(silent, l)
		}
	}
	slices.SortFunc(silent, func(x, y *liveness) int {
		return cmp.Or(cmp.Compare(when(x), when(y)), cmp.Compare(x.id, y.id))
	})
	ids := make([]ID, len(silent))
	for i, l := range silent {
		ids[i] = l.id
	}
	return ids
}

// Proposed says that the expiry of the session was proposed: it is not due
// again, and its reports are dropped, until Unpropose or Forget. It must be
// called before the proposal can be applied, and before the next report is
// read.
func (e *Expiry) Proposed(id ID) {
	if l := e.sessions[id]; l != nil && !l.proposed {
		l.proposed = true
		e.agendas[byDue].move(l, never)
	}
}

// Unpropose says that the proposed expiry was applied and refused, or certainly
// never will be applied.
func (e *Expiry) Unpropose(id ID) {
	if l := e.sessions[id]; l != nil && l.proposed {
		l.proposed = false
		e.agendas[byDue].move(l, l.due())
	}
}

// SetSuspect says whether a suspicion of the session is in the log: true from
// the moment it is proposed (it must not be later, see [CountedSuspect]), false
// when its removal was applied, when it was refused, or when an applied command
// of the session has removed it.
func (e *Expiry) SetSuspect(id ID, suspect bool) {
	if l := e.sessions[id]; l != nil && l.suspect != suspect {
		l.suspect = suspect
		e.agendas[bySuspect].move(l, l.nextSuspicion())
	}
}

// SilentFor returns how long the session has not been heard; false if it is not
// tracked. Under a new leader it is counted from the start of the leadership.
func (e *Expiry) SilentFor(id ID, now time.Duration) (time.Duration, bool) {
	l := e.sessions[id]
	if l == nil {
		return 0, false
	}
	return max(0, now-l.heard), true
}

// MinTimeout is the smallest timeout of the sessions tracked, 0 if there are
// none. How often servers report follows from it.
func (e *Expiry) MinTimeout() time.Duration {
	if len(e.sessions) == 0 {
		return 0
	}
	return e.agendas[byTimeout].key(0)
}
