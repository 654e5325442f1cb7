package check

import (
	"cmp"
	"slices"

	"github.com/coordd/coord/zxid"
)

// stretch is a part of the order of transactions of which a watch has told
// everything: behind from, up to to.
type stretch struct{ from, to zxid.ID }

// told is what one watch has told.
type told struct {
	watch     *Record
	events    []*Record
	settled   zxid.ID // it went on when everything up to there was settled
	over      bool
	stretches []stretch
}

// checkWatches holds each recursive watch to what is known to have happened: every
// change once, in the order of transactions.
func checkWatches(v *view) {
	byNumber := map[int]*told{}
	var watches []*told
	for i := range v.all {
		r := &v.all[i]
		if r.Kind == Watching {
			w := &told{watch: r}
			byNumber[r.N] = w
			watches = append(watches, w)
		}
		w := byNumber[r.Watch]
		switch {
		case r.Kind == Settled:
			settle(watches, r.Zxid)
		case w == nil:
		case r.Kind == Unwatch:
			w.over = true
		case r.Kind == Event:
			w.events = append(w.events, r)
		}
	}
	for _, w := range watches {
		w.checkOrder(v)
		w.measure()
		if w.watch.Recursive {
			w.checkComplete(v)
			w.checkVersions(v)
			w.checkDeletes(v)
		}
	}
}

// settle notes what the watches that go on must have told.
func settle(watches []*told, z zxid.ID) {
	for _, w := range watches {
		if !w.over {
			w.settled = z
		}
	}
}

// checkOrder looks at the events alone.
func (w *told) checkOrder(v *view) {
	var last *Record
	for _, e := range w.events {
		switch {
		case e.Type == typeResync:
			last = nil
			continue
		case e.Zxid <= w.watch.Zxid:
			v.report(RuleWatch, e.Path, []Record{*w.watch, *e}, "the watch began behind %s and tells of %s", w.watch.Zxid, e.Zxid)
		case last == nil:
		case last.Zxid == e.Zxid && last.Index == e.Index && last.Path == e.Path:
			v.report(RuleWatch, e.Path, []Record{*last, *e}, "the watch tells of one change twice")
		case cmp.Compare(last.Zxid, e.Zxid) > 0 || last.Zxid == e.Zxid && last.Index >= e.Index:
			v.report(RuleWatch, e.Path, []Record{*last, *e}, "the watch tells of %s behind %s", e.Zxid, last.Zxid)
		case last.Zxid != e.Zxid && !last.Last:
			v.report(RuleWatch, e.Path, []Record{*last, *e}, "the watch has not told the end of transaction %s", last.Zxid)
		}
		last = e
	}
}

// measure finds out which transactions the watch has told in whole.
func (w *told) measure() {
	now := stretch{from: w.watch.Zxid, to: w.watch.Zxid}
	for _, e := range w.events {
		if e.Type == typeResync {
			w.stretches = append(w.stretches, now)
			now = stretch{e.Zxid, e.Zxid}
			continue
		}
		if e.Last {
			now.to = max(now.to, e.Zxid)
		}
	}
	now.to = max(now.to, w.settled)
	w.stretches = append(w.stretches, now)
}

// covers is whether the watch has told everything behind from up to to.
func (w *told) covers(from, to zxid.ID) bool {
	return slices.ContainsFunc(w.stretches, func(s stretch) bool { return s.from <= from && to <= s.to })
}

// checkComplete looks for known changes that the watch has not told, or otherwise.
func (w *told) checkComplete(v *view) {
	have := map[changeKey]*Record{}
	for _, e := range w.events {
		have[changeKey{e.Zxid, e.Path, e.Type}] = e
	}
	for _, s := range w.stretches {
		for _, c := range v.knownIn(s.from, s.to) {
			if !within(c.path, w.watch.Path) {
				continue
			}
			e := have[c.key()]
			switch {
			case e == nil:
				v.report(RuleWatch, c.path, append([]Record{*w.watch}, c.records...), "the watch of %s does not tell what %s has %s", w.watch.Client, c.zxid, c.typ)
			case !e.NoData && c.hasData && e.Data != c.data && !differ(c.records[:1]) && !severalWrites(c.records):
				v.report(RuleWatch, c.path, append([]Record{*e}, c.records...), "the watch tells other data of %s", c.zxid)
			}
		}
	}
}

// checkVersions counts the sets that the watch has told: the version of a znode is
// how many there were.
func (w *told) checkVersions(v *view) {
	sets := map[string][]zxid.ID{}
	for _, e := range w.events {
		if e.Type == typeChanged {
			sets[e.Path] = append(sets[e.Path], e.Zxid)
		}
	}
	fleeting := v.fleeting()
	check := func(r *Record) {
		path, st := r.target(), r.Stat
		if r.Outcome != Done || st.Czxid == 0 || fleeting[path] || !within(path, w.watch.Path) || !w.covers(st.Czxid-1, st.Mzxid) {
			return
		}
		from, _ := slices.BinarySearch(sets[path], st.Czxid+1)
		to, _ := slices.BinarySearch(sets[path], st.Mzxid+1)
		if st.Version != int64(to-from) {
			v.report(RuleWatch, path, []Record{*w.watch, *r}, "it has the version %d, and the watch of %s has told %d sets", st.Version, w.watch.Client, to-from)
		}
	}
	for i := range v.all { // a transaction may set a path twice, and tell of both at its end
		if r := &v.all[i]; r.Kind == Set || r.Kind == Get {
			check(r)
		}
	}
}

// severalWrites is whether a transaction has set the path more than once: then the
// watch tells of each, and the change has one key.
func severalWrites(records []Record) bool {
	n := 0
	for _, r := range records {
		if r.isWrite() {
			n++
		}
	}
	return n > 1
}

// checkDeletes looks for deletions that were acknowledged: the answer does not tell
// the transaction, but it is between what was seen before and what was written
// afterwards.
func (w *told) checkDeletes(v *view) {
	var done []*Record
	for i := range v.writes {
		if d := &v.writes[i]; d.Kind == Delete && d.Outcome == Done && d.Zxid == 0 && within(d.Path, w.watch.Path) {
			done = append(done, d)
		}
	}
	if len(done) == 0 {
		return
	}
	b := newBrackets(v)
	for _, d := range done {
		from, to := b.before(d), b.after(d)
		if to == 0 || !w.covers(from, to) {
			continue
		}
		found := slices.ContainsFunc(w.events, func(e *Record) bool {
			return e.Type == typeDeleted && e.Path == d.Path && e.Zxid > from && e.Zxid < to
		})
		if !found {
			v.report(RuleWatch, d.Path, []Record{*w.watch, *d}, "the watch of %s does not tell the deletion, between %s and %s", w.watch.Client, from, to)
		}
	}
}

// brackets find the transactions between which a record is.
type brackets struct {
	ends   []*Record // that show a transaction, by End
	begins []*Record // writes whose transaction is known, by Begin
	upTo   []zxid.ID // the newest that ends up to there show
	from   []zxid.ID // the oldest that begins from there on have
}

func newBrackets(v *view) *brackets {
	b := &brackets{}
	for i := range v.all {
		r := &v.all[i]
		if shown(r) != 0 && r.answered() {
			b.ends = append(b.ends, r)
		}
		if r.Zxid != 0 && r.Outcome == Done && (r.isWrite() || r.Kind == Txn) {
			b.begins = append(b.begins, r)
		}
	}
	slices.SortStableFunc(b.ends, func(x, y *Record) int { return cmp.Compare(x.End, y.End) })
	slices.SortStableFunc(b.begins, func(x, y *Record) int { return cmp.Compare(x.Begin, y.Begin) })
	newest := zxid.ID(0)
	for _, r := range b.ends {
		newest = max(newest, shown(r))
		b.upTo = append(b.upTo, newest)
	}
	b.from = make([]zxid.ID, len(b.begins))
	oldest := zxid.ID(0)
	for i := len(b.begins) - 1; i >= 0; i-- {
		if z := b.begins[i].Zxid; oldest == 0 || z < oldest {
			oldest = z
		}
		b.from[i] = oldest
	}
	return b
}

// before is the newest transaction that was known before the record began.
func (b *brackets) before(r *Record) zxid.ID {
	n, _ := slices.BinarySearchFunc(b.ends, r, func(e, r *Record) int { return cmp.Compare(e.End, r.Begin) })
	if n == 0 {
		return 0
	}
	return b.upTo[n-1]
}

// after is the oldest transaction of a write that began when the record was
// answered, 0 if there is none.
func (b *brackets) after(r *Record) zxid.ID {
	n, _ := slices.BinarySearchFunc(b.begins, r, func(e, r *Record) int { return cmp.Compare(e.Begin, r.End+1) })
	if n == len(b.begins) {
		return 0
	}
	return b.from[n]
}
