package znode

import "fmt"

// Apply does one operation, or nothing. The error is also that of the result;
// it is one of the sentinels of this package.
func (t *Tree) Apply(tx *Tx, op *Op) (OpResult, error) {
	r := OpResult{Kind: op.Kind, Path: op.Path}
	switch op.Kind {
	case OpCreate:
		r.Err = t.create(tx, op, &r)
	case OpDelete:
		r.Err = t.delete(tx, op)
	case OpSet:
		r.Err = t.set(tx, op, &r)
	case OpSetACL:
		r.Err = t.setACL(tx, op, &r)
	case OpCheck:
		r.Err = t.check(tx, op)
	case OpSequence:
		r.Err = t.raiseSequence(tx, op, &r)
	default:
		r.Err = fmt.Errorf("%w: unknown operation %d", ErrBadArguments, op.Kind)
	}
	return r, r.Err
}

// Multi does all operations, each seeing what those before it did, or none of
// them: then nothing is left of it in the tree and in tx, the error is a
// [*MultiError], and the results have no error for those before the one that
// failed, [ErrRolledBack] for those behind it. No operations at all is fine.
func (t *Tree) Multi(tx *Tx, ops []Op) ([]OpResult, error) {
	results := make([]OpResult, len(ops))
	changes := len(tx.Changes)
	t.beginUndo()
	for i := range ops {
		r, err := t.Apply(tx, &ops[i])
		if err != nil {
			t.rollback()
			clear(tx.Changes[changes:])
			tx.Changes = tx.Changes[:changes]
			failed(results, ops, i, err)
			return results, &MultiError{Index: i, Err: err}
		}
		results[i] = r
	}
	t.keep()
	return results, nil
}

// failed makes the results those of a multi whose operation at failed.
func failed(results []OpResult, ops []Op, at int, err error) {
	for i := range ops {
		results[i] = OpResult{Kind: ops[i].Kind, Path: ops[i].Path}
		if i > at {
			results[i].Err = ErrRolledBack
		}
	}
	results[at].Err = err
}

// record notes a change of node n, whose stat is given.
func (t *Tree) record(tx *Tx, kind ChangeType, path string, n *node, s *Stat) {
	c := Change{Type: kind, Path: path, Zxid: tx.Zxid, Cause: tx.Cause, Stat: *s}
	if tx.Caller != nil {
		c.Session = tx.Caller.Session
	}
	if kind != Deleted {
		c.Data, c.acl = n.data(), t.acls.lists.at(n.acl).shared
	}
	tx.Changes = append(tx.Changes, c)
}

// lookup finds the node that an operation names.
func (t *Tree) lookup(path string) (uint32, error) {
	i := t.find(path)
	if i != 0 {
		return i, nil // so the path is valid
	}
	if err := ValidatePath(path); err != nil {
		return 0, err
	}
	return 0, ErrNoNode
}

func (t *Tree) permits(n *node, perms uint32, c *Caller) bool {
	return Permits(t.acls.list(n.acl), perms, c)
}

// expect checks what the operation asks of the node: the very node, and its
// version, which is have.
func (op *Op) expect(n *node, have int64) error {
	if op.Czxid != 0 && op.Czxid != n.czxid {
		return &VersionError{Path: op.Path, What: "czxid", Have: int64(n.czxid), Want: int64(op.Czxid)}
	}
	if op.Owner != 0 && op.Owner != n.owner() {
		return &VersionError{Path: op.Path, What: "owner", Have: int64(n.owner()), Want: int64(op.Owner)}
	}
	return op.expectVersion(have)
}

// expectVersion compares versions. A wanted version below AnyVersion matches
// nothing, in 31 bits neither.
func (op *Op) expectVersion(have int64) error {
	const low31 = 1<<31 - 1
	switch {
	case op.Version == AnyVersion, op.Version == have && op.Version >= 0:
		return nil
	case op.Version31 && op.Version >= 0 && op.Version == have&low31:
		return nil
	}
	return &VersionError{Path: op.Path, Have: have, Want: op.Version}
}

// check is OpCheck: the node is there, may be read, and is as expected.
func (t *Tree) check(tx *Tx, op *Op) error {
	i, err := t.lookup(op.Path)
	if err != nil {
		return err
	}
	n := t.nodes.at(i)
	if !t.permits(n, PermRead, tx.Caller) {
		return ErrNoAuth
	}
	return op.expect(n, n.version)
}
