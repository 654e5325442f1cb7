package znode

import (
	"strings"

	"github.com/coordd/coord/session"
)

// Tree holds every znode of one replica; make one with [New]. It takes one
// caller that changes it, or any number that only read: the state machine
// locks.
//
// Nodes have numbers. What an image holds is in nodes and acls; the rest is
// found again from it on restore.
//
// Invariants, which Check looks at: each live node but the root is in index and
// in the list of its parent; owners[s] holds exactly the ephemerals of s;
// mortals holds exactly the childless containers and nodes with a TTL, in the
// order of due; digest and counts are those of a count from scratch.
type Tree struct {
	nodes   slab[node]
	acls    aclTable
	index   index
	kids    slab[list] // lists of children, of nodes that have any
	owners  map[session.ID]*list
	mortals list
	quotas  quotaTable
	counts  Counts
	digest  uint64
	undo    undoLog
}

// Counts says how much is in a tree.
type Counts struct {
	Nodes     int // all of them, the root and ZooKeeper's own included
	Kinds     [TTL + 1]int
	DataBytes int64 // Σ Stat.DataLength
	NameBytes int64 // Σ length of the last element of the path
	Owners    int   // sessions that have ephemerals
	ACLs      int   // different ACL lists in use
}

// Paths that are in every tree.
const (
	root        = "/"
	pathSystem  = "/zookeeper"
	pathConfig  = "/zookeeper/config"
	pathQuotas  = "/zookeeper/quota"
	rootNumber  = 1
	configStart = -1 // version and aversion of /zookeeper/config before its first set
)

// New returns the tree of a fresh service, with the nodes that ZooKeeper has:
// /, /zookeeper, /zookeeper/config, which only a trusted caller may set, and
// /zookeeper/quota. All their times and counters are 0, but for the config's
// versions, which are -1.
func New() *Tree {
	t := newTree()
	t.plant(root)
	t.plant(pathSystem)
	t.plant(pathQuotas)
	config := t.nodes.own(t.plant(pathConfig))
	key := pathKey(pathConfig)
	t.digest -= t.statDigest(config, key)
	t.acls.release(config.acl)
	config.acl = t.acls.intern([]ACL{{Perms: PermRead, Scheme: schemeWorld, ID: "anyone"}})
	config.version, config.aversion = configStart, configStart
	t.digest += t.statDigest(config, key)
	return t
}

func newTree() *Tree {
	t := &Tree{owners: make(map[session.ID]*list)}
	t.index.init()
	return t
}

// plant makes a node out of nothing: it is no transaction, and does not count
// as a create of the parent.
func (t *Tree) plant(path string) uint32 {
	i := t.nodes.alloc()
	n := t.nodes.own(i)
	n.flags = flagLive
	n.acl = t.acls.intern(OpenACL)
	if path == root {
		n.setBlob("", []byte{})
		t.count(n, 1)
		t.addDigest(n, rootKey)
		return i
	}
	parent, name, _ := splitPath(path)
	n.setBlob(name, []byte{})
	n.parent = t.find(parent)
	t.link(i, name)
	t.addDigest(n, pathKey(path))
	return i
}

// find returns the number of the node at path, or 0. Any string may be asked
// for; a malformed path is just not there.
func (t *Tree) find(path string) uint32 {
	if path == "" || path[0] != '/' {
		return 0
	}
	i, rest := uint32(rootNumber), path[1:]
	if rest == "" {
		return i
	}
	for {
		end := strings.IndexByte(rest, '/')
		if end < 0 {
			return t.index.find(&t.nodes, i, rest)
		}
		if i = t.index.find(&t.nodes, i, rest[:end]); i == 0 {
			return 0
		}
		rest = rest[end+1:]
	}
}

// path builds the path of node i.
func (t *Tree) path(i uint32) string {
	if i == rootNumber {
		return root
	}
	size := 0
	for k := i; k != rootNumber; k = t.nodes.at(k).parent {
		size += 1 + int(t.nodes.at(k).nameLen)
	}
	b := make([]byte, size)
	for k := i; k != rootNumber; k = t.nodes.at(k).parent {
		n := t.nodes.at(k)
		size -= int(n.nameLen)
		copy(b[size:], n.name())
		size--
		b[size] = '/'
	}
	return string(b)
}

// children returns the list of node n, or nil.
func (t *Tree) children(n *node) *list {
	if n.kids == 0 {
		return nil
	}
	return t.kids.at(n.kids)
}

func (t *Tree) numChildren(n *node) int {
	if n.kids == 0 {
		return 0
	}
	return t.kids.at(n.kids).n
}

func (t *Tree) stat(n *node) Stat { return n.stat(t.numChildren(n)) }

// childPlace is where the child with the name is, or would be, in the list.
func (t *Tree) childPlace(l *list, name string) place {
	return l.search(func(k uint32) bool { return t.nodes.at(k).name() < name })
}

// Counts returns how much is in the tree. It costs nothing.
func (t *Tree) Counts() Counts {
	c := t.counts
	c.Owners = len(t.owners)
	c.ACLs = len(t.acls.byKey)
	return c
}

func (t *Tree) count(n *node, by int) {
	t.counts.Nodes += by
	t.counts.Kinds[n.kind] += by
	t.counts.DataBytes += int64(by * n.dataLen())
	t.counts.NameBytes += int64(by * int(n.nameLen))
}
