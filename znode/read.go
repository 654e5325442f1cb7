package znode

import (
	"slices"
	"strings"

	"github.com/coordd/coord/session"
)

// readable finds a node that the caller may use in one of the ways.
func (t *Tree) readable(path string, perms uint32, c *Caller) (*node, error) {
	i := t.find(path)
	if i == 0 {
		return nil, ErrNoNode
	}
	n := t.nodes.at(i)
	if !t.permits(n, perms, c) {
		return nil, ErrNoAuth
	}
	return n, nil
}

// Get returns the data and Stat of the node at path. Data that is null comes as
// nil. It must not be changed, and stays as it is after later writes. The error
// is [ErrNoNode], for a malformed path too, or [ErrNoAuth].
func (t *Tree) Get(path string, c *Caller) ([]byte, Stat, error) {
	n, err := t.readable(path, PermRead, c)
	if err != nil {
		return nil, Stat{}, err
	}
	return n.data(), t.stat(n), nil
}

// Exists returns the Stat of the node at path, if it is there. It asks for no
// permission, as in ZooKeeper.
func (t *Tree) Exists(path string) (Stat, bool) {
	i := t.find(path)
	if i == 0 {
		return Stat{}, false
	}
	return t.stat(t.nodes.at(i)), true
}

// ACL returns the ACL list of the node at path, for a caller with READ or ADMIN
// on it. Without ADMIN the secrets of digests are left out.
func (t *Tree) ACL(path string, c *Caller) ([]ACL, Stat, error) {
	n, err := t.readable(path, PermRead|PermAdmin, c)
	if err != nil {
		return nil, Stat{}, err
	}
	entries := t.acls.list(n.acl)
	hides := func(a ACL) bool { return a.Scheme == schemeDigest }
	if slices.ContainsFunc(entries, hides) && !Permits(entries, PermAdmin, c) {
		entries = maskACL(entries)
	}
	return entries, t.stat(n), nil
}

// Children returns the names of all children of the node at path, in ascending
// order. Without children the list is empty, never nil.
func (t *Tree) Children(path string, c *Caller) ([]string, Stat, error) {
	names, _, st, err := t.ChildrenPage(path, "", 0, c)
	return names, st, err
}

// ChildrenPage returns up to limit names of children that sort behind after
// ("" is before all), in ascending order, and whether there are more; a limit
// of 0 is none. The names are kept in order as children come and go, so a page
// costs a binary search and its own size, however many children there are.
// Pages taken at different times see each child that was there all the time
// exactly once. The names share memory with the data of the nodes: who keeps
// one for long should clone it.
func (t *Tree) ChildrenPage(path, after string, limit int, c *Caller) (names []string, more bool, st Stat, err error) {
	n, err := t.readable(path, PermRead, c)
	if err != nil {
		return nil, false, Stat{}, err
	}
	st = t.stat(n)
	l := t.children(n)
	if l == nil {
		return []string{}, false, st, nil
	}
	from := l.search(func(k uint32) bool { return t.nodes.at(k).name() <= after })
	names, more = t.names(l, from, limit)
	return names, more, st, nil
}

// names takes names from the list. They are parts of the nodes' own memory, so
// a million of them cost their headers.
func (t *Tree) names(l *list, from place, limit int) (names []string, more bool) {
	if limit <= 0 {
		limit = l.n
	}
	names = make([]string, 0, min(limit, l.n))
	p := from
	for i := l.get(p); i != 0 && len(names) < limit; i = l.get(p) {
		names = append(names, t.nodes.at(i).name())
		p = l.next(p)
	}
	return names, l.get(p) != 0
}

// Ephemerals returns the paths of the session's ephemerals that begin with the
// prefix, as strings (not path-wise; "" and "/" are all), in ascending order.
func (t *Tree) Ephemerals(s session.ID, prefix string) []string {
	paths := []string{}
	l := t.owners[s]
	if l == nil {
		return paths
	}
	l.each(func(i uint32) bool {
		if p := t.path(i); strings.HasPrefix(p, prefix) {
			paths = append(paths, p)
		}
		return true
	})
	slices.Sort(paths)
	return paths
}

// CountDescendants returns how many nodes there are below the one at path, for
// a caller with READ on it. It looks at all of them.
func (t *Tree) CountDescendants(path string, c *Caller) (int, error) {
	n, err := t.readable(path, PermRead, c)
	if err != nil {
		return 0, err
	}
	if path == root {
		return t.counts.Nodes - 1, nil
	}
	count := -1
	t.eachBelow(n, func(*node) { count++ })
	return count, nil
}

// eachBelow calls f for the node top and all below it, in no particular order.
func (t *Tree) eachBelow(top *node, f func(n *node)) {
	f(top)
	var open []*list
	if l := t.children(top); l != nil {
		open = append(open, l)
	}
	for len(open) > 0 {
		l := open[len(open)-1]
		open = open[:len(open)-1]
		l.each(func(i uint32) bool {
			n := t.nodes.at(i)
			f(n)
			if l := t.children(n); l != nil {
				open = append(open, l)
			}
			return true
		})
	}
}
