package check

import (
	"maps"
	"slices"

	"github.com/coordd/coord/zxid"
)

// checkOnce follows each write by its data, if no other write has the same: it is
// one change, at one path, and none if it was not done. Versions count them, too.
func checkOnce(v *view) {
	checkTraces(v)
	checkVersions(v)
}

// trace is where the data of one write was seen.
type trace struct {
	write  *Record
	writes int // that have this data
	seen   map[place]*Record
}

// place is a change of a znode.
type place struct {
	path string
	zxid zxid.ID
}

// checkTraces looks where each write has come out.
func checkTraces(v *view) {
	traces := map[string]*trace{}
	made := map[string]bool{} // paths whose znodes were made by writes in the history
	for i := range v.writes {
		w := &v.writes[i]
		if w.Kind == Create && w.Outcome == Done {
			made[w.Made] = true
		}
		if w.Data == "" || w.Kind != Create && w.Kind != Set {
			continue
		}
		t := traces[w.Data]
		if t == nil {
			t = &trace{write: w, seen: map[place]*Record{}}
			traces[w.Data] = t
		}
		t.writes++
		if w.Outcome == Done && w.Zxid != 0 {
			t.seen[place{w.target(), w.Zxid}] = w
		}
	}
	for i := range v.all {
		v.trace(&v.all[i], traces, made)
	}
	for _, data := range slices.Sorted(maps.Keys(traces)) {
		traces[data].judge(v)
	}
}

// trace notes what data a record shows.
func (v *view) trace(r *Record, traces map[string]*trace, made map[string]bool) {
	var at zxid.ID
	switch {
	case r.Kind == Get && r.Found:
		at = r.Stat.Mzxid
	case r.Kind == Event && (r.Type == typeCreated || r.Type == typeChanged) && r.Cause == CauseRequest:
		at = r.Zxid
	}
	if at == 0 || r.NoData || r.Data == "" {
		return
	}
	t := traces[r.Data]
	switch {
	case t != nil:
		if t.seen[place{r.Path, at}] == nil {
			t.seen[place{r.Path, at}] = r
		}
	case made[r.Path]:
		v.report(RuleOnce, r.Path, []Record{*r}, "it shows %.40q, which nobody has written", r.Data)
	}
}

// judge says whether the write is where it should be.
func (t *trace) judge(v *view) {
	if t.writes > 1 || t.write.Flags&Fleeting != 0 {
		return
	}
	records := []Record{*t.write}
	for _, r := range t.seen {
		if r.N != t.write.N {
			records = append(records, *r)
		}
	}
	notDone := t.write.Outcome == Failed || t.write.Outcome == Refused
	switch {
	case notDone && len(t.seen) > 0:
		v.report(RuleOnce, t.write.Path, records, "the write was said not to be done, and it was")
	case len(t.seen) > 1:
		v.report(RuleOnce, t.write.Path, records, "one write is %d changes", len(t.seen))
	}
}

// checkVersions compares the versions that reads show with the sets of the znode.
func checkVersions(v *view) {
	sets := map[string][]*Record{}
	made := map[place]bool{}
	for i := range v.writes {
		w := &v.writes[i]
		switch {
		case w.Kind == Set && (w.Outcome == Done || w.Outcome == Unknown):
			sets[w.Path] = append(sets[w.Path], w)
		case w.Kind == Create && w.Outcome == Done:
			made[place{w.Made, w.Zxid}] = true
		}
	}
	for i := range v.all {
		r := &v.all[i]
		if r.Kind != Get || !r.Found || !made[place{r.Path, r.Stat.Czxid}] {
			continue
		}
		least, most := countSets(sets[r.Path], r)
		if r.Stat.Version < least || r.Stat.Version > most {
			v.report(RuleOnce, r.Path, []Record{*r}, "it has the version %d, and was set %d times for certain, %d at most", r.Stat.Version, least, most)
		}
	}
}

// countSets counts the sets that are certainly in what was read, and those that
// may be.
func countSets(sets []*Record, r *Record) (least, most int64) {
	for _, w := range sets {
		switch {
		case w.Outcome == Unknown && w.Begin <= r.End:
			most++
		case w.Outcome == Done && w.Zxid > r.Stat.Czxid && w.Zxid <= r.Stat.Mzxid:
			least++
			most++
		}
	}
	return least, most
}
