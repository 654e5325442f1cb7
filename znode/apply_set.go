package znode

import "fmt"

// set is OpSet. The order of its checks is ZooKeeper's: path, node, permission,
// version; then what ZooKeeper has not, and the quota.
func (t *Tree) set(tx *Tx, op *Op, r *OpResult) error {
	i, err := t.lookup(op.Path)
	if err != nil {
		return err
	}
	n := t.nodes.at(i)
	if !t.permits(n, PermWrite, tx.Caller) {
		return ErrNoAuth
	}
	if err := op.expect(n, n.version); err != nil {
		return err
	}
	if err := op.checkNewLimits(n); err != nil {
		return err
	}
	if len(op.Data) > maxDataBytes {
		return tooLong(len(op.Data))
	}
	grown := int64(len(op.Data) - n.dataLen())
	if err := t.quotas.allow(op.Path, 0, grown); err != nil {
		return err
	}
	key := pathKey(op.Path)
	n = t.edit(i, key)
	t.replaceData(n, key, op.Data)
	op.setLimits(n)
	n.version++
	n.mzxid, n.mtime = tx.Zxid, tx.Time
	t.done(i, n, key)
	t.charge(op.Path, 0, grown)
	t.quotaNodeSet(op.Path, n)
	r.Stat = t.stat(n)
	t.record(tx, DataChanged, op.Path, n, &r.Stat)
	return nil
}

func tooLong(n int) error {
	return fmt.Errorf("%w: %d bytes of data, the most is %d", ErrBadArguments, n, maxDataBytes)
}

// setACL is OpSetACL. The order of its checks: path, list, node, permission,
// version.
func (t *Tree) setACL(tx *Tx, op *Op, r *OpResult) error {
	i := t.find(op.Path)
	if i == 0 {
		if err := ValidatePath(op.Path); err != nil {
			return err
		}
	}
	list, err := fixACL(op.ACL, tx.Caller)
	if err != nil {
		return err
	}
	if i == 0 {
		return ErrNoNode
	}
	n := t.nodes.at(i)
	if !t.permits(n, PermAdmin, tx.Caller) {
		return ErrNoAuth
	}
	if err := op.expectVersion(n.aversion); err != nil {
		return err
	}
	acl := t.acls.intern(list)
	if acl == 0 {
		return errFull
	}
	key := pathKey(op.Path)
	n = t.edit(i, key)
	t.swapACL(n, acl)
	n.aversion++
	t.done(i, n, key)
	r.Stat = t.stat(n)
	t.record(tx, ACLChanged, op.Path, n, &r.Stat)
	return nil
}

// errFull is returned when the tree has as many nodes as it can number.
var errFull = fmt.Errorf("%w: the tree is full", ErrQuotaExceeded)
