package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// staging is a backup on its way into the state. What has come of it is part of
// the state: of its snapshots, so that a server that joins half-way can commit
// it as well, and of its digest.
type staging struct {
	begin   RestoreBegin
	touched int64 // state clock of its last command

	chunks [][]byte // each is never changed again
	got    int64    // Σ len(chunks)
	sum    *xxhash.Digest

	// build makes the tree, aside; nil until all bytes have come.
	build *building
}

func newStaging(b *RestoreBegin, now int64) *staging {
	return &staging{begin: *b, touched: now, sum: xxhash.New()}
}

// add takes the next bytes. data is kept.
func (s *staging) add(data []byte) {
	_, _ = s.sum.Write(data) // never fails
	s.chunks = append(s.chunks, data)
	s.got += int64(len(data))
}

// buildIfWhole begins to build the tree when all bytes are there.
func (s *staging) buildIfWhole() {
	if s != nil && s.build == nil && s.got == s.begin.Size {
		s.build = startBuilding(s)
	}
}

// drop ends what goes on aside.
func (s *staging) drop() {
	if s != nil && s.build != nil {
		s.build.cancelled.Store(true)
	}
}

// frozen returns what an image keeps: the chunks are shared, and what is added
// later stands behind their end.
func (s *staging) frozen() *staging {
	if s == nil {
		return nil
	}
	return &staging{begin: s.begin, touched: s.touched, chunks: s.chunks[:len(s.chunks):len(s.chunks)], got: s.got}
}

func (s *staging) digest(h hash) hash {
	if s == nil {
		return h.bool(false)
	}
	h = h.bool(true).string(s.begin.ID).string(string(s.begin.Nonce[:])).uint64(uint64(s.begin.Size))
	h = h.string(string(s.begin.SHA256[:])).uint64(uint64(s.touched))
	return h.uint64(uint64(s.got)).uint64(s.sum.Sum64())
}

// appendStaging writes all but the bytes, of which it writes how many follow.
func appendStaging(dst []byte, s *staging) []byte {
	if s == nil {
		return appendBool(dst, false)
	}
	dst = appendBool(dst, true)
	dst = appendRestoreBegin(dst, &s.begin)
	dst = binary.AppendVarint(dst, s.touched)
	return binary.AppendVarint(dst, s.got)
}

// stagingHead is the inverse of appendStaging; got is how many bytes follow.
func stagingHead(r *reader) (s *staging, got int64) {
	if !r.bool() {
		return nil, 0
	}
	b := restoreBegin(r)
	s = newStaging(b, r.varint())
	got = r.varint()
	if r.err == nil && (checkRestoreBegin(b) != nil || got < 0 || got > b.Size) {
		r.fail("a restore of %d bytes, %d of them there", b.Size, got)
	}
	return s, got
}

// fill reads the bytes that belong to a staging. Memory grows with what comes.
func (s *staging) fill(r *summingReader, got int64) error {
	for got > 0 {
		b := make([]byte, min(got, MaxRestoreChunk))
		if err := r.fill(b); err != nil {
			return err
		}
		s.add(b)
		got -= int64(len(b))
	}
	return nil
}

// writeBytes writes what has come.
func (s *staging) writeBytes(w io.Writer) error {
	if s == nil {
		return nil
	}
	for _, c := range s.chunks {
		if _, err := w.Write(c); err != nil {
			return err
		}
	}
	return nil
}

// building makes a tree of the bytes of a backup, on a goroutine of its own,
// while other entries are applied. The outcome depends on the bytes alone, so it
// is the same on every replica. The goroutine waits for nothing: it ends by
// itself, soon after it was cancelled.
type building struct {
	cancelled atomic.Bool
	done      chan struct{} // closed at the end; the rest may be read then

	tree  *znode.Tree // without ephemerals
	last  zxid.ID     // no transaction in the tree is later
	level uint32      // feature level it was made at
	err   error
}

func startBuilding(s *staging) *building {
	b := &building{done: make(chan struct{})}
	go b.run(s.chunks, s.begin.SHA256)
	return b
}

func (b *building) run(chunks [][]byte, sum [sha256.Size]byte) {
	defer close(b.done)
	// A panic here would end every replica, now and at each start that comes to
	// this entry. It is an outcome like any other: the same bytes, the same panic.
	defer func() {
		if p := recover(); p != nil {
			b.err = fmt.Errorf("%w: it cannot be read: %v", ErrBadSnapshot, p)
		}
	}()
	b.err = b.make(chunks, sum)
}

func (b *building) make(chunks [][]byte, sum [sha256.Size]byte) error {
	if got := sumOf(chunks); got != sum {
		return fmt.Errorf("%w: its SHA-256 is %x, %x was announced", ErrBadSnapshot, got, sum)
	}
	v, err := readSnapshot(&chunkSource{chunks: chunks, stop: &b.cancelled}, math.MaxUint32)
	switch {
	case err != nil:
		return err
	case v.restoring != nil || v.Sessions.Len() > 0:
		return fmt.Errorf("%w: it is one of a server and not a backup", ErrBadSnapshot)
	}
	b.level, b.tree, b.last = v.FeatureLevel, v.Tree, v.Zxid
	if v.Zxid.Epoch() >= MaxRestoreEpoch {
		return nil // refused at the commit
	}
	b.last = v.Zxid.Next()
	dropEphemerals(v.Tree, b.last, v.Clock)
	return nil
}

// dropEphemerals deletes what belonged to sessions, locks among them: none of
// them lives. What was made to outlive its session goes too: the time that it
// was to stay began before the backup was made.
func dropEphemerals(t *znode.Tree, z zxid.ID, now int64) {
	for _, owner := range t.Owners() {
		tx := &znode.Tx{Zxid: z, Time: now, Caller: &znode.Caller{Session: owner, Trusted: true}, Cause: znode.ByAdmin}
		t.EndSession(tx, owner, false)
	}
}

func sumOf(chunks [][]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, c := range chunks {
		h.Write(c)
	}
	h.Sum(sum[:0])
	return sum
}

// formOf is the version in the preamble of a snapshot; what it is of bytes that
// are none has no meaning.
func formOf(chunks [][]byte) uint32 {
	var p [len(snapshotMagic) + 4]byte
	_, _ = io.ReadFull(&chunkSource{chunks: chunks}, p[:])
	return binary.LittleEndian.Uint32(p[len(snapshotMagic):])
}

// chunkSource reads chunks one after the other.
type chunkSource struct {
	chunks [][]byte
	at     bytes.Reader
	stop   *atomic.Bool // nil: never
}

// Read implements io.Reader.
func (c *chunkSource) Read(b []byte) (int, error) {
	if c.stop != nil && c.stop.Load() {
		return 0, errRestoreGone
	}
	for c.at.Len() == 0 {
		if len(c.chunks) == 0 {
			return 0, io.EOF
		}
		c.at.Reset(c.chunks[0])
		c.chunks = c.chunks[1:]
	}
	return c.at.Read(b)
}

// of reports whether nonce names this attempt.
func (s *staging) of(nonce session.Nonce) bool { return s != nil && s.begin.Nonce == nonce }
