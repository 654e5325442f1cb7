package znode

// undoLog remembers how to take back a multi. A failed one must leave no trace,
// sequence numbers included; so each primitive that changes the tree notes what
// was there, and rollback goes through the notes backwards. What was deleted
// keeps its number and its ACL until the multi has succeeded.
type undoLog struct {
	on     bool
	steps  []undoStep
	taken  []uint32 // ACL lists that got a reference, to be taken back
	given  []uint32 // ACL lists that lose one when the multi has succeeded
	counts Counts
	digest uint64
}

type undoKind uint8

const (
	undoWrote undoKind = iota
	undoCreated
	undoDeleted
	undoQuota
)

type undoStep struct {
	kind  undoKind
	i     uint32
	node  node   // undoWrote: as it was
	top   string // undoQuota: whose quota
	quota *quota // undoQuota: as it was; nil if there was none
}

func (u *undoLog) wrote(i uint32, n *node) {
	u.steps = append(u.steps, undoStep{kind: undoWrote, i: i, node: *n})
}

func (u *undoLog) created(i uint32) {
	u.steps = append(u.steps, undoStep{kind: undoCreated, i: i})
}

func (u *undoLog) deleted(i uint32) {
	u.steps = append(u.steps, undoStep{kind: undoDeleted, i: i})
}

func (u *undoLog) changedQuota(top string, q *quota) {
	s := undoStep{kind: undoQuota, top: top}
	if q != nil {
		old := *q
		s.quota = &old
	}
	u.steps = append(u.steps, s)
}

// beginUndo starts a transaction that can be taken back.
func (t *Tree) beginUndo() {
	t.undo.on = true
	t.undo.counts, t.undo.digest = t.counts, t.digest
}

// keep ends it with what was done.
func (t *Tree) keep() {
	for _, s := range t.undo.steps {
		if s.kind == undoDeleted {
			t.reclaim(s.i)
		}
	}
	for _, acl := range t.undo.given {
		t.acls.release(acl)
	}
	t.undo.reset()
}

// rollback ends it with nothing done.
func (t *Tree) rollback() {
	for k := len(t.undo.steps) - 1; k >= 0; k-- {
		t.undoOne(&t.undo.steps[k])
	}
	for _, acl := range t.undo.taken {
		t.acls.release(acl)
	}
	t.counts, t.digest = t.undo.counts, t.undo.digest
	t.undo.reset()
}

func (t *Tree) undoOne(s *undoStep) {
	switch s.kind {
	case undoWrote:
		t.unwrite(s.i, &s.node)
	case undoCreated:
		t.unlink(s.i, t.nodes.at(s.i).name())
		t.reclaim(s.i)
	case undoDeleted:
		t.link(s.i, t.nodes.at(s.i).name())
	case undoQuota:
		t.quotas.put(s.top, s.quota)
	}
}

// unwrite puts node i back as it was. Its list of children is not part of it:
// links are taken back by steps of their own.
func (t *Tree) unwrite(i uint32, old *node) {
	n := t.nodes.own(i)
	t.mortalOut(i)
	kids := n.kids
	*n = *old
	n.kids = kids
	t.mortalIn(i)
}

// maxUndoKept is how much of the log's memory is kept for the next multi.
const maxUndoKept = 4096

func (u *undoLog) reset() {
	u.on = false
	clear(u.steps)
	u.steps, u.taken, u.given = u.steps[:0], u.taken[:0], u.given[:0]
	if cap(u.steps) > maxUndoKept {
		u.steps, u.taken, u.given = nil, nil, nil
	}
}
