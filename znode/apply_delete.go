package znode

// delete is OpDelete. The order of its checks is ZooKeeper's: permission on the
// parent, then the node, the version, and at last the children. The node's own
// ACL does not matter, nor does it whose ephemeral it is.
func (t *Tree) delete(tx *Tx, op *Op) error {
	switch op.Path {
	case root, pathSystem, pathConfig, pathQuotas:
		return ErrProtected
	}
	parentPath, name, ok := splitPath(op.Path)
	if !ok {
		return ValidatePath(op.Path)
	}
	parent := t.find(parentPath)
	if parent == 0 {
		return ErrNoNode
	}
	if !t.permits(t.nodes.at(parent), PermDelete, tx.Caller) {
		return ErrNoAuth
	}
	i := t.index.find(&t.nodes, parent, name)
	if i == 0 {
		return ErrNoNode
	}
	n := t.nodes.at(i)
	if err := op.expect(n, n.version); err != nil {
		return err
	}
	if n.kids != 0 {
		return ErrNotEmpty
	}
	t.remove(tx, i, newName{op.Path, name, parentPath})
	return nil
}

// remove deletes node i, once everything has been checked.
func (t *Tree) remove(tx *Tx, i uint32, at newName) {
	n := t.nodes.at(i)
	s := n.stat(0)
	bytes := int64(n.dataLen())
	t.record(tx, Deleted, at.path, n, &s)

	key := pathKey(at.parent)
	parent := n.parent
	p := t.edit(parent, key)
	p.pzxid = tx.Zxid
	t.done(parent, p, key)
	t.discard(i, at.name, childKey(key, at.name))
	t.charge(at.path, -1, -bytes)
	t.quotaNodeDeleted(at.path)
}
