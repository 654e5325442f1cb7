package znode

import (
	"fmt"
	"strings"
)

// Entry is one node of a walk.
type Entry struct {
	Path string
	Stat Stat
	Data []byte // as Get returns it
	// Denied is set when the caller may not read the node: then there is no
	// data, and the walk does not go below it.
	Denied bool
}

// Walk returns up to limit nodes of the subtree at path, each parent before its
// children, those in ascending order, and whether there are more. It begins
// behind the path after, or with the node at path itself if after is "". The
// node after may be gone by then; the walk goes on where it was. The cost is
// that of the page, as for ChildrenPage. The error is [ErrNoNode] or
// [ErrNoAuth] for the node at path, or [ErrBadArguments] if after is not in the
// subtree.
func (t *Tree) Walk(path string, c *Caller, after string, limit int) ([]Entry, bool, error) {
	top, err := t.readable(path, PermRead, c)
	if err != nil {
		return nil, false, err
	}
	w := walker{t: t, c: c, limit: limit}
	if after == "" {
		if limit <= 0 {
			return nil, true, nil
		}
		w.visit(path, top)
	} else if err := w.resume(path, top, after); err != nil {
		return nil, false, err
	}
	w.run()
	return w.entries, w.open() != nil, nil
}

// walker is a walk in progress: a stack of lists of children that have been
// gone through up to a place.
type walker struct {
	t       *Tree
	c       *Caller
	limit   int
	stack   []level
	entries []Entry
}

type level struct {
	parent string
	kids   *list
	at     place
}

func (w *walker) run() {
	for len(w.entries) < w.limit {
		l := w.open()
		if l == nil {
			return
		}
		n := w.t.nodes.at(l.kids.get(l.at))
		l.at = l.kids.next(l.at)
		w.visit(join(l.parent, n.name()), n)
	}
}

// open returns the innermost level that has nodes left, or nil.
func (w *walker) open() *level {
	for len(w.stack) > 0 {
		l := &w.stack[len(w.stack)-1]
		if l.kids.get(l.at) != 0 {
			return l
		}
		w.stack = w.stack[:len(w.stack)-1]
	}
	return nil
}

func (w *walker) visit(path string, n *node) {
	e := Entry{Path: path, Stat: w.t.stat(n)}
	if w.t.permits(n, PermRead, w.c) {
		e.Data = n.data()
		w.push(path, n, place{})
	} else {
		e.Denied = true
	}
	w.entries = append(w.entries, e)
}

func (w *walker) push(path string, n *node, at place) {
	if l := w.t.children(n); l != nil {
		w.stack = append(w.stack, level{path, l, at})
	}
}

// resume sets the stack to right behind the path after. It goes down the same
// way as the walk did, as far as the nodes are still there and may be read.
func (w *walker) resume(path string, n *node, after string) error {
	rest, ok := strings.CutPrefix(after, path)
	if path == root && strings.HasPrefix(after, root) {
		rest = strings.TrimSuffix(after, root)
	}
	if !ok || rest != "" && rest[0] != '/' {
		return fmt.Errorf("walk %s: %w: %s is not below it", path, ErrBadArguments, after)
	}
	for rest != "" {
		name, more, _ := strings.Cut(rest[1:], "/")
		l := w.t.children(n)
		if l == nil || !w.t.permits(n, PermRead, w.c) {
			return nil
		}
		at := w.t.childPlace(l, name)
		i := l.get(at)
		if i == 0 || w.t.nodes.at(i).name() != name {
			w.push(path, n, at)
			return nil
		}
		w.push(path, n, l.next(at))
		path, n = join(path, name), w.t.nodes.at(i)
		if rest = ""; more != "" {
			rest = "/" + more
		}
	}
	if w.t.permits(n, PermRead, w.c) {
		w.push(path, n, place{})
	}
	return nil
}
