package watch

// Subscriber is who gets the events: a connection. Its owner makes it, hands it
// to one Table only, and calls RemoveAll when the connection ends. The zero
// value is ready.
type Subscriber struct {
	// Merge is set for ZooKeeper connections, before the first Add. They know
	// their watches by path and kind, not by id; data and exists are one kind;
	// however many of their watches an event matches, they get it once; and they
	// get no ACLChanged.
	Merge bool
	// Data is the owner's.
	Data any

	byID   map[uint64]*watch
	byPath map[pathKind]*watch
	stage  uint64 // the last one of which a Merge subscriber got the event
}

type pathKind struct {
	path string
	kind Kind
}

// watch is one registration. There may be a million of them: 64 bytes each.
type watch struct {
	sub        *Subscriber
	id         uint64
	path       string
	next, prev *watch // others in the same list
	twin       *watch // the other half of a Persistent watch
	mark       uint32 // used by Fire: 1 + index of the last change it fires on
	kind       Kind
	list       list
}

// list is one of the three tables of the Table.
type list uint8

const (
	ownList       list = iota // fires on changes of the path itself
	childList                 // fires on its children that come and go, and on its end
	recursiveList             // fires on the path and everything below
	numLists
)

// Table holds the watches of one server. See [NewTable].
//
// Invariants: lists[l][p] is the head of a list of all watches on p in l and
// never nil; each watch is in the index of its subscriber; counts[k] is the
// number of watches of kind k, a Persistent one counted once.
type Table struct {
	lists  [numLists]map[string]*watch
	peak   [numLists]int // paths the map has room for
	counts [NumKinds]int
	stage  uint64
}

// keptPaths is the room for paths that a list keeps when it is empty. A map
// gives no memory back by itself, so a larger one is replaced.
const keptPaths = 1024

// NewTable returns an empty table.
func NewTable() *Table {
	t := &Table{}
	for l := range t.lists {
		t.lists[l] = make(map[string]*watch)
	}
	return t
}

// Add registers a watch. It reports false, and does nothing, if the subscriber
// has it already: one with the same id, or, for a Merge subscriber, with the
// same path and kind. The znode need not exist and the path is not checked.
func (t *Table) Add(s *Subscriber, id uint64, path string, k Kind) bool {
	if s.Merge {
		return t.addMerged(s, path, k)
	}
	if s.byID[id] != nil {
		return false
	}
	w := &watch{sub: s, id: id, path: path, kind: k, list: listOf(k)}
	if k == Persistent {
		w.twin = &watch{sub: s, id: id, path: path, kind: k, list: childList, twin: w}
		t.link(w.twin)
	}
	t.link(w)
	t.counts[k]++
	if s.byID == nil {
		s.byID = make(map[uint64]*watch)
	}
	s.byID[id] = w
	return true
}

// addMerged keeps the two halves of a Persistent watch as two watches: a
// ZooKeeper client can remove one of them.
func (t *Table) addMerged(s *Subscriber, path string, k Kind) bool {
	if k == Persistent {
		node := t.addMerged(s, path, Node)
		return t.addMerged(s, path, Children) || node
	}
	k = merged(k)
	key := pathKind{path, k}
	if s.byPath[key] != nil {
		return false
	}
	w := &watch{sub: s, path: path, kind: k, list: listOf(k)}
	t.link(w)
	t.counts[k]++
	if s.byPath == nil {
		s.byPath = make(map[pathKind]*watch)
	}
	s.byPath[key] = w
	return true
}

// Each hands the watches to f, in no order, until f reports false; f must not call
// the table. Of a Persistent watch of a Merge subscriber both halves come, of others
// one.
func (t *Table) Each(f func(s *Subscriber, path string, k Kind) bool) {
	for _, heads := range t.lists {
		for _, w := range heads {
			for ; w != nil; w = w.next {
				if second := w.kind == Persistent && w.list != ownList; !second && !f(w.sub, w.path, w.kind) {
					return
				}
			}
		}
	}
}

// merged is the kind under which a Merge subscriber has a watch.
func merged(k Kind) Kind {
	if k == OneShotExists {
		return OneShotData
	}
	return k
}

func listOf(k Kind) list {
	switch k {
	case OneShotChildren, Children:
		return childList
	case Recursive:
		return recursiveList
	default:
		return ownList
	}
}

func (t *Table) link(w *watch) {
	m := t.lists[w.list]
	w.next = m[w.path]
	if w.next != nil {
		w.next.prev = w
	}
	m[w.path] = w
	t.peak[w.list] = max(t.peak[w.list], len(m))
}

// unlink leaves next as it is, so that a walk along the list may go on.
func (t *Table) unlink(w *watch) {
	if w.next != nil {
		w.next.prev = w.prev
	}
	m := t.lists[w.list]
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		m[w.path] = w.next
	default:
		delete(m, w.path)
		if len(m) == 0 && t.peak[w.list] > keptPaths {
			t.lists[w.list] = make(map[string]*watch)
			t.peak[w.list] = 0
		}
	}
}

// drop takes a watch out of the table and out of its subscriber's index.
func (t *Table) drop(w *watch) {
	t.unlink(w)
	if w.twin != nil {
		t.unlink(w.twin)
	}
	t.counts[w.kind]--
	s := w.sub
	if s.Merge {
		delete(s.byPath, pathKind{w.path, w.kind})
		if len(s.byPath) == 0 {
			s.byPath = nil
		}
		return
	}
	delete(s.byID, w.id)
	if len(s.byID) == 0 {
		s.byID = nil
	}
}

// Remove takes out the watch with the id and reports whether it was there. It
// gives no event. A Merge subscriber has no ids.
func (t *Table) Remove(s *Subscriber, id uint64) bool {
	w := s.byID[id]
	if w == nil {
		return false
	}
	t.drop(w)
	return true
}

// RemovePath takes out the watches of these kinds that a Merge subscriber has on
// path and reports whether there was any. A Persistent watch is a Node and a
// Children watch here, either of which may be removed alone.
func (t *Table) RemovePath(s *Subscriber, path string, kinds ...Kind) bool {
	removed := false
	for _, k := range kinds {
		if k == Persistent {
			removed = t.RemovePath(s, path, Node, Children) || removed
			continue
		}
		if w := s.byPath[pathKind{path, merged(k)}]; w != nil {
			t.drop(w)
			removed = true
		}
	}
	return removed
}

// Has reports whether a Merge subscriber has a watch of one of these kinds on
// path; of a Persistent one, half is enough.
func (t *Table) Has(s *Subscriber, path string, kinds ...Kind) bool {
	for _, k := range kinds {
		if k == Persistent && t.Has(s, path, Node, Children) || s.byPath[pathKind{path, merged(k)}] != nil {
			return true
		}
	}
	return false
}

// HasID reports whether the subscriber has a watch with the id.
func (t *Table) HasID(s *Subscriber, id uint64) bool { return s.byID[id] != nil }

// RemoveAll takes out every watch of the subscriber, in time proportional to
// their number.
func (t *Table) RemoveAll(s *Subscriber) {
	for t.RemoveSome(s, 1<<20) {
	}
}

// RemoveSome takes out up to n watches of the subscriber, n > 0, and reports whether
// there are more.
func (t *Table) RemoveSome(s *Subscriber, n int) (more bool) {
	for _, w := range s.byID {
		if n == 0 {
			break
		}
		t.drop(w)
		n--
	}
	for _, w := range s.byPath {
		if n == 0 {
			break
		}
		t.drop(w)
		n--
	}
	return t.CountOf(s) > 0
}

// Count is the number of watches of kind k. A Persistent watch of a Merge
// subscriber counts as a Node and a Children one, its exists as data.
func (t *Table) Count(k Kind) int { return t.counts[k] }

// Len is the number of watches of all kinds.
func (t *Table) Len() int {
	n := 0
	for _, c := range t.counts {
		n += c
	}
	return n
}

// CountOf is the number of watches of the subscriber.
func (t *Table) CountOf(s *Subscriber) int { return len(s.byID) + len(s.byPath) }
