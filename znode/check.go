package znode

import (
	"fmt"
	"maps"
	"slices"

	"github.com/coordd/coord/session"
)

// Check looks at every invariant of the tree, and returns an error that names
// the first one that is broken. It costs as much as a restore; tests call it,
// and so may an operator's self test.
func (t *Tree) Check() error {
	c := checker{t: t, owned: map[session.ID]int{}, refs: map[uint32]uint32{}, weights: map[string]weight{}}
	if t.undo.on || len(t.undo.steps) != 0 || len(t.undo.given) != 0 {
		return fmt.Errorf("a transaction was left open")
	}
	root := t.nodes.at(rootNumber)
	if err := c.node(rootNumber, root, rootKey); err != nil {
		return err
	}
	if err := c.below(rootNumber, "", rootKey); err != nil {
		return err
	}
	for _, check := range []func() error{c.totals, c.sessions, c.acls, c.order, c.free, c.quotas} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checker counts everything again.
type checker struct {
	t       *Tree
	counts  Counts
	digest  uint64
	mortals int
	lists   int // of children
	owned   map[session.ID]int
	refs    map[uint32]uint32
	weights map[string]weight // of the subtrees with a quota
}

type weight struct{ count, bytes int64 }

// below checks the children of node i, whose path is given ("" for the root).
func (c *checker) below(i uint32, path string, key uint64) error {
	t := c.t
	l := t.children(t.nodes.at(i))
	if l == nil {
		return nil
	}
	c.lists++
	if l.n == 0 {
		return fmt.Errorf("%s: an empty list of children", path)
	}
	last, met := "", 0
	for p := (place{}); l.get(p) != 0; p = l.next(p) {
		k := l.get(p)
		n := t.nodes.at(k)
		name := n.name()
		met++
		switch {
		case name <= last:
			return fmt.Errorf("%s: child %q does not stand behind %q", path, name, last)
		case n.parent != i:
			return fmt.Errorf("%s/%s: its parent is node %d, not %d", path, name, n.parent, i)
		case t.index.find(&t.nodes, i, name) != k:
			return fmt.Errorf("%s/%s: not in the index", path, name)
		case nameFault(name) != "":
			return fmt.Errorf("%s/%s: %s", path, name, nameFault(name))
		}
		last = name
		childPath, childKey := path+"/"+name, childKey(key, name)
		if err := c.node(k, n, childKey); err != nil {
			return fmt.Errorf("%s: %w", childPath, err)
		}
		_ = t.quotas.above(childPath, func(top string, _ *quota) error {
			w := c.weights[top]
			c.weights[top] = weight{w.count + 1, w.bytes + int64(n.dataLen())}
			return nil
		})
		if err := c.below(k, childPath, childKey); err != nil {
			return err
		}
	}
	if met != l.n {
		return fmt.Errorf("%s: %d children counted as %d", path, met, l.n)
	}
	return nil
}

func (c *checker) node(i uint32, n *node, key uint64) error {
	switch {
	case !n.live():
		return fmt.Errorf("node %d is not live", i)
	case c.t.nodes.free.has(i):
		return fmt.Errorf("number %d is free", i)
	case n.kind > TTL:
		return fmt.Errorf("kind %d", n.kind)
	case n.kind == Ephemeral && n.kids != 0:
		return fmt.Errorf("an ephemeral has children")
	case n.null() && n.dataLen() != 0:
		return fmt.Errorf("null data of %d bytes", n.dataLen())
	case !n.limits().sound():
		return fmt.Errorf("limits %+v", n.limits())
	case n.creates < 0:
		return fmt.Errorf("%d creates", n.creates)
	}
	c.counts.Nodes++
	c.counts.Kinds[n.kind]++
	c.counts.DataBytes += int64(n.dataLen())
	c.counts.NameBytes += int64(n.nameLen)
	c.digest += c.t.statDigest(n, key) + dataDigest(n, key)
	c.refs[n.acl]++
	if n.kind == Ephemeral {
		c.owned[n.owner()]++
	}
	if n.mortal() && n.kids == 0 {
		c.mortals++
	}
	return nil
}

func (c *checker) totals() error {
	t := c.t
	switch {
	case c.counts != t.counts:
		return fmt.Errorf("counts are %+v, not %+v", t.counts, c.counts)
	case c.digest != t.digest:
		return fmt.Errorf("digest is %016x, not %016x", t.digest, c.digest)
	case t.nodes.n != c.counts.Nodes:
		return fmt.Errorf("%d nodes, %d reached", t.nodes.n, c.counts.Nodes)
	case t.kids.n != c.lists:
		return fmt.Errorf("%d lists of children, %d in use", t.kids.n, c.lists)
	}
	indexed := 0
	for s := range t.index.shards {
		indexed += t.index.shards[s].n
	}
	if indexed != t.nodes.n-1 {
		return fmt.Errorf("%d nodes in the index, not %d", indexed, t.nodes.n-1)
	}
	return nil
}

func (c *checker) sessions() error {
	if len(c.owned) != len(c.t.owners) {
		return fmt.Errorf("%d sessions with ephemerals, not %d", len(c.t.owners), len(c.owned))
	}
	for _, s := range slices.Sorted(maps.Keys(c.owned)) {
		l := c.t.owners[s]
		if l == nil || l.n != c.owned[s] {
			return fmt.Errorf("session %v: its ephemerals are not %d", s, c.owned[s])
		}
		last, met := uint32(0), 0
		for p := (place{}); l.get(p) != 0; p = l.next(p) {
			i := l.get(p)
			if i <= last || c.t.nodes.at(i).owner() != s {
				return fmt.Errorf("session %v: node %d is out of order or not its own", s, i)
			}
			last = i
			met++
		}
		if met != l.n {
			return fmt.Errorf("session %v: %d ephemerals counted as %d", s, met, l.n)
		}
	}
	return nil
}

func (c *checker) acls() error {
	t := &c.t.acls
	if len(t.byKey) != len(c.refs) || t.lists.n != len(c.refs) {
		return fmt.Errorf("%d ACL lists (%d by key), %d in use", t.lists.n, len(t.byKey), len(c.refs))
	}
	for _, i := range slices.Sorted(maps.Keys(c.refs)) {
		n := c.refs[i]
		if t.refs[i] != n || t.byKey[t.lists.at(i).key] != i {
			return fmt.Errorf("ACL list %d: %d references, not %d", i, t.refs[i], n)
		}
	}
	return nil
}

// order checks the nodes that wait for the reaper.
func (c *checker) order() error {
	t := c.t
	lastDue, last, met := int64(0), uint32(0), 0
	for p := (place{}); t.mortals.get(p) != 0; p = t.mortals.next(p) {
		i := t.mortals.get(p)
		n := t.nodes.at(i)
		if !n.mortal() || n.kids != 0 {
			return fmt.Errorf("%s waits for the reaper", t.path(i))
		}
		if met > 0 && (n.due() < lastDue || n.due() == lastDue && i <= last) {
			return fmt.Errorf("%s is out of order for the reaper", t.path(i))
		}
		lastDue, last = n.due(), i
		met++
	}
	if met != t.mortals.n || met != c.mortals {
		return fmt.Errorf("%d nodes wait for the reaper (%d counted), not %d", met, t.mortals.n, c.mortals)
	}
	return nil
}

// free checks that what lives, and only that, has a number.
func (c *checker) free() error {
	s := &c.t.nodes
	for p, page := range s.pages {
		for k := range pageSize {
			i := uint32(p*pageSize + k)
			live := page != nil && page[k].live()
			if i != 0 && live == s.free.has(i) {
				return fmt.Errorf("number %d: live is %v, and so is free", i, live)
			}
		}
	}
	return nil
}

func (c *checker) quotas() error {
	for _, top := range slices.Sorted(maps.Keys(c.t.quotas.byTop)) {
		x := c.t.quotas.byTop[top]
		if w := c.weights[top]; x.limited && (w.count != x.count || w.bytes != x.bytes) {
			return fmt.Errorf("quota of %s: %d nodes, %d bytes, not %+v", top, x.count, x.bytes, w)
		}
		if stats := c.t.find(pathQuotas + top + "/" + quotaStats); stats != x.stats {
			return fmt.Errorf("quota of %s: the statistics are node %d, not %d", top, x.stats, stats)
		}
		if limited := c.t.find(pathQuotas+top+"/"+quotaLimits) != 0; limited != x.limited {
			return fmt.Errorf("quota of %s: limited is %v", top, x.limited)
		}
	}
	return nil
}
