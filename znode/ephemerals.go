package znode

import (
	"slices"

	"github.com/coordd/coord/session"
)

// EphemeralsOf returns up to limit paths of the session's ephemerals that are at
// path or below and sort behind after ("" is before all), in ascending order, and
// whether there are more; a limit of 0 is none. Those whose parent the caller may
// not read are left out: it could not list them either. A path that is not there
// has none below it. It looks at all ephemerals of the session.
func (t *Tree) EphemeralsOf(s session.ID, path, after string, limit int, c *Caller) (paths []string, more bool) {
	l, top := t.owners[s], t.find(path)
	if l == nil || top == 0 {
		return []string{}, false
	}
	f := first{after: after, limit: limit, paths: []string{}}
	l.each(func(i uint32) bool {
		if t.below(i, top) && t.permits(t.nodes.at(t.nodes.at(i).parent), PermRead, c) {
			f.add(t.path(i))
		}
		return true
	})
	return f.page()
}

// below says whether node i is the node top or below it.
func (t *Tree) below(i, top uint32) bool {
	for i != top && i != rootNumber {
		i = t.nodes.at(i).parent
	}
	return i == top
}

// first picks the first paths of many that come in no order: a page of a long list
// must not cost sorting all of it.
type first struct {
	after string
	limit int
	paths []string
	bound string // nothing from here on is on the page; "" is no bound
}

func (f *first) add(path string) {
	if path <= f.after || f.bound != "" && path >= f.bound {
		return
	}
	if f.paths = append(f.paths, path); f.limit > 0 && len(f.paths) > 2*f.limit {
		slices.Sort(f.paths)
		f.paths = f.paths[:f.limit+1]
		f.bound = f.paths[f.limit]
	}
}

func (f *first) page() (paths []string, more bool) {
	slices.Sort(f.paths)
	if f.limit > 0 && len(f.paths) > f.limit {
		return f.paths[:f.limit], true
	}
	return f.paths, false
}
