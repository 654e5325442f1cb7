package cache

import (
	"slices"
	"strings"

	"github.com/coordd/coord/client"
)

// tree is one state of the copy.
//
// Invariant: kids[p] holds exactly the last names of the nodes whose parent's
// path is p, and is not there if that is none; bytes is the sum of their sizes.
type tree struct {
	nodes map[string]client.Node
	kids  map[string]map[string]struct{}
	bytes int64
}

func newTree() *tree {
	return &tree{nodes: map[string]client.Node{}, kids: map[string]map[string]struct{}{}}
}

// nodeBytes is about what a node costs beside its path and data.
const nodeBytes = 300

func sizeOf(n client.Node) int64 { return int64(nodeBytes + 2*len(n.Path) + len(n.Data)) }

// split cuts a path into that of the parent and the last name. The root has no
// parent.
func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if path == "/" || i < 0 {
		return "", path
	}
	return path[:max(i, 1)], path[i+1:]
}

func (t *tree) put(n client.Node) {
	if old, ok := t.nodes[n.Path]; ok {
		t.bytes -= sizeOf(old)
	} else if dir, name := split(n.Path); dir != "" {
		if t.kids[dir] == nil {
			t.kids[dir] = map[string]struct{}{}
		}
		t.kids[dir][name] = struct{}{}
	}
	t.nodes[n.Path] = n
	t.bytes += sizeOf(n)
}

func (t *tree) remove(path string) {
	old, ok := t.nodes[path]
	if !ok {
		return
	}
	t.bytes -= sizeOf(old)
	delete(t.nodes, path)
	dir, name := split(path)
	delete(t.kids[dir], name)
	if len(t.kids[dir]) == 0 {
		delete(t.kids, dir)
	}
}

// childChanged takes note at the parent that a child came (+1) or went (-1): that
// is no event of its own.
func (t *tree) childChanged(path string, z client.Zxid, by int32) {
	dir, _ := split(path)
	n, ok := t.nodes[dir]
	if !ok {
		return
	}
	n.Stat.Pzxid = z
	n.Stat.Cversion++
	n.Stat.NumChildren += by
	t.nodes[dir] = n
}

// below returns the nodes at path and below it, parents before children and
// siblings in ascending order. "" is everything.
func (t *tree) below(path string) []client.Node {
	var out []client.Node
	for p, n := range t.nodes {
		if covers(path, p) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b client.Node) int { return comparePaths(a.Path, b.Path) })
	return out
}

// covers says whether path is root or below it.
func covers(root, path string) bool {
	return root == "" || root == "/" || path == root || strings.HasPrefix(path, root) && path[len(root)] == '/'
}

// comparePaths orders paths as a walk meets them: the slash is before every other
// character.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		case a[i] < b[i]:
			return -1
		default:
			return 1
		}
	}
	return len(a) - len(b)
}

// difference is what turns one state into another. Nodes that went come first,
// children before parents; then those that came or changed, in the order of their
// transactions. z is the transaction that the new state is of.
func difference(from, to *tree, z client.Zxid) []Change {
	var gone, come []Change
	for p, old := range from.nodes {
		if now, ok := to.nodes[p]; !ok || now.Stat.Czxid != old.Stat.Czxid {
			gone = append(gone, Change{Type: client.EventDeleted, Node: old, Zxid: z, Reread: true})
		}
	}
	for p, now := range to.nodes {
		old, ok := from.nodes[p]
		switch {
		case !ok || now.Stat.Czxid != old.Stat.Czxid:
			come = append(come, Change{Type: client.EventCreated, Node: now, Zxid: now.Stat.Mzxid, Reread: true})
		case now.Stat.Mzxid != old.Stat.Mzxid:
			come = append(come, Change{Type: client.EventChanged, Node: now, Zxid: now.Stat.Mzxid, Reread: true})
		case now.Stat.Aversion != old.Stat.Aversion:
			come = append(come, Change{Type: client.EventACL, Node: now, Zxid: z, Reread: true})
		}
	}
	slices.SortFunc(gone, func(a, b Change) int { return comparePaths(b.Node.Path, a.Node.Path) })
	slices.SortFunc(come, compareChanges)
	return append(gone, come...)
}

// compareChanges puts a creation at its own transaction, although the node may
// have been set since: what is below it came later.
func compareChanges(a, b Change) int {
	at := func(c Change) client.Zxid {
		if c.Type == client.EventCreated {
			return c.Node.Stat.Czxid
		}
		return c.Zxid
	}
	switch x, y := at(a), at(b); {
	case x < y:
		return -1
	case x > y:
		return 1
	default:
		return comparePaths(a.Node.Path, b.Node.Path)
	}
}
