package check

import (
	"cmp"
	"slices"

	"github.com/coordd/coord/zxid"
)

// change is one change of a znode that is known with its transaction: from an
// answer, from the events of watches, or both.
type change struct {
	zxid zxid.ID
	path string
	typ  string // created, changed, deleted, as of events
	data string
	// hasData says that data is known.
	hasData bool
	records []Record // that tell of it
}

// Types of events that are changes.
const (
	typeCreated = "created"
	typeChanged = "changed"
	typeDeleted = "deleted"
	typeResync  = "resync"
)

type changeKey struct {
	zxid zxid.ID
	path string
	typ  string
}

func (c *change) key() changeKey { return changeKey{c.zxid, c.path, c.typ} }

// changes are all that is known, in the order of transactions. Several sets of one
// path in one transaction are one change.
func changes(writes, all []Record) []change {
	index := map[changeKey]int{}
	var out []change
	add := func(c change) {
		at, ok := index[c.key()]
		if !ok {
			index[c.key()] = len(out)
			out = append(out, c)
			return
		}
		out[at].records = append(out[at].records, c.records...)
		if !out[at].hasData {
			out[at].data, out[at].hasData = c.data, c.hasData
		}
	}
	for _, w := range writes {
		if w.Outcome == Done && w.Zxid != 0 && w.Kind != CheckAt {
			add(change{w.Zxid, w.target(), typeOf(w.Kind), w.Data, w.Kind != Delete, []Record{w}})
		}
	}
	for _, r := range all {
		if r.Kind == Event && (r.Type == typeCreated || r.Type == typeChanged || r.Type == typeDeleted) {
			add(change{r.Zxid, r.Path, r.Type, r.Data, r.Type != typeDeleted && !r.NoData, []Record{r}})
		}
	}
	slices.SortStableFunc(out, func(a, b change) int { return cmp.Compare(a.zxid, b.zxid) })
	return out
}

func typeOf(k Kind) string {
	switch k {
	case Create:
		return typeCreated
	case Set:
		return typeChanged
	default:
		return typeDeleted
	}
}

// knownIn are the known changes of transactions behind from and up to to.
func (v *view) knownIn(from, to zxid.ID) []change {
	first := firstBehind(v.known, from)
	return v.known[first:max(first, firstBehind(v.known, to))]
}

// firstBehind is the first change of a later transaction than z.
func firstBehind(changes []change, z zxid.ID) int {
	at, _ := slices.BinarySearchFunc(changes, z+1, func(c change, z zxid.ID) int { return cmp.Compare(c.zxid, z) })
	return at
}

// byPath are the known changes of each path, in order.
func (v *view) byPath() map[string][]change {
	out := map[string][]change{}
	for _, c := range v.known {
		out[c.path] = append(out[c.path], c)
	}
	return out
}
