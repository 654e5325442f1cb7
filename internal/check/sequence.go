package check

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/coordd/coord/zxid"
)

// numbered is a sequential znode that was made.
type numbered struct {
	parent string
	number int64
	zxid   zxid.ID
	record *Record
}

// checkSequences holds the numbers of sequential znodes to the order of their
// transactions, for as long as their parent is there. A number that is given twice
// while its first znode is there shows as a create that is refused.
func checkSequences(v *view) {
	byParent := map[string][]numbered{}
	var parents []string
	for i := range v.writes {
		w := &v.writes[i]
		if w.Kind != Create || w.Flags&Sequential == 0 {
			continue
		}
		if w.Outcome == Refused && w.Err == NodeExists && !v.madeWithNumber(w.Path) {
			v.report(RuleSequence, w.Path, []Record{*w}, "the name with the next number was taken, and nobody has made it")
		}
		if w.Outcome != Done {
			continue
		}
		n, ok := numberOf(w)
		if !ok {
			v.report(RuleSequence, w.Made, []Record{*w}, "it has no number behind the name")
			continue
		}
		if byParent[n.parent] == nil {
			parents = append(parents, n.parent)
		}
		byParent[n.parent] = append(byParent[n.parent], n)
	}
	fleeting := v.fleeting()
	for _, parent := range parents {
		if !fleeting[parent] { // else it may have been made anew, and nobody saw it
			v.checkRising(parent, byParent[parent])
		}
	}
}

// madeWithNumber is whether somebody may have made a znode of that name by giving
// the number himself.
func (v *view) madeWithNumber(name string) bool {
	return slices.ContainsFunc(v.writes, func(w Record) bool {
		_, ok := numberOf(&Record{Path: name, Made: w.Path})
		return ok && w.Kind == Create && w.Flags&Sequential == 0 && (w.Outcome == Done || w.Outcome == Unknown)
	})
}

func (v *view) checkRising(parent string, made []numbered) {
	slices.SortStableFunc(made, func(a, b numbered) int { return cmp.Compare(a.zxid, b.zxid) })
	for i := 1; i < len(made); i++ {
		a, b := made[i-1], made[i]
		if b.number <= a.number && !v.createdIn(parent, a.zxid, b.zxid) {
			v.report(RuleSequence, parent, []Record{*a.record, *b.record}, "number %d at %s is followed by %d at %s", a.number, a.zxid, b.number, b.zxid)
		}
	}
}

// numberOf takes the number of a sequential znode apart.
func numberOf(w *Record) (numbered, bool) {
	digits, ok := strings.CutPrefix(w.Made, w.Path)
	if !ok || len(digits) < 10 {
		return numbered{}, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return numbered{}, false
	}
	parent := w.Made[:strings.LastIndexByte(w.Made, '/')]
	return numbered{parent: cmp.Or(parent, "/"), number: n, zxid: w.Zxid, record: w}, true
}

// fleeting are the paths at which znodes stood that may go by themselves.
func (v *view) fleeting() map[string]bool {
	paths := map[string]bool{}
	for i := range v.writes {
		if w := &v.writes[i]; w.Kind == Create && w.Flags&Fleeting != 0 {
			paths[w.target()] = true
		}
	}
	return paths
}

// createdIn is whether a znode may have been made at the path between two
// transactions.
func (v *view) createdIn(path string, from, to zxid.ID) bool {
	for _, c := range v.knownIn(from, to) {
		if c.path == path && c.typ == typeCreated {
			return true
		}
	}
	return slices.ContainsFunc(v.writes, func(w Record) bool {
		return w.Kind == Create && w.Outcome == Unknown && w.Path == path
	})
}
