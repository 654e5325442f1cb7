package znode

import (
	"io"
	"math"
	"slices"
	"strings"

	"github.com/coordd/coord/zxid"
)

// Decode reads an image that Encode wrote, and not a byte more. The input may
// be anything: what is not the image of a sound tree is an error that is
// [ErrCorrupt], or that of r; memory stays in proportion to the input.
func Decode(r io.Reader) (*Tree, error) {
	d := decoder{chunkReader: newChunkReader(r), t: newTree()}
	if magic := d.string(len(imageMagic)); d.err == nil && magic != imageMagic {
		return nil, corrupt("it does not begin like one")
	}
	if v := d.uvarint(); d.err == nil && v != imageVersion {
		return nil, corrupt("format %d: this version of coordd reads format %d", v, imageVersion)
	}
	d.nodes()
	count := d.uvarint()
	digest := d.uint64()
	if err := d.end(); err != nil {
		return nil, err
	}
	if count != uint64(d.t.nodes.n) {
		return nil, corrupt("%d nodes instead of %d", d.t.nodes.n, count)
	}
	if err := d.assemble(); err != nil {
		return nil, err
	}
	if d.t.digest != digest {
		return nil, corrupt("the digest of the nodes is %016x, not %016x", d.t.digest, digest)
	}
	return d.t, nil
}

type decoder struct {
	*chunkReader
	t     *Tree
	acls  []uint32 // number in the stream: list in the tree
	last  uint32   // number of the last node in the stream
	put   uint32   // and in the tree
	pages int      // pages with nodes
	moved renumbering
	name  []byte // scratch
}

// sparePages is how many pages an image may fill badly.
const sparePages = 64

// nodes reads the records of all nodes.
func (d *decoder) nodes() {
	for d.err == nil {
		gap := d.uvarint()
		if gap == 0 || d.err != nil {
			break
		}
		if gap >= maxSlots || d.last+uint32(gap) >= maxSlots {
			d.fail(corrupt("node number %d is too large", uint64(d.last)+gap))
			return
		}
		d.last += uint32(gap)
		n := d.node()
		if d.err != nil {
			return
		}
		d.place(&n)
	}
	for _, acl := range d.acls {
		if d.err == nil {
			d.t.acls.release(acl) // the decoder's own reference
		}
	}
}

// place stores a node under its number. A tree of which most was deleted may be
// spread over many pages; past a measure its nodes get other numbers, closer
// together, so that a few bytes of input never cost a page of memory each.
func (d *decoder) place(n *node) {
	i := d.last
	if i/pageSize != d.put/pageSize && d.pages > sparePages+4*d.t.nodes.n/pageSize {
		i = d.put + 1
	}
	if i/pageSize != d.put/pageSize || d.put == 0 {
		d.pages++
	}
	d.t.nodes.claim(i)
	*d.t.nodes.own(i) = *n
	d.moved.note(d.last, i)
	d.put = i
}

func (d *decoder) node() node {
	var n node
	kind := d.uvarint()
	n.flags = flagLive
	n.setNull(kind&imageNull != 0)
	kind &^= imageNull
	if kind > uint64(TTL) {
		d.fail(corrupt("a node of kind %d", kind))
		return n
	}
	n.kind = Kind(kind)
	n.parent = d.uint32("parent")
	n.acl = d.acl()
	n.czxid = zxid.ID(d.uvarint())
	n.mzxid = n.czxid + zxid.ID(d.varint())
	n.pzxid = n.czxid + zxid.ID(d.varint())
	n.ctime = d.varint()
	n.mtime = n.ctime + d.varint()
	n.version, n.aversion, n.creates = d.varint(), d.varint(), d.varint()
	if n.kind == Ephemeral || n.kind == TTL {
		n.life = d.uvarint()
	}
	d.blob(&n)
	switch {
	case d.err != nil:
	case n.kind == Ephemeral && n.life == 0:
		d.fail(corrupt("an ephemeral node without a session"))
	case n.kind == TTL && (n.life == 0 || n.life > uint64(MaxTTL.Milliseconds())):
		d.fail(corrupt("a TTL of %d ms", n.life))
	case !n.limits().sound():
		d.fail(corrupt("an ephemeral node with the limits %+v", n.limits()))
	case n.creates < 0:
		d.fail(corrupt("%d children created", n.creates))
	}
	return n
}

func (d *decoder) uint32(what string) uint32 {
	v := d.uvarint()
	if v > math.MaxUint32 {
		d.fail(corrupt("%s %d is too large", what, v))
		return 0
	}
	return uint32(v)
}

// length reads a length up to a bound.
func (d *decoder) length(what string, most int) int {
	v := d.uvarint()
	if v > uint64(most) {
		d.fail(corrupt("a %s of %d bytes", what, v))
		return 0
	}
	return int(v)
}

// trusted is how many bytes are allocated on the word of a length alone. If they
// do not come, decoding ends there.
const trusted = 1 << 20

// blob reads name and data into one piece of memory. The length of the data
// comes behind the name, which therefore is put aside first.
func (d *decoder) blob(n *node) {
	n.nameLen = uint16(d.length("name", maxNameBytes))
	d.name = d.name[:0]
	for range n.nameLen {
		d.name = append(d.name, d.byte())
	}
	size := d.length("data", maxDataBytes)
	if n.null() && size != 0 {
		d.fail(corrupt("null data of %d bytes", size))
	}
	if d.err != nil {
		return
	}
	var b strings.Builder
	b.Grow(len(d.name) + min(size, trusted))
	b.Write(d.name)
	d.text(&b, size)
	n.blob = b.String()
	if size > trusted {
		n.blob = strings.Clone(n.blob) // without what was too much
	}
}

// acl reads the number of a list, and the list itself the first time.
func (d *decoder) acl() uint32 {
	k := d.uvarint()
	if d.err != nil {
		return 0
	}
	if k > uint64(len(d.acls)) {
		d.fail(corrupt("ACL list %d before list %d", k, len(d.acls)))
		return 0
	}
	if k == uint64(len(d.acls)) {
		i := d.t.acls.intern(d.entries())
		if d.err != nil || i == 0 {
			d.fail(corrupt("too many ACL lists"))
			return 0
		}
		d.acls = append(d.acls, i)
	}
	i := d.acls[k]
	d.t.acls.refs[i]++
	return i
}

func (d *decoder) entries() []ACL {
	var list []ACL
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		a := ACL{Perms: d.uint32("permissions")}
		a.Scheme = d.string(d.length("scheme", maxNameBytes))
		a.ID = d.string(d.length("id", maxDataBytes))
		list = append(list, a)
	}
	return list
}

// renumbering maps numbers in the stream to numbers in the tree, where they
// differ. Both ascend.
type renumbering struct{ from, to []uint32 }

func (m *renumbering) note(from, to uint32) {
	if from != to {
		m.from, m.to = append(m.from, from), append(m.to, to)
	}
}

// of returns the number in the tree, or 0 for one that has become another's.
func (m *renumbering) of(i uint32, t *Tree) uint32 {
	if k, ok := slices.BinarySearch(m.from, i); ok {
		return m.to[k]
	}
	if _, ok := slices.BinarySearch(m.to, i); ok {
		return 0
	}
	if int(i/pageSize) >= len(t.nodes.pages) || t.nodes.free.has(i) {
		return 0
	}
	return i
}
