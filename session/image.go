package session

import (
	"encoding/binary"
	"fmt"
	"io"
)

// imageVersion is the form of the bytes Encode writes. A change of what is
// written, or of its meaning, raises it.
const imageVersion = 1

var imageMagic = [8]byte{'c', 'o', 'o', 'r', 'd', 's', 'e', 's'}

// Image is the table as it was when [Table.Snapshot] was called. It is read by
// one goroutine while the table is changed by another.
type Image struct {
	sessions frozen[Session]
	ended    frozen[Ended]
	servers  frozen[ServerLine]
	requests frozen[Request]
	digest   uint64
}

// Snapshot returns an image of the table. It copies one pointer for each 256
// things in the table, and hashes what was edited since the last Digest; what
// is changed afterwards is copied first. Pointers from Edit are void after it.
func (t *Table) Snapshot() *Image {
	i := &Image{digest: t.Digest()}
	i.sessions = t.sessions.freeze()
	i.ended = t.ended.freeze()
	i.servers = t.servers.freeze()
	i.requests = t.requests.freeze()
	t.edition++
	return i
}

// Digest is that of the table at the moment of the snapshot.
func (i *Image) Digest() uint64 { return i.digest }

// Len is the number of open sessions in the image.
func (i *Image) Len() int { return i.sessions.len() }

// Encode writes the image to w. appendValue appends the bytes of a remembered
// answer; it is called for values only, never for nil. Equal tables give equal
// bytes. The bytes end by themselves: more may follow on the same stream.
func (i *Image) Encode(w io.Writer, appendValue func([]byte, Value) []byte) error {
	e := &encoder{w: newChunkWriter(w), value: appendValue}
	e.buf = append(e.buf, imageMagic[:]...)
	e.buf = binary.AppendUvarint(e.buf, imageVersion)
	e.buf = appendUint64(e.buf, i.digest)
	e.count(i.sessions.len())
	for s := range i.sessions.all() {
		e.buf = appendSession(e.buf, s)
		e.line(&s.Line)
	}
	e.count(i.ended.len())
	for x := range i.ended.all() {
		e.buf = appendEnded(e.buf, x)
		e.flush()
	}
	e.count(i.servers.len())
	for l := range i.servers.all() {
		e.buf = appendServerLine(e.buf, l)
		e.line(&l.Line)
	}
	e.count(i.requests.len())
	for r := range i.requests.all() {
		e.buf = appendRequest(e.buf, r)
		e.remembered(r.Value)
	}
	e.flush()
	if err := e.w.finish(e.err); err != nil {
		return fmt.Errorf("write image of the session table: %w", err)
	}
	return nil
}

// encoder gathers one thing at a time in buf and hands it to w.
type encoder struct {
	w     *chunkWriter
	value func([]byte, Value) []byte
	buf   []byte
	val   []byte
	err   error
}

func (e *encoder) count(n int) { e.buf = binary.AppendUvarint(e.buf, uint64(n)) }

func (e *encoder) line(l *Line) {
	for _, r := range l.kept[l.head:] {
		e.remembered(r.value)
	}
	e.flush()
}

// remembered writes one value: 0 for none, else its length + 1 and its bytes.
func (e *encoder) remembered(v Value) {
	if v == nil {
		e.buf = append(e.buf, 0)
		return
	}
	e.val = e.value(e.val[:0], v)
	e.buf = binary.AppendUvarint(e.buf, uint64(len(e.val))+1)
	e.buf = append(e.buf, e.val...)
	e.flush()
}

func (e *encoder) flush() {
	if e.err == nil {
		e.err = e.w.write(e.buf)
	}
	e.buf = e.buf[:0]
}
