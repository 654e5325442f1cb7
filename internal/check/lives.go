package check

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/coordd/coord/session"
)

type sessionKey = session.ID

// forever is a time that does not come.
const forever = time.Duration(math.MaxInt64)

// life is what is known about the life of one session.
type life struct {
	opened, ended, silent, killed *Record
	restored                      *Record // the restore that has ended it; nil: none has
	// mayEnd is when the cluster may have ended it at the earliest, deadBy when it
	// must have at the latest.
	mayEnd, deadBy time.Duration
}

// lives are those of all sessions in the history.
func lives(all []Record, o Options) map[sessionKey]*life {
	out := map[sessionKey]*life{}
	for i := range all {
		r := &all[i]
		if r.Kind != Opened && r.Kind != Ended && r.Kind != Silent && r.Kind != Killed {
			continue
		}
		l := out[r.Session]
		if l == nil {
			l = &life{}
			out[r.Session] = l
		}
		switch r.Kind {
		case Opened:
			l.opened = r
		case Ended:
			l.ended = r
		case Silent:
			l.silent = r
		default:
			l.killed = r
		}
	}
	for i := range all {
		if r := &all[i]; r.Kind == Restored && r.Outcome == Done {
			for _, l := range out {
				l.restoredBy(r)
			}
		}
	}
	for _, l := range out {
		l.bounds(o)
	}
	return out
}

// restoredBy notes that a restore has ended the session, if it was not over before.
func (l *life) restoredBy(r *Record) {
	switch {
	case l.opened == nil || uint64(l.opened.Session) >= uint64(r.Zxid):
	case l.ended != nil && l.ended.End < r.Begin, l.silent != nil && l.ended == nil:
	case l.restored == nil || r.Zxid < l.restored.Zxid:
		l.restored = r
	}
}

// bounds finds out between when and when the session has ended.
func (l *life) bounds(o Options) {
	l.mayEnd, l.deadBy = forever, forever
	late := func(from, timeout time.Duration) time.Duration { return from + timeout/100 + o.Bound }
	if s := l.silent; s != nil {
		// Its last sign of life may have been counted up to a timeout before.
		l.mayEnd, l.deadBy = s.Begin, late(s.Begin+s.Timeout, s.Timeout)
	}
	if e := l.ended; e != nil {
		switch {
		case e.Reason == ByServer:
			l.mayEnd, l.deadBy = e.Deadline, min(l.deadBy, e.End)
		case e.Reason == BySilent:
			l.mayEnd, l.deadBy = e.Deadline, min(l.deadBy, late(e.Deadline, e.Timeout))
		case e.Reason == ByClient && e.Outcome != Done:
			l.mayEnd, l.deadBy = min(e.Begin, e.Deadline), min(l.deadBy, late(max(e.Deadline, e.Begin), e.Timeout))
		default:
			l.mayEnd, l.deadBy = min(e.Begin, e.Deadline), e.End
		}
	}
	if k := l.killed; k != nil {
		l.mayEnd = min(l.mayEnd, k.Begin)
	}
	if r := l.restored; r != nil {
		l.mayEnd, l.deadBy = min(l.mayEnd, r.Begin), min(l.deadBy, r.End)
	}
	if l.mayEnd != forever {
		l.mayEnd -= o.Tolerance
	}
}

// mayHaveEnded is whether a session can have been over at a time. One that is not
// in the history may always.
func (v *view) mayHaveEnded(id sessionKey, at time.Duration) bool {
	l := v.sessions[id]
	return l == nil || l.opened == nil || l.mayEnd <= at
}

func checkSessions(v *view) {
	for _, l := range sortedLives(v.sessions) {
		l.checkEnd(v)
	}
	checkExpiryEvents(v)
}

// checkEnd looks at how a session ended.
func (l *life) checkEnd(v *view) {
	e := l.ended
	switch {
	case e == nil:
	case l.killed != nil || l.restored != nil:
	case (e.Reason == BySilent || e.Reason == ByServer) && e.Begin < e.Deadline-v.o.Tolerance:
		v.report(RuleExpiry, "", []Record{*e}, "session %s was expired %v before its deadline", e.Session, e.Deadline-e.Begin)
	case e.Reason == ByOther || e.Reason == ByRestore:
		v.report(RuleExpiry, "", []Record{*e}, "session %s was ended by another, and nobody has done that", e.Session)
	}
}

// checkExpiryEvents looks at when the znodes of expired sessions went, as others
// have seen it. That somebody has heard of it late shows nothing; who looks whether
// they have gone in time reads them (see checkEphemerals).
func checkExpiryEvents(v *view) {
	told := map[sessionKey]bool{}
	for _, r := range v.all {
		if r.Kind != Event || r.Cause != CauseExpired || r.Stat.Owner == 0 || told[r.Stat.Owner] {
			continue
		}
		l := v.sessions[r.Stat.Owner]
		if l != nil && l.opened != nil && r.Begin < l.mayEnd {
			told[r.Stat.Owner] = true
			v.report(RuleExpiry, r.Path, l.records(r), "session %s was expired, and its client could count on it", r.Stat.Owner)
		}
	}
}

// sortedLives are the lives in the order of their sessions.
func sortedLives(lives map[sessionKey]*life) []*life {
	var out []*life
	for _, id := range slices.Sorted(maps.Keys(lives)) {
		out = append(out, lives[id])
	}
	return out
}

// records are those about the session, and more.
func (l *life) records(more ...Record) []Record {
	for _, r := range []*Record{l.opened, l.silent, l.killed, l.ended} {
		if r != nil {
			more = append(more, *r)
		}
	}
	return more
}
