package znode

import (
	"slices"

	"github.com/coordd/coord/session"
)

// Owners returns the sessions that have ephemerals, in ascending order.
func (t *Tree) Owners() []session.ID {
	ids := make([]session.ID, 0, len(t.owners))
	for id := range t.owners {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// ownNodes is how many nodes are in every tree: /, /zookeeper, and the two
// below it.
const ownNodes = 4

// Empty reports whether the tree has no nodes but its own.
func (t *Tree) Empty() bool { return t.counts.Nodes == ownNodes }
