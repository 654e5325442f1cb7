package znode

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// The digest of a tree is the sum, modulo 2^64, of two hashes for each node: one
// of its path, counters and ACL, one of its path and data. A sum does not depend
// on the order in which nodes came, and a change costs only the hashes of what
// it touched: a create does not hash the data of the parent.
//
// Paths stand in it as keys: a key is made from the parent's key and the name,
// so that the keys of a whole tree cost one step for each node.

const (
	rootKey = 0x6b8f2d3a91c4e75d
	mixA    = 0x9fb21c651e98df25
	mixB    = 0xd6e8feb86659fd93
)

// childKey is the key of the child with that name.
func childKey(parent uint64, name string) uint64 {
	return mix(bits.RotateLeft64(parent, 23) ^ xxhash.Sum64String(name))
}

// pathKey is the key of the node at a valid path.
func pathKey(p string) uint64 {
	k := uint64(rootKey)
	for p != "/" && p != "" {
		end := 1
		for end < len(p) && p[end] != '/' {
			end++
		}
		k = childKey(k, p[1:end])
		p = p[end:]
	}
	return k
}

// mix is a bijection that spreads each bit over all.
func mix(x uint64) uint64 {
	x ^= x >> 32
	x *= mixA
	x ^= x >> 29
	x *= mixB
	return x ^ x>>32
}

// statDigest hashes all of a node but name and data, whose place is key.
func (t *Tree) statDigest(n *node, key uint64) uint64 {
	var b [12 * 8]byte
	put := func(i int, v uint64) { binary.LittleEndian.PutUint64(b[8*i:], v) }
	put(0, key)
	put(1, uint64(n.czxid))
	put(2, uint64(n.mzxid))
	put(3, uint64(n.pzxid))
	put(4, uint64(n.ctime))
	put(5, uint64(n.mtime))
	put(6, uint64(n.version))
	put(7, uint64(n.aversion))
	put(8, uint64(n.creates))
	put(9, n.life)
	put(10, t.acls.lists.at(n.acl).digest)
	put(11, uint64(n.kind)<<8|uint64(n.flags))
	return xxhash.Sum64(b[:])
}

// dataDigest hashes the data of the node whose place is key.
func dataDigest(n *node, key uint64) uint64 {
	return mix(bits.RotateLeft64(key, 41) ^ xxhash.Sum64String(n.text()))
}

// Digest returns 64 bits over everything in the tree: equal trees have equal
// digests, whatever led to them, and different ones have not but by a chance of
// 2^-64. It is kept up to date and costs nothing to ask.
func (t *Tree) Digest() uint64 { return t.digest }
