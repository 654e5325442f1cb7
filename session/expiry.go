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
//     leader counts from the mark and would not know of the answer. That holds
//     for each later mark as for the first.
//   - A mark tells of no more silence than its leader has itself watched since
//     the last sign of life it counted, and at the start of its leadership found
//     in the mark before.
//   - A new leader gives everybody a whole timeout less what is marked; only the
//     server that the session is connected to may tell it more.
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

	// marked is the silence that the last mark told of, less what signs of life
	// have moved heard on since; 0 without one.
	marked time.Duration

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

// hear notes a sign of life. The time of the last mark stays where it is, so
// that the next one never comes sooner by it: keys must not be too late.
func (l *liveness) hear(at time.Duration) {
	if at > l.heard {
		l.marked = max(0, l.marked-(at-l.heard))
		l.heard = at
	}
}

// Reset begins a leadership at now, the moment its NewEpoch was applied, with
// the sessions of the table. Each is taken to have been heard now, until its
// own server says otherwise.
//
// One that is marked as suspect is taken to be silent for as long as the mark
// says: that much had passed when it was made, and every answer since would have
// removed it. This leader's marks go on from there, so silence accumulates, and
// a client that is dead goes even if no leader lasts for half its timeout. As
// the mark has a length of silence and no time of a clock, a step of the wall
// clocks cannot expire anybody early.
func (e *Expiry) Reset(now time.Duration, sessions iter.Seq[*Session]) {
	*e = *NewExpiry()
	for s := range sessions {
		l := &liveness{id: s.ID, timeout: s.Timeout, heard: now, provisional: true}
		if s.Suspected != 0 {
			l.suspect, l.marked = true, s.Suspected
			l.heard -= s.Suspected
		}
		e.add(l)
	}
}

func (e *Expiry) add(l *liveness) {
	e.sessions[l.id] = l
	e.agendas[byDue].add(l, l.nextExpiry())
	e.agendas[bySuspect].add(l, l.nextSuspicion())
	e.agendas[byTimeout].add(l, l.timeout)
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
	e.agendas[byDue].move(l, l.nextExpiry())
	e.agendas[bySuspect].move(l, l.nextSuspicion())
}

func (l *liveness) nextExpiry() time.Duration {
	if l.proposed {
		return never
	}
	return l.due()
}

func (l *liveness) nextSuspicion() time.Duration {
	if l.proposed {
		return never
	}
	return l.doubtful()
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
	l.hear(at)
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
	// proposes its removal; when that was applied, no other mark was proposed
	// behind it, and [Expiry.Trust] was called, the sign may be answered after
	// the term round.
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
		if at < l.heard {
			l.heard = at
			e.refresh(l)
		}
	}
	l.hear(at)
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
		e.refresh(l)
	}
}

// Unpropose says that the proposed expiry was applied and refused, or certainly
// never will be applied.
func (e *Expiry) Unpropose(id ID) {
	if l := e.sessions[id]; l != nil && l.proposed {
		l.proposed = false
		e.refresh(l)
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
