package zkimport

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coordd/coord/znode"
)

// aclTable numbers lists of permissions: a tree has few that differ.
type aclTable struct {
	lists  [][]znode.ACL
	number map[string]int
}

// intern returns the number of a list.
func (t *aclTable) intern(list []znode.ACL) int {
	var b strings.Builder
	for _, a := range list {
		fmt.Fprintf(&b, "%d %q %q,", a.Perms, a.Scheme, a.ID)
	}
	key := b.String()
	n, ok := t.number[key]
	if !ok {
		if t.number == nil {
			t.number = map[string]int{}
		}
		n = len(t.lists)
		t.number[key] = n
		t.lists = append(t.lists, list)
	}
	return n
}

// stored is how a list stands in a cluster: no list at all lets everybody do
// everything, as it does in ZooKeeper, and doubles are dropped.
func stored(list []znode.ACL) []znode.ACL {
	if len(list) == 0 {
		return znode.OpenACL
	}
	out := make([]znode.ACL, 0, len(list))
	for _, a := range list {
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// masked says that a list is shown without the hashes of its digests, as it is to
// those who may not set it. To copy it would lock everybody out.
func masked(list []znode.ACL) bool {
	return slices.ContainsFunc(list, func(a znode.ACL) bool {
		_, hash, _ := strings.Cut(a.ID, ":")
		return a.Scheme == "digest" && hash == "x"
	})
}

// unmatched names the first scheme of a list that no client of a cluster can prove,
// "" if there is none.
func unmatched(list []znode.ACL) string {
	for _, a := range list {
		if a.Scheme == "sasl" {
			return a.Scheme
		}
	}
	return ""
}

// open says that a list lets everybody do all of this.
func open(list []znode.ACL, perms uint32) bool {
	for _, a := range list {
		if a.Scheme == "world" && a.Perms&perms == perms {
			return true
		}
	}
	return false
}
