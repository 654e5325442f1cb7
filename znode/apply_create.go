package znode

import (
	"fmt"
	"strconv"
	"strings"
)

// sequenceDigits is how many digits a sequence number has at least. It grows
// when they are used up: names then stop sorting as strings, but no name is
// ever given twice, and recipes compare the numbers.
const sequenceDigits = 10

// create is OpCreate. The order of its checks is ZooKeeper's, down to a parent
// that may not be written hiding a child that exists.
func (t *Tree) create(tx *Tx, op *Op, r *OpResult) error {
	if err := op.checkCreate(tx.Caller); err != nil {
		return err
	}
	parentPath, name, ok := splitPath(op.Path)
	if !ok || strings.IndexByte(op.Path, 0) >= 0 {
		return ValidatePath(op.Path)
	}
	list, err := fixACL(op.ACL, tx.Caller)
	if err != nil {
		return err
	}
	parent := t.find(parentPath)
	if parent == 0 {
		return ErrNoNode
	}
	p := t.nodes.at(parent)
	if !t.permits(p, PermCreate, tx.Caller) {
		return ErrNoAuth
	}
	path := op.Path
	if op.Sequential {
		path = numbered(op.Path, p.sequence())
		name = path[len(op.Path)-len(name):]
	}
	if err := t.checkNew(path, name, parent, op); err != nil {
		return err
	}
	n, err := t.add(tx, op, parent, list, newName{path, name, parentPath})
	if err != nil {
		return err
	}
	r.Path, r.Stat = path, n.stat(0)
	t.record(tx, Created, path, n, &r.Stat)
	return nil
}

// checkCreate looks at what the operation says by itself.
func (op *Op) checkCreate(c *Caller) error {
	switch {
	case op.Node > TTL:
		return fmt.Errorf("%w: unknown kind of node %d", ErrBadArguments, op.Node)
	case op.Node == Ephemeral && (c == nil || c.Session == 0):
		return fmt.Errorf("%w: an ephemeral node needs a session", ErrBadArguments)
	case len(op.Data) > maxDataBytes:
		return tooLong(len(op.Data))
	}
	return op.checkLimits()
}

// checkNew checks the final path of a node to create, against the tree.
func (t *Tree) checkNew(path, name string, parent uint32, op *Op) error {
	if path == root {
		return ErrNodeExists
	}
	if nameFault(name) != "" {
		return ValidatePath(path)
	}
	if t.index.find(&t.nodes, parent, name) != 0 {
		return ErrNodeExists
	}
	if t.nodes.at(parent).kind == Ephemeral {
		return ErrEphemeralParent
	}
	return t.quotas.allow(path, 1, int64(len(op.Data)))
}

// newName is where a node is created.
type newName struct{ path, name, parent string }

// add makes the node, once everything has been checked.
func (t *Tree) add(tx *Tx, op *Op, parent uint32, list []ACL, at newName) (*node, error) {
	i := t.nodes.alloc()
	if i == 0 {
		return nil, errFull
	}
	acl := t.acls.intern(list)
	if acl == 0 {
		t.nodes.release(i)
		return nil, errFull
	}
	key := pathKey(at.parent)
	p := t.edit(parent, key)
	p.creates++
	p.pzxid = tx.Zxid
	t.done(parent, p, key)

	n := t.nodes.own(i)
	*n = node{
		czxid: tx.Zxid, mzxid: tx.Zxid, pzxid: tx.Zxid,
		ctime: tx.Time, mtime: tx.Time,
		parent: parent, acl: acl, kind: op.Node, flags: flagLive, life: op.life(tx.Caller),
	}
	if op.Node == Ephemeral {
		n.creates = limits{op.TTL.Milliseconds(), op.Linger.Milliseconds()}.pack()
	}
	n.setBlob(at.name, op.Data)
	t.insert(i, at.name, childKey(key, at.name))
	n = t.nodes.at(i)
	t.charge(at.path, 1, int64(n.dataLen()))
	t.quotaNodeCreated(at.path, i)
	return t.nodes.at(i), nil
}

func (op *Op) life(c *Caller) uint64 {
	switch op.Node {
	case Ephemeral:
		return uint64(c.Session)
	case TTL:
		return uint64(op.TTL.Milliseconds())
	default:
		return 0
	}
}

// numbered is the path of a sequential node: the path asked for, and the number.
func numbered(path string, n int64) string {
	var number [20]byte
	digits := strconv.AppendInt(number[:0], n, 10)
	var b strings.Builder
	b.Grow(len(path) + max(len(digits), sequenceDigits))
	b.WriteString(path)
	for range sequenceDigits - len(digits) {
		b.WriteByte('0')
	}
	b.Write(digits)
	return b.String()
}
