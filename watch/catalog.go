package watch

import "github.com/coordd/coord/znode"

// catalog finds the changes of a history that concern one znode. A watch that
// resumes can look at every change since; a client that comes back with tens of
// thousands of watches cannot, as the cost is the product of both. Nobody pays
// for a catalog before that: it is made when looking has cost more than making
// it, and goes when the history has moved past what it knows.
//
// Invariant: it knows every change kept in [from, next), and perhaps changes
// that were dropped since.
type catalog struct {
	from, next uint64
	newest     map[string]int32 // path: its newest entry
	entries    []entry
}

// entry is a change that a watch on some path may fire on.
type entry struct {
	change uint64 // its number in the history
	older  int32  // the next older entry of that path, -1: none
}

// catalogAfter is how many changes are looked at in vain, for each one kept,
// before a catalog is made. Making it costs about as much.
const catalogAfter = 16

// spare says whether more than half of what c knows was dropped.
func (c *catalog) spare(first uint64) bool {
	return first > c.from && first-c.from > (c.next-c.from)/2
}

func (c *catalog) add(n uint64, change *znode.Change) {
	c.enter(change.Path, n)
	if changesChildren(change) {
		c.enter(parent(change.Path), n)
	}
	c.next = n + 1
}

func (c *catalog) enter(path string, n uint64) {
	older, ok := c.newest[path]
	if !ok {
		older = -1
	}
	c.newest[path] = int32(len(c.entries))
	c.entries = append(c.entries, entry{n, older})
}

// since returns the numbers of the changes from n on that concern the path, the
// newest first.
func (c *catalog) since(n uint64, path string) (changes []uint64) {
	i, ok := c.newest[path]
	if !ok {
		return nil
	}
	for ; i >= 0 && c.entries[i].change >= n; i = c.entries[i].older {
		changes = append(changes, c.entries[i].change)
	}
	return changes
}

// catalog returns an up to date catalog, or nil while looking at count changes
// is cheaper.
func (h *History) catalog(count uint64) *catalog {
	if h.cat == nil {
		if h.looked += count; h.looked <= catalogAfter*uint64(h.Len()) {
			return nil
		}
	}
	if h.cat == nil || h.cat.spare(h.first) {
		h.looked = 0
		h.cat = &catalog{from: h.first, next: h.first, newest: make(map[string]int32)}
	}
	for c := h.cat; c.next < h.next; {
		c.add(c.next, &h.at(c.next).change)
	}
	return h.cat
}
