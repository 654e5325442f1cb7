package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// Pages of a bbolt file. All numbers are little endian on the machines that this
// runs on; a page is: id (8), flags (2), count (2), overflow (4), elements.
const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltHeader     = 16
	boltElement    = 16
	boltMetaSum    = 56 // of the meta after the header, where its checksum stands
	boltMetaSize   = boltMetaSum + 8
	boltNoFreelist = ^uint64(0)
	boltMaxDepth   = 32

	boltBranch   = 0x01
	boltLeaf     = 0x02
	boltFreelist = 0x10
	boltBucket   = 0x01 // flag of a leaf's element
)

// errBoltPage is returned for a page of a bbolt file that bbolt cannot have
// written.
var errBoltPage = errors.New("not a sound bbolt file")

// checkBolt reads all pages of the bbolt file at path that are in use and believes
// nothing of them. bbolt itself believes what it reads: on a damaged page it
// panics, on goroutines that nobody can guard, or runs in a circle. So a file that
// was there is looked at before bbolt opens it.
func checkBolt(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	c := &boltCheck{r: f, size: st.Size(), used: map[uint64]bool{}}
	if err := c.check(); err != nil {
		return asDamage(path, err)
	}
	return nil
}

// boltCheck is one look at a file.
type boltCheck struct {
	r        io.ReaderAt
	size     int64
	pageSize int64
	end      uint64 // pages from here on were never used
	used     map[uint64]bool
}

// boltMeta is the part of a meta page that is needed.
type boltMeta struct {
	pageSize             int64
	root, freelist, pgid uint64
	txid                 uint64
}

func (c *boltCheck) check() error {
	m, err := c.newestMeta()
	if err != nil {
		return err
	}
	c.pageSize, c.end = m.pageSize, m.pgid
	c.used[0], c.used[1] = true, true
	if err := c.tree(m.root, nil, nil, 0); err != nil {
		return err
	}
	if m.freelist == boltNoFreelist {
		return nil
	}
	return c.freelist(m.freelist)
}

// newestMeta returns the newer of the meta pages that are sound. One is torn when
// the machine loses power in a commit, and then nobody was told of it.
func (c *boltCheck) newestMeta() (boltMeta, error) {
	var best boltMeta
	found := false
	size := int64(os.Getpagesize())
	if m, err := c.meta(0); err == nil {
		best, found, size = m, true, m.pageSize
	}
	if m, err := c.meta(size); err == nil && (!found || m.txid > best.txid) {
		best, found = m, true
	}
	if !found {
		return boltMeta{}, fmt.Errorf("%w: neither of its two meta pages is sound", errBoltPage)
	}
	return best, nil
}

func (c *boltCheck) meta(at int64) (boltMeta, error) {
	b := make([]byte, boltMetaSize)
	if _, err := c.r.ReadAt(b, at+boltHeader); err != nil {
		return boltMeta{}, err
	}
	le := binary.LittleEndian
	sum := fnv.New64a()
	_, _ = sum.Write(b[:boltMetaSum]) // never fails
	m := boltMeta{
		pageSize: int64(le.Uint32(b[8:])), root: le.Uint64(b[16:]), freelist: le.Uint64(b[32:]),
		pgid: le.Uint64(b[40:]), txid: le.Uint64(b[48:]),
	}
	switch {
	case le.Uint32(b) != boltMagic, le.Uint32(b[4:]) != boltVersion, le.Uint64(b[boltMetaSum:]) != sum.Sum64():
		return boltMeta{}, errBoltPage
	case m.pageSize < 512 || m.pageSize > 1<<20:
		return boltMeta{}, errBoltPage
	}
	return m, nil
}

// page reads page id with all that belongs to it, and sees to it that nothing is
// used twice.
func (c *boltCheck) page(id uint64) ([]byte, error) {
	if id < 2 || id >= c.end {
		return nil, fmt.Errorf("%w: page %d is used, and there are %d", errBoltPage, id, c.end)
	}
	head := make([]byte, boltHeader)
	if _, err := c.r.ReadAt(head, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("%w: page %d: %w", errBoltPage, id, err)
	}
	if own := binary.LittleEndian.Uint64(head); own != id {
		return nil, fmt.Errorf("%w: page %d says it is page %d", errBoltPage, id, own)
	}
	pages := uint64(binary.LittleEndian.Uint32(head[12:])) + 1
	if pages > c.end-id || int64(id+pages)*c.pageSize > c.size {
		return nil, fmt.Errorf("%w: page %d goes on for %d pages, beyond the end", errBoltPage, id, pages)
	}
	for p := id; p < id+pages; p++ {
		if c.used[p] {
			return nil, fmt.Errorf("%w: page %d is used twice", errBoltPage, p)
		}
		c.used[p] = true
	}
	b := make([]byte, int64(pages)*c.pageSize)
	if _, err := c.r.ReadAt(b, int64(id)*c.pageSize); err != nil {
		return nil, fmt.Errorf("%w: page %d: %w", errBoltPage, id, err)
	}
	return b, nil
}

// tree checks the page id and what is below it. Its keys are not below least and
// below limit, where these are given.
func (c *boltCheck) tree(id uint64, least, limit []byte, depth int) error {
	if depth > boltMaxDepth {
		return fmt.Errorf("%w: its tree is more than %d deep", errBoltPage, boltMaxDepth)
	}
	b, err := c.page(id)
	if err != nil {
		return err
	}
	switch flags := binary.LittleEndian.Uint16(b[8:]); flags {
	case boltBranch:
		return c.branch(id, b, least, limit, depth)
	case boltLeaf:
		return c.leaf(id, b, least, limit, depth)
	default:
		return fmt.Errorf("%w: page %d of the tree has flags %#x", errBoltPage, id, flags)
	}
}

func (c *boltCheck) branch(id uint64, b, least, limit []byte, depth int) error {
	le := binary.LittleEndian
	count := int(le.Uint16(b[10:]))
	if count == 0 || boltHeader+count*boltElement > len(b) {
		return fmt.Errorf("%w: page %d has %d branches", errBoltPage, id, count)
	}
	keys := make([][]byte, count)
	for i := range count {
		at := boltHeader + i*boltElement
		key, ok := part(b, at, le.Uint32(b[at:]), 0, le.Uint32(b[at+4:]))
		if !ok || i > 0 && bytes.Compare(keys[i-1], key) >= 0 || !between(key, least, limit) && i > 0 {
			return fmt.Errorf("%w: branch %d of page %d is not in its place", errBoltPage, i, id)
		}
		keys[i] = key
	}
	for i := range count {
		lo, hi := keys[i], limit
		if i+1 < count {
			hi = keys[i+1]
		}
		child := le.Uint64(b[boltHeader+i*boltElement+8:])
		if err := c.tree(child, lo, hi, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (c *boltCheck) leaf(id uint64, b, least, limit []byte, depth int) error {
	le := binary.LittleEndian
	count := int(le.Uint16(b[10:]))
	if boltHeader+count*boltElement > len(b) {
		return fmt.Errorf("%w: page %d has %d keys", errBoltPage, id, count)
	}
	var before []byte
	for i := range count {
		at := boltHeader + i*boltElement
		flags, pos, ksize, vsize := le.Uint32(b[at:]), le.Uint32(b[at+4:]), le.Uint32(b[at+8:]), le.Uint32(b[at+12:])
		key, ok := part(b, at, pos, 0, ksize)
		value, okValue := part(b, at, pos, ksize, vsize)
		if !ok || !okValue || ksize == 0 || flags > boltBucket || i > 0 && bytes.Compare(before, key) >= 0 || !between(key, least, limit) {
			return fmt.Errorf("%w: key %d of page %d is not in its place", errBoltPage, i, id)
		}
		before = key
		if flags == boltBucket {
			if err := c.bucket(id, value, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// bucket checks a bucket, whose value is the page of its root and a sequence, or,
// if that page is 0, a page of its own within the value.
func (c *boltCheck) bucket(id uint64, value []byte, depth int) error {
	if len(value) < 16 {
		return fmt.Errorf("%w: a bucket of page %d has %d bytes", errBoltPage, id, len(value))
	}
	root := binary.LittleEndian.Uint64(value)
	if root != 0 {
		return c.tree(root, nil, nil, depth+1)
	}
	inline := value[16:]
	if len(inline) < boltHeader || binary.LittleEndian.Uint16(inline[8:]) != boltLeaf {
		return fmt.Errorf("%w: a bucket inside of page %d is not sound", errBoltPage, id)
	}
	return c.leaf(id, inline, nil, nil, depth+1)
}

func (c *boltCheck) freelist(id uint64) error {
	b, err := c.page(id)
	if err != nil {
		return err
	}
	le := binary.LittleEndian
	if flags := le.Uint16(b[8:]); flags != boltFreelist {
		return fmt.Errorf("%w: page %d of the freelist has flags %#x", errBoltPage, id, flags)
	}
	count, at := uint64(le.Uint16(b[10:])), uint64(boltHeader)
	if count == 0xFFFF {
		count, at = le.Uint64(b[boltHeader:]), at+8
	}
	if count > (uint64(len(b))-at)/8 {
		return fmt.Errorf("%w: the freelist has %d pages", errBoltPage, count)
	}
	last := uint64(1)
	for i := range count {
		p := le.Uint64(b[at+8*i:])
		if p <= last || p >= c.end || c.used[p] {
			return fmt.Errorf("%w: page %d is on the freelist, and cannot be free", errBoltPage, p)
		}
		last = p
	}
	return nil
}

// part returns n bytes that begin pos and skip behind at.
func part(b []byte, at int, pos, skip, n uint32) ([]byte, bool) {
	from := uint64(at) + uint64(pos) + uint64(skip)
	if to := from + uint64(n); to <= uint64(len(b)) {
		return b[from:to], true
	}
	return nil, false
}

func between(key, least, limit []byte) bool {
	return bytes.Compare(key, least) >= 0 && (limit == nil || bytes.Compare(key, limit) < 0)
}
