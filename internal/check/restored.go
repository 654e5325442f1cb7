package check

import (
	"cmp"
	"slices"

	"github.com/coordd/coord/zxid"
)

// parts cut a history at each restore: what was before says nothing about the znodes
// of afterwards. fresh are the same without the paths that were written before: how
// the backup has left them is not in the history.
func (v *view) parts() (parts, fresh []*view) {
	cuts := v.restores()
	if len(cuts) == 0 {
		return []*view{v}, []*view{v}
	}
	lists := make([][]Record, len(cuts)+1)
	sessions := v.sessionsOfWatches()
	for i := range v.all {
		r := &v.all[i]
		if at := partOf(r, sessions[r.Watch], cuts); at >= 0 {
			lists[at] = append(lists[at], *r)
		}
	}
	written := map[string]bool{}
	for _, list := range lists {
		part := viewOf(list, v.o, v.sessions, v.found)
		parts = append(parts, part)
		fresh = append(fresh, part.without(written))
		for i := range part.writes {
			written[part.writes[i].target()] = true
		}
	}
	return parts, fresh
}

// restores are those that were done, in the order of their transactions.
func (v *view) restores() []*Record {
	var cuts []*Record
	for i := range v.all {
		if r := &v.all[i]; r.Kind == Restored && r.Outcome == Done {
			cuts = append(cuts, r)
		}
	}
	slices.SortFunc(cuts, func(a, b *Record) int { return cmp.Compare(a.Zxid, b.Zxid) })
	return cuts
}

// sessionsOfWatches are those of the watches, by the numbers of their records: an
// event has that of who made the change.
func (v *view) sessionsOfWatches() map[int]sessionKey {
	out := map[int]sessionKey{}
	for i := range v.all {
		if r := &v.all[i]; r.Kind == Watching || r.Kind == Armed {
			out[r.N] = r.Session
		}
	}
	return out
}

// partOf is the part that a record belongs to. A session is of one part only: its id
// is the transaction that has opened it, and each restore ends all. What an answer
// without a zxid is about is not known, if a restore was done meanwhile: it is in
// none, which is -1.
func partOf(r *Record, watcher sessionKey, cuts []*Record) int {
	of := func(z zxid.ID) int {
		n := 0
		for n < len(cuts) && cuts[n].Zxid <= z {
			n++
		}
		return n
	}
	switch {
	case r.Kind == Settled: // it is about watches that go on
		return len(cuts)
	case r.Watch != 0:
		return of(zxid.ID(watcher))
	}
	at := max(of(r.Zxid), of(zxid.ID(r.Session)))
	reads := r.Kind == Get || r.Kind == Children
	if at < len(cuts) && r.Zxid == 0 && r.answered() && (reads || r.Outcome == Refused) && r.End >= cuts[at].Begin {
		return -1
	}
	return at
}

// without is the view less all about some paths, and less those that were written in
// one transaction with them.
func (v *view) without(paths map[string]bool) *view {
	if len(paths) == 0 {
		return v
	}
	out := map[string]bool{}
	for p := range paths {
		out[p] = true
	}
	for more := true; more; {
		more = false
		for i := range v.all {
			more = v.all[i].spread(out) || more
		}
	}
	var list []Record
	for i := range v.all {
		if r := &v.all[i]; !out[r.target()] && !r.hasOpOn(out) {
			list = append(list, *r)
		}
	}
	return viewOf(list, v.o, v.sessions, v.found)
}

func (r *Record) hasOpOn(paths map[string]bool) bool {
	return slices.ContainsFunc(r.Ops, func(op Record) bool { return paths[op.target()] })
}

// spread adds all paths of a transaction that has one of them, and says whether
// that was any.
func (r *Record) spread(paths map[string]bool) (more bool) {
	if !r.hasOpOn(paths) {
		return false
	}
	for i := range r.Ops {
		p := r.Ops[i].target()
		more = more || !paths[p]
		paths[p] = true
	}
	return more
}

// checkRestores looks at how the sessions ended that a restore has ended, and that
// no token of before is ever reached again.
func checkRestores(v *view) {
	cuts := v.restores()
	if len(cuts) == 0 {
		return
	}
	for _, l := range sortedLives(v.sessions) {
		e := l.ended
		switch {
		case l.restored == nil || l.killed != nil:
		case e == nil:
			v.report(RuleRestore, "", l.records(*l.restored), "session %s was ended by a restore, and its client has never heard of it", l.opened.Session)
		case e.Reason == ByOther, e.Reason == BySilent && e.Begin < e.Deadline-v.o.Tolerance:
			v.report(RuleRestore, "", l.records(*l.restored), "session %s was ended by a restore, and its client was told something else: %s", l.opened.Session, e.Detail)
		}
	}
	for i := range v.all {
		if r := &v.all[i]; r.Kind == Acquire && r.Outcome == Done {
			v.checkTokenAt(r, cuts)
		}
	}
}

// checkTokenAt holds a grant to the restores: its session is of before or of behind
// each, and so must its token be.
func (v *view) checkTokenAt(grant *Record, cuts []*Record) {
	for _, cut := range cuts {
		behind := zxid.ID(grant.Session) > cut.Zxid
		if behind != (grant.Token > uint64(cut.Zxid)) {
			v.report(RuleRestore, grant.Path, []Record{*cut, *grant}, "the restore is transaction %d, and session %d was given the token %d",
				uint64(cut.Zxid), uint64(grant.Session), grant.Token)
		}
	}
}
