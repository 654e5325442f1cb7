package znode

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
)

// assemble makes a tree of the nodes that were read: it finds the children of
// each, and enters all in the index and the other lists. It returns an error
// unless they are one tree without doubles.
func (d *decoder) assemble() error {
	t := d.t
	if t.nodes.n == 0 || t.nodes.free.has(rootNumber) || t.nodes.at(rootNumber).parent != 0 {
		return corrupt("there is no root")
	}
	if n := t.nodes.at(rootNumber); n.nameLen != 0 || n.kind != Persistent {
		return corrupt("the root is not one")
	}
	if err := d.adopt(); err != nil {
		return err
	}
	met, quotas := t.enter()
	if met != t.nodes.n {
		return corrupt("%d of %d nodes are not below the root", t.nodes.n-met, t.nodes.n)
	}
	for _, p := range []string{pathSystem, pathConfig, pathQuotas} {
		if t.find(p) == 0 {
			return corrupt("there is no %s", p)
		}
	}
	t.enterQuotas(quotas)
	return nil
}

// adopt gives each node the list of its children.
func (d *decoder) adopt() error {
	t := d.t
	size := len(t.nodes.pages) * pageSize
	ends := make([]uint32, size+1) // count of children of each node, then where they end in all
	err := d.eachNode(func(i uint32, n *node) error {
		n.parent = d.moved.of(n.parent, t)
		if n.parent == 0 {
			return corrupt("the parent of node %d is missing", i)
		}
		if t.nodes.at(n.parent).kind == Ephemeral {
			return corrupt("an ephemeral node has children")
		}
		if fault := nameFault(n.name()); fault != "" {
			return corrupt("the name %q: %s", n.name(), fault)
		}
		ends[n.parent]++
		return nil
	})
	if err != nil {
		return err
	}
	sum := uint32(0)
	for i, k := range ends {
		ends[i] = sum
		sum += k
	}
	all := make([]uint32, sum)
	_ = d.eachNode(func(i uint32, n *node) error {
		all[ends[n.parent]] = i
		ends[n.parent]++
		return nil
	})
	return t.fillKids(all, ends)
}

// eachNode calls f for each node but the root, in the order of the numbers.
func (d *decoder) eachNode(f func(i uint32, n *node) error) error {
	for p, page := range d.t.nodes.pages {
		if page == nil {
			continue
		}
		for k := range page {
			i := uint32(p*pageSize + k)
			if i == rootNumber || !page[k].live() {
				continue
			}
			if err := f(i, &page[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// fillKids sorts the children of each node, which stand in all up to ends[i].
func (t *Tree) fillKids(all, ends []uint32) error {
	start := uint32(0)
	for i, end := range ends {
		if end == start {
			continue
		}
		kids := all[start:end]
		start = end
		t.sortByName(kids)
		for k := 1; k < len(kids); k++ {
			if a := t.nodes.at(kids[k]).name(); a == t.nodes.at(kids[k-1]).name() {
				return corrupt("two nodes of one parent with the name %q", a)
			}
		}
		n := t.nodes.own(uint32(i))
		n.kids = t.kids.alloc()
		t.kids.own(n.kids).fill(kids)
	}
	return nil
}

// sortByName sorts nodes of one parent. Names mostly come in order already; if
// not, eight bytes behind what all names share decide most comparisons without
// looking at the nodes again.
func (t *Tree) sortByName(kids []uint32) {
	byName := func(a, b uint32) int { return strings.Compare(t.nodes.at(a).name(), t.nodes.at(b).name()) }
	if slices.IsSortedFunc(kids, byName) {
		return
	}
	shared := t.nodes.at(kids[0]).name()
	for _, i := range kids[1:] {
		shared = shared[:sharedLen(shared, t.nodes.at(i).name())]
	}
	type keyed struct {
		key uint64
		i   uint32
	}
	sorted := make([]keyed, len(kids))
	for k, i := range kids {
		var b [8]byte
		copy(b[:], t.nodes.at(i).name()[len(shared):])
		sorted[k] = keyed{binary.BigEndian.Uint64(b[:]), i}
	}
	slices.SortFunc(sorted, func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return byName(a.i, b.i)
	})
	for k := range sorted {
		kids[k] = sorted[k].i
	}
}

func sharedLen(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// enter walks from the root and puts what it meets into the index, the lists,
// the counts and the digest. It returns how many nodes it met, and those that
// may belong to a quota.
func (t *Tree) enter() (met int, quotas []uint32) {
	type open struct {
		kids *list
		key  uint64
	}
	t.index.reserve(t.nodes.n)
	var mortals []uint32
	n := t.nodes.at(rootNumber)
	t.count(n, 1)
	t.addDigest(n, rootKey)
	met = 1
	stack := []open{{t.children(n), rootKey}}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if top.kids == nil {
			continue
		}
		top.kids.each(func(i uint32) bool {
			n := t.nodes.at(i)
			key := t.enterNode(i, n, top.key)
			if n.mortal() && n.kids == 0 {
				mortals = append(mortals, i)
			}
			if name := n.name(); name == quotaLimits || name == quotaStats {
				quotas = append(quotas, i)
			}
			if n.kids != 0 {
				stack = append(stack, open{t.children(n), key})
			}
			met++
			return true
		})
	}
	slices.SortFunc(mortals, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(t.nodes.at(a).due(), t.nodes.at(b).due()), cmp.Compare(a, b))
	})
	t.mortals.fill(mortals)
	return met, quotas
}

// enterNode enters one node but the root, and returns its key.
func (t *Tree) enterNode(i uint32, n *node, parentKey uint64) uint64 {
	name := n.name()
	key := childKey(parentKey, name)
	t.index.add(n.parent, name, i)
	t.count(n, 1)
	t.addDigest(n, key)
	if n.kind == Ephemeral {
		t.own(i, n)
	}
	return key
}

// enterQuotas enters the quotas among the nodes, which have the right names but
// may stand anywhere.
func (t *Tree) enterQuotas(nodes []uint32) {
	for _, i := range nodes {
		top, name, ok := quotaNode(t.path(i))
		if !ok {
			continue
		}
		x := t.quotas.open(top)
		if name == quotaStats {
			x.stats = i
		} else {
			x.limit(t.nodes.at(i).data())
		}
	}
	for top, x := range t.quotas.byTop { // in any order: each is set by itself
		if x.limited {
			x.count, x.bytes = t.weigh(top)
		}
	}
}
