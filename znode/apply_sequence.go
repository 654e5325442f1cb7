package znode

import "fmt"

// raiseSequence is OpSequence. The order of its checks: path, node, permission,
// number. Nobody hears of it: no watch is about a number.
func (t *Tree) raiseSequence(tx *Tx, op *Op, r *OpResult) error {
	i, err := t.lookup(op.Path)
	if err != nil {
		return err
	}
	if !t.permits(t.nodes.at(i), PermAdmin, tx.Caller) {
		return ErrNoAuth
	}
	if op.Version < 0 || op.Version > MaxSequence {
		return fmt.Errorf("%w: sequence number %d is not between 0 and %d", ErrBadArguments, op.Version, MaxSequence)
	}
	if err := t.SetSequence(op.Path, uint64(op.Version)); err != nil {
		return err
	}
	r.Stat = t.stat(t.nodes.at(i))
	return nil
}

// SetSequence raises the number that the next sequential child of the node at
// path gets to n, as an import needs it; a smaller n does nothing. It is
// [ErrNoNode] if there is no such node, [ErrBadArguments] if it is an ephemeral,
// which has no children.
func (t *Tree) SetSequence(path string, n uint64) error {
	i := t.find(path)
	if i == 0 {
		return fmt.Errorf("set sequence of %s: %w", path, ErrNoNode)
	}
	if n > 1<<62 {
		return fmt.Errorf("set sequence of %s: %w: %d is too large", path, ErrBadArguments, n)
	}
	if t.nodes.at(i).sequence() >= int64(n) {
		return nil
	}
	if t.nodes.at(i).kind == Ephemeral {
		return fmt.Errorf("set sequence of %s: %w: it is ephemeral", path, ErrBadArguments)
	}
	key := pathKey(path)
	p := t.edit(i, key)
	p.creates = int64(n)
	t.done(i, p, key)
	return nil
}
