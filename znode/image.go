package znode

import (
	"io"
)

// Image is a tree as it was at one moment. It never changes, and is read in
// another goroutine while the tree goes on.
type Image struct {
	nodes  []*[pageSize]node
	acls   []*[pageSize]aclList
	count  int
	digest uint64
}

// Snapshot returns an image of the tree as it is. It copies a pointer for each
// 256 nodes; the nodes themselves are copied, page by page, when they are
// written next. It counts as a write: the caller locks.
func (t *Tree) Snapshot() *Image {
	return &Image{
		nodes:  t.nodes.snapshot(),
		acls:   t.acls.lists.snapshot(),
		count:  t.nodes.n,
		digest: t.digest,
	}
}

// Digest is that of the tree when the image was taken.
func (m *Image) Digest() uint64 { return m.digest }

// Len is the number of nodes.
func (m *Image) Len() int { return m.count }

// The format, within the chunks of stream.go. All numbers are varints.
//
//	magic, version
//	a record for each node, in the order of their numbers:
//	    distance to the number of the record before it
//	    kind, 0x80 added if the data is null
//	    number of the parent (0: the root)
//	    number of the ACL list, from 0 in order of appearance; a new one is
//	      followed by the count of entries, and perms, scheme, id of each
//	    czxid, mzxid-czxid, pzxid-czxid, ctime, mtime-ctime
//	    version, aversion, creates (ephemeral: its limits)
//	    life, for ephemeral and TTL nodes
//	    length of the name, name, length of the data, data
//	0, count of nodes, digest
//
// Lists of children, the index, ephemerals, quotas and counts are not in it:
// they follow from the nodes.
const (
	imageMagic   = "coordtree"
	imageVersion = 1
	imageNull    = 0x80
)

// Encode writes the image. The same tree gives the same bytes on each replica.
// The error is that of w.
func (m *Image) Encode(w io.Writer) error {
	e := encoder{chunkWriter: newChunkWriter(w), image: m, known: make(map[uint32]uint64)}
	e.text(imageMagic)
	e.uvarint(imageVersion)
	last := uint32(0)
	for p, page := range m.nodes {
		if page == nil {
			continue
		}
		for k := range page {
			if n := &page[k]; n.live() {
				i := uint32(p*pageSize + k)
				e.uvarint(uint64(i - last))
				e.node(n)
				last = i
			}
		}
		if e.err != nil {
			return e.err
		}
	}
	e.uvarint(0)
	e.uvarint(uint64(m.count))
	e.uint64(m.digest)
	return e.close()
}

type encoder struct {
	*chunkWriter
	image *Image
	known map[uint32]uint64 // ACL list in the tree: its number in the stream
}

func (e *encoder) string(s string) {
	e.uvarint(uint64(len(s)))
	e.text(s)
}

func (e *encoder) node(n *node) {
	kind := uint64(n.kind)
	if n.null() {
		kind |= imageNull
	}
	e.uvarint(kind)
	e.uvarint(uint64(n.parent))
	e.acl(n.acl)
	e.uvarint(uint64(n.czxid))
	e.varint(int64(n.mzxid - n.czxid))
	e.varint(int64(n.pzxid - n.czxid))
	e.varint(n.ctime)
	e.varint(n.mtime - n.ctime)
	e.varint(n.version)
	e.varint(n.aversion)
	e.varint(n.creates)
	if n.kind == Ephemeral || n.kind == TTL {
		e.uvarint(n.life)
	}
	e.uvarint(uint64(n.nameLen))
	e.text(n.name())
	e.uvarint(uint64(n.dataLen()))
	e.text(n.text())
}

func (e *encoder) acl(i uint32) {
	if k, ok := e.known[i]; ok {
		e.uvarint(k)
		return
	}
	k := uint64(len(e.known))
	e.known[i] = k
	e.uvarint(k)
	entries := e.image.acls[i/pageSize][i%pageSize].entries
	e.uvarint(uint64(len(entries)))
	for _, a := range entries {
		e.uvarint(uint64(a.Perms))
		e.string(a.Scheme)
		e.string(a.ID)
	}
}
