package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// ErrBadSnapshot is returned when bytes are not a snapshot, are damaged, or are
// of a version this build does not know.
var ErrBadSnapshot = errors.New("not a snapshot that can be restored")

// ErrNewerRelease is returned, together with ErrBadSnapshot, for a snapshot that is
// sound but is of a release with a higher feature level than this one.
var ErrNewerRelease = errors.New("a newer release wrote it, install that one again")

var snapshotMagic = [8]byte{'c', 'o', 'o', 'r', 'd', 's', 'n', 'p'}

// Image is the state at one instant. It is read by another goroutine while
// entries are applied.
type Image struct {
	header header
	tree   *znode.Image
	table  *session.Image
}

// header is everything in a snapshot but the two tables and the bytes of a
// backup on its way.
type header struct {
	index, term  uint64
	zxid         zxid.ID
	epochTerm    uint64
	clock        int64
	featureLevel uint32
	clusterID    string
	digest       uint64
	restored     Restored
	restoring    *staging // nil: none
	staged       int64    // bytes of it, which follow the tree
}

func headerOf(v *View, digest uint64) header {
	return header{
		index: v.Index, term: v.Term, zxid: v.Zxid, epochTerm: v.EpochTerm, clock: v.Clock,
		featureLevel: v.FeatureLevel, clusterID: v.ClusterID, digest: digest,
		restored: v.LastRestore, restoring: v.restoring.frozen(),
	}
}

// Snapshot returns an image of the state between two entries. It holds the
// write lock for as long as it takes to copy the page tables, well under a
// millisecond at a million znodes.
func (m *Machine) Snapshot() *Image {
	m.entry.Lock()
	defer m.entry.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fresh = 0
	return &Image{
		header: headerOf(&m.state, digestOf(&m.state)),
		tree:   m.state.Tree.Snapshot(),
		table:  m.state.Sessions.Snapshot(),
	}
}

// ForBackup returns the image as a backup has it: without sessions, whose secrets
// would open them to whoever reads the file, and without whatever else a restore
// would drop. The ephemerals stay, so that the file shows what was locked.
func (i *Image) ForBackup() *Image {
	none := session.NewTable().Snapshot()
	h := i.header
	h.restored, h.restoring = Restored{}, nil
	v := View{
		Zxid: h.zxid, Clock: h.clock, EpochTerm: h.epochTerm, ClusterID: h.clusterID, FeatureLevel: h.featureLevel,
	}
	h.digest = digestWith(&v, i.tree.Digest(), none.Digest())
	return &Image{header: h, tree: i.tree, table: none}
}

// Znodes is the number of znodes in the image.
func (i *Image) Znodes() int { return i.tree.Len() }

// Sessions is the number of open sessions in the image.
func (i *Image) Sessions() int { return i.table.Len() }

// FeatureLevel is the level the state was at.
func (i *Image) FeatureLevel() uint32 { return i.header.featureLevel }

// ClusterID names the cluster that the image was taken of.
func (i *Image) ClusterID() string { return i.header.clusterID }

// Index is the log index the image stands at.
func (i *Image) Index() uint64 { return i.header.index }

// Zxid is the last transaction in the image.
func (i *Image) Zxid() zxid.ID { return i.header.zxid }

// Digest is that of the machine at the moment of the snapshot.
func (i *Image) Digest() uint64 { return i.header.digest }

// Encode writes the image to w as it goes: magic, version, length of the header
// and header, the session table, the tree, what has come of a backup that is
// being restored, then a checksum over all of it. The images of table and tree
// end by themselves. Equal states give equal bytes.
func (i *Image) Encode(w io.Writer) error {
	s := newSummingWriter(w)
	b := appendHeader(nil, &i.header)
	// Servers that do not know more than the level agreed on must be able to read it.
	preamble := binary.LittleEndian.AppendUint32(snapshotMagic[:len(snapshotMagic):len(snapshotMagic)], snapshotVersionAt(i.header.featureLevel))
	preamble = binary.LittleEndian.AppendUint32(preamble, uint32(len(b)))
	_, err := s.Write(append(preamble, b...))
	if err == nil {
		err = i.table.Encode(s, appendValue)
	}
	if err == nil {
		err = i.tree.Encode(s)
	}
	if err == nil {
		err = i.header.restoring.writeBytes(s)
	}
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return fmt.Errorf("write snapshot at index %d: %w", i.header.index, err)
	}
	return nil
}

func appendHeader(dst []byte, h *header) []byte {
	dst = binary.AppendUvarint(dst, h.index)
	dst = binary.AppendUvarint(dst, h.term)
	dst = binary.AppendUvarint(dst, uint64(h.zxid))
	dst = binary.AppendUvarint(dst, h.epochTerm)
	dst = binary.AppendVarint(dst, h.clock)
	dst = binary.AppendUvarint(dst, uint64(h.featureLevel))
	dst = appendString(dst, h.clusterID)
	dst = binary.LittleEndian.AppendUint64(dst, h.digest)
	dst = appendRestored(dst, &h.restored)
	return appendStaging(dst, h.restoring)
}

func decodeHeader(b []byte) (header, error) {
	r := reader{b: b}
	h := header{
		index: r.uvarint(), term: r.uvarint(), zxid: zxid.ID(r.uvarint()), epochTerm: r.uvarint(),
		clock: r.varint(), featureLevel: uint32(r.narrow(1<<32 - 1)), clusterID: r.string(),
		digest: uint64(r.uint32()) | uint64(r.uint32())<<32, restored: decodeRestored(&r),
	}
	h.restoring, h.staged = stagingHead(&r)
	return h, r.done()
}
