package fsm

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

// maxHeaderBytes bounds the header section of a snapshot.
const maxHeaderBytes = 64 << 10

// Restore replaces the state by the snapshot that r gives. The new state is
// built aside, compared with the digest it was written with, and swapped in
// under the write lock, where the hook hears of it too; until then readers see
// the old one. If it fails the old state stays, whole, and the error wraps
// ErrBadSnapshot unless r itself failed.
func (m *Machine) Restore(r io.Reader) error {
	m.entry.Lock()
	defer m.entry.Unlock()
	v, err := readSnapshot(r, m.opts.FeatureLevel)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	m.swap(v)
	m.wake()
	m.opts.Logger.Info("state restored from a snapshot",
		"index", v.Index, "zxid", v.Zxid.String(), "sessions", v.Sessions.Len())
	return nil
}

func (m *Machine) swap(v View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = v
	m.fresh = 0
	clear(m.callers)
	m.publish()
	m.hook.Restored(v.Index, v.Zxid)
}

// readSnapshot builds a state from a snapshot. Nothing of it is trusted: every
// count and length is bounded before it is believed.
func readSnapshot(r io.Reader, featureLevel uint32) (View, error) {
	s := newSectionReader(r)
	if err := readPreamble(s); err != nil {
		return View{}, err
	}
	var h header
	var table *session.Table
	var tree *znode.Tree
	err := s.section(func(r io.Reader) (err error) {
		h, err = readHeader(r, featureLevel)
		return err
	})
	if err == nil {
		err = s.section(func(r io.Reader) (err error) {
			table, err = session.Decode(r, decodeValue)
			return asBad("sessions", err)
		})
	}
	if err == nil {
		err = s.section(func(r io.Reader) (err error) {
			tree, err = znode.Decode(r)
			return asBad("tree", err)
		})
	}
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return View{}, err
	}
	return stateOf(&h, tree, table)
}

func readPreamble(s *sectionReader) error {
	var b [len(snapshotMagic) + 4]byte
	if err := s.raw(b[:]); err != nil {
		return err
	}
	if [len(snapshotMagic)]byte(b[:]) != snapshotMagic {
		return fmt.Errorf("%w: it does not begin as one", ErrBadSnapshot)
	}
	if v := binary.LittleEndian.Uint32(b[len(snapshotMagic):]); v != snapshotVersion {
		return fmt.Errorf("%w: format version %d, this server knows %d", ErrBadSnapshot, v, snapshotVersion)
	}
	return nil
}

func readHeader(r io.Reader, featureLevel uint32) (header, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxHeaderBytes))
	if err != nil {
		return header{}, err
	}
	h, err := decodeHeader(b)
	if err != nil {
		return header{}, asBad("header", err)
	}
	if h.featureLevel > featureLevel {
		return header{}, fmt.Errorf("%w: feature level %d, this server knows %d", ErrBadSnapshot, h.featureLevel, featureLevel)
	}
	if h.zxid > maxZxid {
		return header{}, fmt.Errorf("%w: transaction id %s", ErrBadSnapshot, h.zxid)
	}
	return h, nil
}

func asBad(part string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s: %w", ErrBadSnapshot, part, err)
}

// stateOf puts the parts together and compares their digest with that of the
// state the snapshot was taken of.
func stateOf(h *header, tree *znode.Tree, table *session.Table) (View, error) {
	v := View{
		Tree: tree, Sessions: table, Zxid: h.zxid, Index: h.index, Term: h.term, Clock: h.clock,
		EpochTerm: h.epochTerm, ClusterID: h.clusterID, FeatureLevel: h.featureLevel,
	}
	if d := digestOf(&v); d != h.digest {
		return View{}, fmt.Errorf("%w: the state read has digest %016x, the one written had %016x", ErrBadSnapshot, d, h.digest)
	}
	return v, nil
}
