package fsm

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/coordd/coord/internal/planted"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
)

const (
	// maxHeaderBytes bounds the header of a snapshot.
	maxHeaderBytes = 64 << 10
	// readBufferBytes is how much of a snapshot is read ahead.
	readBufferBytes = 256 << 10
)

// Restore replaces the state by the snapshot that r gives. The new state is
// built aside, compared with the digest it was written with, and swapped in
// under the write lock, where the hook hears of it too; until then readers see
// the old one. If it fails the old state stays, whole, and the error wraps
// ErrBadSnapshot unless r itself failed.
func (m *Machine) Restore(r io.Reader) error {
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
	planted.Run(planted.ForgetResults, v.Sessions)
	planted.Run(planted.DropSession, v.Sessions)
	m.entry.Lock()
	defer m.entry.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.restoring.drop()
	m.state = v
	m.state.restoring.buildIfWhole()
	m.fresh = 0
	m.marks.clear()
	clear(m.callers)
	m.publish()
	m.hook.Restored(v.Index, v.Zxid)
}

// readSnapshot builds a state from a snapshot. Nothing of it is trusted: every
// count and length is bounded before it is believed.
func readSnapshot(r io.Reader, featureLevel uint32) (View, error) {
	s := newSummingReader(bufio.NewReaderSize(r, readBufferBytes))
	v, err := readParts(s, featureLevel)
	if s.failed != nil {
		return View{}, fmt.Errorf("read snapshot: %w", s.failed)
	}
	return v, err
}

func readParts(s *summingReader, featureLevel uint32) (View, error) {
	h, err := readHeader(s, featureLevel)
	if err != nil {
		return View{}, err
	}
	table, err := session.Decode(s, decodeValue)
	if err != nil {
		return View{}, asBad("sessions", err)
	}
	tree, err := znode.Decode(s)
	if err != nil {
		return View{}, asBad("tree", err)
	}
	if err := h.restoring.fill(s, h.staged); err != nil {
		return View{}, err
	}
	if err := s.finish(); err != nil {
		return View{}, err
	}
	return stateOf(&h, tree, table)
}

func readHeader(s *summingReader, featureLevel uint32) (header, error) {
	var p [len(snapshotMagic) + 8]byte
	if err := s.fill(p[:]); err != nil {
		return header{}, err
	}
	if [len(snapshotMagic)]byte(p[:]) != snapshotMagic {
		return header{}, fmt.Errorf("%w: it does not begin as one", ErrBadSnapshot)
	}
	switch v := binary.LittleEndian.Uint32(p[len(snapshotMagic):]); {
	case v == 0:
		return header{}, fmt.Errorf("%w: format version 0", ErrBadSnapshot)
	case v > newestSnapshotVersion:
		return header{}, fmt.Errorf("%w: format version %d, this server knows %d: %w", ErrBadSnapshot, v, newestSnapshotVersion, ErrNewerRelease)
	}
	n := binary.LittleEndian.Uint32(p[len(snapshotMagic)+4:])
	if n > maxHeaderBytes {
		return header{}, fmt.Errorf("%w: header of %d bytes", ErrBadSnapshot, n)
	}
	b := make([]byte, n)
	if err := s.fill(b); err != nil {
		return header{}, err
	}
	h, err := decodeHeader(b)
	if err != nil {
		return header{}, asBad("header", err)
	}
	return h, checkHeader(&h, featureLevel)
}

func checkHeader(h *header, featureLevel uint32) error {
	if h.featureLevel > featureLevel {
		return fmt.Errorf("%w: feature level %d, this server knows %d: %w", ErrBadSnapshot, h.featureLevel, featureLevel, ErrNewerRelease)
	}
	if h.zxid > maxZxid {
		return fmt.Errorf("%w: transaction id %s", ErrBadSnapshot, h.zxid)
	}
	return nil
}

func asBad(part string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrBadSnapshot, part, err)
}

// stateOf puts the parts together and compares their digest with that of the
// state the snapshot was taken of.
func stateOf(h *header, tree *znode.Tree, table *session.Table) (View, error) {
	v := View{
		Tree: tree, Sessions: table, Zxid: h.zxid, Index: h.index, Term: h.term, Clock: h.clock,
		EpochTerm: h.epochTerm, ClusterID: h.clusterID, FeatureLevel: h.featureLevel,
		LastRestore: h.restored, restoring: h.restoring,
	}
	if d := digestOf(&v); d != h.digest {
		return View{}, fmt.Errorf("%w: the state read has digest %016x, the one written had %016x", ErrBadSnapshot, d, h.digest)
	}
	return v, nil
}

// ReadBackup reads what Image.Encode wrote, for who looks into a file and has no
// machine. It checks all that Restore checks, but for the feature level. The
// error wraps ErrBadSnapshot unless r itself failed.
func ReadBackup(r io.Reader) (*View, error) {
	v, err := readSnapshot(r, math.MaxUint32)
	if err != nil {
		return nil, err
	}
	return &v, nil
}
