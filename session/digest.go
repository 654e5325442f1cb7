package session

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// digestSum keeps the digest of a table: the sum, modulo 2^64, of one hash for
// each thing in it. A sum does not depend on the order in which things came and
// can be changed by one thing at a time. What is being edited is out of the sum
// until Digest is called, so that a write costs no hash of its own.
type digestSum struct {
	total    uint64
	sessions []*Session    // edited since the last Digest
	servers  []*ServerLine // the same
	scratch  []byte
}

// Each kind of thing is hashed behind its own first byte, so that no two kinds
// can stand for each other.
const (
	tagSession = 's'
	tagEnded   = 'e'
	tagServer  = 'l'
	tagRequest = 'r'
)

// Digest returns 64 bits over everything in the table: equal tables have equal
// digests, and different ones have not but by a chance of 2^-64. It costs as
// much as was edited since the last call.
func (t *Table) Digest() uint64 {
	for _, s := range t.sum.sessions {
		if s.dirty {
			s.digest = t.sum.session(s)
			s.dirty = false
			t.sum.total += s.digest
		}
	}
	for _, l := range t.sum.servers {
		if l.dirty {
			l.digest = t.sum.server(l)
			l.dirty = false
			t.sum.total += l.digest
		}
	}
	clear(t.sum.sessions)
	clear(t.sum.servers)
	t.sum.sessions, t.sum.servers = t.sum.sessions[:0], t.sum.servers[:0]
	return t.sum.total
}

func (d *digestSum) session(s *Session) uint64 {
	b := appendSession(append(d.scratch[:0], tagSession), s)
	return d.hash(appendUint64(b, s.Line.digest))
}

func (d *digestSum) server(l *ServerLine) uint64 {
	b := appendServerLine(append(d.scratch[:0], tagServer), l)
	return d.hash(appendUint64(b, l.Line.digest))
}

func (d *digestSum) ended(e *Ended) uint64 {
	return d.hash(appendEnded(append(d.scratch[:0], tagEnded), e))
}

func (d *digestSum) request(r *Request) uint64 {
	b := appendRequest(append(d.scratch[:0], tagRequest), r)
	return d.hash(appendUint64(b, entryDigest(0, r.Value)))
}

func (d *digestSum) hash(b []byte) uint64 {
	d.scratch = b
	return xxhash.Sum64(b)
}

// entryDigest is the digest of one remembered answer at its place in a line.
func entryDigest(seq uint64, v Value) uint64 {
	var b [25]byte
	binary.LittleEndian.PutUint64(b[:], seq)
	if v != nil {
		b[24] = 1
		binary.LittleEndian.PutUint64(b[8:], uint64(v.Size()))
		if d, ok := v.(Digester); ok {
			binary.LittleEndian.PutUint64(b[16:], d.Digest())
		}
	}
	return xxhash.Sum64(b[:])
}
