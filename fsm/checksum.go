package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// summingWriter passes bytes on and keeps their checksum. The first error
// stops it.
type summingWriter struct {
	w   io.Writer
	sum *xxhash.Digest
}

func newSummingWriter(w io.Writer) *summingWriter {
	return &summingWriter{w: w, sum: xxhash.New()}
}

// Write implements io.Writer.
func (s *summingWriter) Write(b []byte) (int, error) {
	s.sum.Write(b)
	return s.w.Write(b)
}

// finish writes the checksum of everything before it.
func (s *summingWriter) finish() error {
	_, err := s.w.Write(binary.LittleEndian.AppendUint64(nil, s.sum.Sum64()))
	return err
}

// summingReader passes bytes on and keeps their checksum, and the error of the
// source if it failed: that says nothing about the bytes.
type summingReader struct {
	r      io.Reader
	sum    *xxhash.Digest
	failed error
}

func newSummingReader(r io.Reader) *summingReader {
	return &summingReader{r: r, sum: xxhash.New()}
}

// Read implements io.Reader.
func (s *summingReader) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.sum.Write(b[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// fill reads len(b) bytes.
func (s *summingReader) fill(b []byte) error {
	if _, err := io.ReadFull(s, b); err != nil {
		return fmt.Errorf("%w: it ends too early", ErrBadSnapshot)
	}
	return nil
}

// finish compares the checksum, and asks that nothing follows it.
func (s *summingReader) finish() error {
	want := s.sum.Sum64()
	var b [8]byte
	if err := s.fill(b[:]); err != nil {
		return err
	}
	if binary.LittleEndian.Uint64(b[:]) != want {
		return fmt.Errorf("%w: its checksum is wrong", ErrBadSnapshot)
	}
	if n, _ := io.ReadFull(s, b[:1]); n != 0 {
		return fmt.Errorf("%w: more follows it", ErrBadSnapshot)
	}
	return nil
}
