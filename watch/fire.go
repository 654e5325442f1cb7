package watch

import "github.com/coordd/coord/znode"

// Fire hands the events of one transaction to emit, in the order of its
// changes, for each change those of the znode itself before those of its
// parent. One-shot watches are removed as they fire. The cost is that of the
// events and, for each change, one look-up for each level of its path.
//
// emit must not call the table, and Event.Change is good only until it returns.
func (t *Table) Fire(changes []znode.Change, emit func(Event)) {
	if t.Len() == 0 {
		return
	}
	f := firing{t: t, changes: changes, emit: emit}
	if len(changes) > 1 {
		f.markLast()
	}
	for i := range changes {
		f.index = uint32(i)
		f.fireChange(&changes[i])
	}
}

// firing is one call of Fire.
type firing struct {
	t       *Table
	changes []znode.Change
	emit    func(Event)
	index   uint32
}

// markLast writes down, at each lasting watch that will fire, the last change
// it fires on. Going over the watches twice costs less than keeping the events
// of a large transaction until its end is known.
func (f *firing) markLast() {
	if !f.t.anyLasting() {
		return
	}
	for i := range f.changes {
		f.t.walk(&f.changes[i], func(w *watch, _ EventType) {
			w.owner().mark = uint32(i) + 1
		}, nil)
	}
}

func (t *Table) anyLasting() bool {
	return t.counts[Node]+t.counts[Children]+t.counts[Persistent]+t.counts[Recursive] > 0
}

// owner is the half of a Persistent watch that keeps its mark.
func (w *watch) owner() *watch {
	if w.twin != nil && w.list == childList {
		return w.twin
	}
	return w
}

func (f *firing) fireChange(c *znode.Change) {
	f.t.walk(c, func(w *watch, typ EventType) {
		f.fire(w, typ, c)
	}, func() { f.t.stage++ })
}

func (f *firing) fire(w *watch, typ EventType, c *znode.Change) {
	s := w.sub
	oneShot := w.kind.OneShot()
	if oneShot {
		f.t.drop(w)
	}
	e := Event{Sub: s, Type: typ, Path: c.Path, Index: f.index, OneShot: oneShot, Change: c}
	if typ == ChildrenChanged {
		e.Path = w.path
	}
	if s.Merge {
		if typ == ACLChanged || s.stage == f.t.stage {
			return
		}
		s.stage = f.t.stage
		f.emit(e)
		return
	}
	e.Watch = w.id
	e.Last = oneShot || len(f.changes) == 1 || w.owner().mark == f.index+1
	f.emit(e)
}

// walk visits the watches that a change fires, in order. A stage is the event
// of the znode itself, or that of its parent; each is begun with stage, if that
// is not nil. visit may drop the watch it is given.
func (t *Table) walk(c *znode.Change, visit func(*watch, EventType), stage func()) {
	own := ownEvent[c.Type]
	if stage != nil {
		stage()
	}
	t.walkOwn(c, own, visit)
	t.walkAbove(c, own, visit)
	if c.Type == znode.Deleted {
		t.walkEnd(c, visit)
	}
	if changesChildren(c) {
		if stage != nil {
			stage()
		}
		t.walkChildren(parent(c.Path), visit)
	}
}

func (t *Table) walkOwn(c *znode.Change, own EventType, visit func(*watch, EventType)) {
	for w := t.lists[ownList][c.Path]; w != nil; {
		next := w.next
		if seesOwn[w.kind]&bit(c.Type) != 0 {
			visit(w, own)
		}
		w = next
	}
}

// walkAbove visits the recursive watches on the path and on all above it.
func (t *Table) walkAbove(c *znode.Change, own EventType, visit func(*watch, EventType)) {
	m := t.lists[recursiveList]
	if len(m) == 0 {
		return
	}
	for p := c.Path; p != ""; p = parent(p) {
		for w := m[p]; w != nil; w = w.next {
			visit(w, own)
		}
	}
}

// walkEnd visits the child watches on a znode that is gone. Of a Persistent one
// the other half was visited already.
func (t *Table) walkEnd(c *znode.Change, visit func(*watch, EventType)) {
	for w := t.lists[childList][c.Path]; w != nil; {
		next := w.next
		if w.kind != Persistent {
			visit(w, Deleted)
		}
		w = next
	}
}

func (t *Table) walkChildren(path string, visit func(*watch, EventType)) {
	for w := t.lists[childList][path]; w != nil; {
		next := w.next
		visit(w, ChildrenChanged)
		w = next
	}
}
