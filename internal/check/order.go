package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/coordd/coord/zxid"
)

// moment is one end of a record on the way through time.
type moment struct {
	at    time.Duration
	begin bool
	r     *Record
}

// moments are the beginnings and ends of the records, in the order of time. Of two
// at one time the beginning comes first: then neither was before the other.
func moments(records []*Record) []moment {
	var out []moment
	for _, r := range records {
		out = append(out, moment{r.Begin, true, r})
		if r.answered() || r.Kind == Event {
			out = append(out, moment{r.End, false, r})
		}
	}
	slices.SortStableFunc(out, func(a, b moment) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		switch {
		case a.begin == b.begin:
			return 0
		case a.begin:
			return -1
		default:
			return 1
		}
	})
	return out
}

// shown is the newest transaction that a record shows to have been committed.
func shown(r *Record) zxid.ID {
	if r.Outcome == Unknown || r.Outcome == Failed {
		return 0
	}
	z := max(r.Zxid, r.Stat.Mzxid, r.Stat.Czxid)
	for i := range r.Ops {
		z = max(z, shown(&r.Ops[i]))
	}
	return z
}

// newest remembers the newest transaction that was shown, and by which record.
type newest struct {
	zxid zxid.ID
	by   *Record
}

func (n *newest) see(r *Record) {
	if z := shown(r); z > n.zxid {
		n.zxid, n.by = z, r
	}
}

// checkOrder holds writes to the order of their zxids: one that began when another
// was answered has the larger one, whoever made them.
func checkOrder(v *view) {
	var writes []*Record
	for i := range v.all {
		if r := &v.all[i]; r.isWrite() || r.Kind == Txn {
			writes = append(writes, r)
		}
	}
	var done newest
	before := map[*Record]newest{}
	for _, m := range moments(writes) {
		if m.begin {
			before[m.r] = done
			continue
		}
		if m.r.Outcome != Done || m.r.Zxid == 0 {
			continue
		}
		if b := before[m.r]; b.by != nil && b.zxid >= m.r.Zxid {
			v.report(RuleOrder, m.r.target(), []Record{*b.by, *m.r}, "a later write has the zxid %s, not above %s", m.r.Zxid, b.zxid)
		}
		if m.r.Zxid > done.zxid {
			done = newest{m.r.Zxid, m.r}
		}
	}
	checkSubmission(v, writes)
	checkLate(v, writes)
}

// checkLate looks at writes whose outcome was not told and that were done: their
// data was seen. The session's later writes, which began when that was known, must
// be later.
func checkLate(v *view, writes []*Record) {
	done := v.seenAt()
	bySession := map[sessionKey][]*Record{}
	for _, r := range writes {
		bySession[r.Session] = append(bySession[r.Session], r)
	}
	for _, unknown := range writes {
		z := done[unknown.Data]
		if unknown.Outcome != Unknown || z == 0 || unknown.Data == "" || unknown.Session == 0 {
			continue
		}
		for _, later := range bySession[unknown.Session] {
			if later.Outcome == Done && later.Zxid != 0 && later.Zxid < z && unknown.End < later.Begin {
				v.report(RuleOrder, unknown.Path, []Record{*unknown, *later}, "the session's earlier write was done at %s, behind its later one at %s", z, later.Zxid)
				break
			}
		}
	}
}

// seenAt is where data that only one write has was first seen.
func (v *view) seenAt() map[string]zxid.ID {
	writes := map[string]int{}
	for i := range v.writes {
		writes[v.writes[i].Data]++
	}
	seen := map[string]zxid.ID{}
	see := func(data string, z zxid.ID) {
		if old := seen[data]; writes[data] == 1 && (old == 0 || z < old) {
			seen[data] = z
		}
	}
	for i := range v.all {
		switch r := &v.all[i]; {
		case r.NoData:
		case r.Kind == Get && r.Found:
			see(r.Data, r.Stat.Mzxid)
		case r.Kind == Event && (r.Type == typeCreated || r.Type == typeChanged) && r.Cause == CauseRequest:
			see(r.Data, r.Zxid)
		}
	}
	return seen
}

// checkSubmission holds the writes of a client to the order in which it has
// submitted them.
func checkSubmission(v *view, writes []*Record) {
	submitted := slices.DeleteFunc(slices.Clone(writes), func(r *Record) bool { return r.Seq == 0 || r.Zxid == 0 })
	slices.SortStableFunc(submitted, func(a, b *Record) int { return cmp.Compare(a.Seq, b.Seq) })
	last := map[sessionKey]*Record{}
	for _, r := range submitted {
		if p := last[r.Session]; p != nil && p.Client == r.Client && p.Zxid >= r.Zxid {
			v.report(RuleOrder, r.Path, []Record{*p, *r}, "the session's later write has the zxid %s, not above %s", r.Zxid, p.Zxid)
		}
		last[r.Session] = r
	}
}

// checkFresh holds reads to what was seen before they began: linearizable ones to
// what anybody has seen, the others to what their session has.
func checkFresh(v *view) {
	var seen newest
	bySession := map[sessionKey]*newest{}
	type bound struct{ all, session newest }
	before := map[*Record]bound{}
	var records []*Record
	for i := range v.all {
		records = append(records, &v.all[i])
	}
	for _, m := range moments(records) {
		own := bySession[m.r.Session]
		if own == nil {
			own = &newest{}
			bySession[m.r.Session] = own
		}
		if m.begin && m.r.Kind != Event {
			before[m.r] = bound{seen, *own}
			continue
		}
		if b, ok := before[m.r]; ok && m.r.Mode != "" && m.r.Zxid != 0 {
			v.checkFreshOf(m.r, b.all, b.session)
		}
		seen.see(m.r)
		if m.r.Kind != Event { // its session is that which has made the change
			own.see(m.r)
		}
	}
}

func (v *view) checkFreshOf(r *Record, all, session newest) {
	switch {
	case r.Mode == Linearizable && r.Zxid < all.zxid:
		v.report(RuleFresh, r.Path, []Record{*all.by, *r}, "a linearizable read is of %s, older than %s, which was known before it began", r.Zxid, all.zxid)
	case r.Zxid < session.zxid:
		v.report(RuleSession, r.Path, []Record{*session.by, *r}, "the session has seen %s, and is then shown %s", session.zxid, r.Zxid)
	}
}

// checkSnapshots holds each read to the zxid that it says it is of: what is known
// to have happened up to there must be in it, and what is in it must have happened.
func checkSnapshots(v *view) {
	paths := v.byPath()
	for i := range v.all {
		r := &v.all[i]
		if r.Kind != Get || !r.Found || r.Outcome != Done || r.Zxid == 0 {
			continue
		}
		if r.Stat.Mzxid > r.Zxid || r.Stat.Czxid > r.Stat.Mzxid {
			v.report(RuleSnapshot, r.Path, []Record{*r}, "it was read at %s and has a change of later", r.Zxid)
		}
		changes := paths[r.Path]
		for at := firstBehind(changes, r.Stat.Mzxid); at < len(changes) && changes[at].zxid <= r.Zxid; at++ {
			v.report(RuleSnapshot, r.Path, append([]Record{*r}, changes[at].records...), "the read of %s does not show what %s has %s", r.Zxid, changes[at].zxid, changes[at].typ)
		}
		v.checkData(r, changes)
	}
}

// checkData holds the data that a read shows to what the transaction wrote that it
// names.
func (v *view) checkData(r *Record, changes []change) {
	first := firstBehind(changes, r.Stat.Mzxid-1)
	wrote, told := false, []Record(nil)
	for _, c := range changes[first:] {
		if c.zxid != r.Stat.Mzxid {
			break
		}
		if c.typ == typeDeleted || !c.hasData || r.NoData || len(c.records) > 1 && differ(c.records) {
			return
		}
		wrote = wrote || c.data == r.Data
		told = append(told, c.records...)
	}
	if len(told) > 0 && !wrote {
		v.report(RuleSnapshot, r.Path, append(told, *r), "the read shows %.40q, which %s has not written", r.Data, r.Stat.Mzxid)
	}
}

// differ is whether records of one change name different data: several sets of one
// transaction.
func differ(records []Record) bool {
	return slices.ContainsFunc(records, func(r Record) bool { return r.Data != records[0].Data })
}
