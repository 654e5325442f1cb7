package znode

// link puts node i, all of whose fields are set, into everything that finds it.
// name is its name, given for the caller has it as a string.
func (t *Tree) link(i uint32, name string) {
	n := t.nodes.at(i)
	t.index.add(n.parent, name, i)
	t.mortalOut(n.parent)
	p := t.nodes.own(n.parent)
	if p.kids == 0 {
		p.kids = t.kids.alloc()
	}
	l := t.kids.own(p.kids)
	l.insert(t.childPlace(l, name), i)
	t.mortalIn(n.parent)
	t.mortalIn(i)
	if n.kind == Ephemeral {
		t.own(i, n)
	}
	t.count(n, 1)
}

// unlink takes node i out of everything that finds it. It has no children. The
// node itself stays as it is.
func (t *Tree) unlink(i uint32, name string) {
	n := t.nodes.at(i)
	t.index.remove(n.parent, name, i)
	t.mortalOut(i)
	t.mortalOut(n.parent)
	p := t.nodes.own(n.parent)
	l := t.kids.own(p.kids)
	l.remove(t.childPlace(l, name))
	if l.n == 0 {
		t.kids.release(p.kids)
		p.kids = 0
	}
	t.mortalIn(n.parent)
	if n.kind == Ephemeral {
		t.disown(i, n)
	}
	t.count(n, -1)
}

// own enters ephemeral i in the list of its session.
func (t *Tree) own(i uint32, n *node) {
	l := t.owners[n.owner()]
	if l == nil {
		l = new(list)
		t.owners[n.owner()] = l
	}
	l.insert(numberPlace(l, i), i)
}

func (t *Tree) disown(i uint32, n *node) {
	l := t.owners[n.owner()]
	l.remove(numberPlace(l, i))
	if l.n == 0 {
		delete(t.owners, n.owner())
	}
}

func numberPlace(l *list, i uint32) place {
	return l.search(func(k uint32) bool { return k < i })
}

// mortalIn enters node i in the order of the reaper, if it belongs there.
func (t *Tree) mortalIn(i uint32) {
	if n := t.nodes.at(i); n.mortal() && n.kids == 0 {
		t.mortals.insert(t.mortalPlace(i, n), i)
	}
}

// mortalOut takes node i out of the order of the reaper. It must come before
// each change of what the order depends on, and mortalIn behind it.
func (t *Tree) mortalOut(i uint32) {
	if n := t.nodes.at(i); n.mortal() && n.kids == 0 {
		t.mortals.remove(t.mortalPlace(i, n))
	}
}

func (t *Tree) mortalPlace(i uint32, n *node) place {
	due := n.due()
	return t.mortals.search(func(k uint32) bool {
		d := t.nodes.at(k).due()
		return d < due || d == due && k < i
	})
}

// edit opens node i, which has the key, for a change of anything but its name,
// data and links. Each edit is followed by done.
func (t *Tree) edit(i uint32, key uint64) *node {
	if t.undo.on {
		t.undo.wrote(i, t.nodes.at(i))
	}
	n := t.nodes.own(i)
	t.mortalOut(i)
	t.digest -= t.statDigest(n, key)
	return n
}

func (t *Tree) done(i uint32, n *node, key uint64) {
	t.digest += t.statDigest(n, key)
	t.mortalIn(i)
}

// replaceData gives node n, which is open for edit, other data.
func (t *Tree) replaceData(n *node, key uint64, data []byte) {
	t.digest -= dataDigest(n, key)
	t.counts.DataBytes += int64(len(data) - n.dataLen())
	n.setData(data)
	t.digest += dataDigest(n, key)
}

func (t *Tree) addDigest(n *node, key uint64) {
	t.digest += t.statDigest(n, key) + dataDigest(n, key)
}

// insert links node i, all of whose fields are set, as the child with the name.
func (t *Tree) insert(i uint32, name string, key uint64) {
	t.link(i, name)
	t.addDigest(t.nodes.at(i), key)
	if t.undo.on {
		t.undo.created(i)
	}
}

// discard deletes node i, which has no children.
func (t *Tree) discard(i uint32, name string, key uint64) {
	n := t.nodes.at(i)
	t.digest -= t.statDigest(n, key) + dataDigest(n, key)
	t.unlink(i, name)
	if t.undo.on {
		t.undo.deleted(i)
		return
	}
	t.reclaim(i)
}

// reclaim frees what an unlinked node still holds.
func (t *Tree) reclaim(i uint32) {
	t.acls.release(t.nodes.at(i).acl)
	t.nodes.release(i)
}

// swapACL gives node n, which is open for edit, the list acl, one reference to
// which comes from intern.
func (t *Tree) swapACL(n *node, acl uint32) {
	if t.undo.on {
		t.undo.taken = append(t.undo.taken, acl)
		t.undo.given = append(t.undo.given, n.acl)
	} else {
		t.acls.release(n.acl)
	}
	n.acl = acl
}
