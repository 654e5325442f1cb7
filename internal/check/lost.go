package check

import "time"

// checkLost looks for acknowledged writes that a later linearizable read does not
// show. That is also not linearizable; here it is said with fewer words.
func checkLost(v *view) {
	byPath := map[string][]*Record{}
	for i := range v.writes {
		w := &v.writes[i]
		if w.Kind != CheckAt {
			byPath[w.target()] = append(byPath[w.target()], w)
		}
	}
	for i := range v.all {
		r := &v.all[i]
		if r.Kind != Get || r.Mode != Linearizable || r.Outcome != Done {
			continue
		}
		w := lastBefore(byPath[r.Path], r)
		switch {
		case w == nil:
		case r.Found && r.Stat.Mzxid < w.Zxid:
			v.report(RuleLost, r.Path, []Record{*w, *r}, "the write at %s was acknowledged, and the read behind it shows %s", w.Zxid, r.Stat.Mzxid)
		case !r.Found:
			v.checkGone(w, r, byPath[r.Path])
		}
	}
}

// lastBefore is the newest write that was acknowledged before the read began.
func lastBefore(writes []*Record, r *Record) *Record {
	var last *Record
	for _, w := range writes {
		if w.Outcome == Done && w.Zxid != 0 && w.before(r) && (last == nil || w.Zxid > last.Zxid) {
			last = w
		}
	}
	return last
}

// checkGone asks why a znode is not there.
func (v *view) checkGone(w, r *Record, writes []*Record) {
	flags := w.Flags
	for _, o := range writes { // a set does not say what the znode is
		if o.Kind == Create {
			flags |= o.Flags
		}
		deletes := o.Kind == Delete && (o.Outcome == Done || o.Outcome == Unknown) && o.Begin <= r.End && !o.before(w)
		if deletes {
			return
		}
	}
	owner := ownerOf(w, writes)
	switch {
	case w.Kind == Delete, flags&Fleeting != 0, r.Zxid != 0 && r.Zxid < w.Zxid:
	case flags&Ephemeral == 0:
		v.report(RuleLost, r.Path, []Record{*w, *r}, "the write at %s was acknowledged, and there is no znode", w.Zxid)
	case owner != 0 && !v.mayHaveEnded(owner, r.End):
		v.report(RuleEphemeral, r.Path, v.sessions[owner].records(*w, *r), "it is gone, and its session lives as far as its client knows")
	}
}

// ownerOf is the session that the znode belongs to which w has written.
func ownerOf(w *Record, writes []*Record) sessionKey {
	for _, o := range writes {
		if o.Kind == Create && o.Outcome == Done && o.Zxid == w.Stat.Czxid {
			return o.Stat.Owner
		}
	}
	return w.Stat.Owner
}

// checkEphemerals looks for ephemerals of sessions that must be over.
func checkEphemerals(v *view) {
	for i := range v.all {
		r := &v.all[i]
		if r.Kind != Get || r.Mode != Linearizable || !r.Found || r.Stat.Owner == 0 {
			continue
		}
		l := v.sessions[r.Stat.Owner]
		if l != nil && r.Begin > l.deadBy {
			v.report(RuleEphemeral, r.Path, l.records(*r), "it is there %v after its session %s must have been over", (r.Begin - l.deadBy).Round(time.Millisecond), r.Stat.Owner)
		}
	}
}
