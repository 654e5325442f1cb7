package znode

import (
	"slices"
	"strings"

	"github.com/coordd/coord/session"
)

// EndSession ends what the ephemerals of session s stand for, in ascending order
// of their paths, so that every replica fires the same watches: it deletes them.
// When linger is set, as for every end that is not the session's own wish, those
// that were made to outlive it stay instead, each as a TTL node: the same node at
// the same path, with its data and czxid, as if its data had been set anew, but
// no longer anybody's. The reaper deletes it once its time is over.
//
// It does nothing if the session has none, asks for no permission and cannot
// fail.
func (t *Tree) EndSession(tx *Tx, s session.ID, linger bool) {
	l := t.owners[s]
	if l == nil {
		return
	}
	type ephemeral struct {
		i    uint32
		path string
	}
	all := make([]ephemeral, 0, l.n)
	l.each(func(i uint32) bool {
		all = append(all, ephemeral{i, t.path(i)})
		return true
	})
	slices.SortFunc(all, func(a, b ephemeral) int { return strings.Compare(a.path, b.path) })
	for _, e := range all {
		if linger && t.nodes.at(e.i).limits().linger != 0 {
			t.outlive(tx, e.i, e.path)
			continue
		}
		parent, name, _ := splitPath(e.path)
		t.remove(tx, e.i, newName{e.path, name, parent})
	}
}

// outlive makes ephemeral i, which is at path, a TTL node that belongs to no
// session. Its old TTL was a limit for its owner and goes with it.
func (t *Tree) outlive(tx *Tx, i uint32, path string) {
	key := pathKey(path)
	n := t.edit(i, key)
	linger := n.limits().linger
	t.disown(i, n)
	t.count(n, -1)
	n.kind, n.life, n.creates = TTL, uint64(linger), 0
	t.count(n, 1)
	n.version++
	n.mzxid, n.mtime = tx.Zxid, tx.Time
	t.done(i, n, key)
	s := t.stat(n)
	t.record(tx, DataChanged, path, n, &s)
}
