package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// A section is a sequence of chunks, each with its length (4 bytes) in front; a
// chunk of length 0 ends it. So a reader of one section can neither run into
// the next nor leave a part of its own unread without being noticed.
const (
	maxChunkBytes    = 256 << 10
	chunkHeaderBytes = 4
)

// sectionWriter writes sections and keeps the checksum of all bytes.
type sectionWriter struct {
	w   io.Writer
	sum *xxhash.Digest
	buf []byte // length and bytes of the chunk being filled
	err error
}

func newSectionWriter(w io.Writer) *sectionWriter {
	return &sectionWriter{w: w, sum: xxhash.New(), buf: make([]byte, chunkHeaderBytes, chunkHeaderBytes+maxChunkBytes)}
}

// raw writes bytes outside any section.
func (s *sectionWriter) raw(b []byte) {
	if s.err == nil {
		s.sum.Write(b)
		_, s.err = s.w.Write(b)
	}
}

// section writes what f writes as one section.
func (s *sectionWriter) section(f func(io.Writer) error) error {
	if err := f(s); err != nil {
		return err
	}
	if len(s.buf) > chunkHeaderBytes {
		s.emit()
	}
	s.emit()
	return s.err
}

// Write implements io.Writer for the section being written.
func (s *sectionWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 && s.err == nil {
		step := min(len(b), cap(s.buf)-len(s.buf))
		s.buf = append(s.buf, b[:step]...)
		b = b[step:]
		if len(s.buf) == cap(s.buf) {
			s.emit()
		}
	}
	return n - len(b), s.err
}

func (s *sectionWriter) emit() {
	binary.LittleEndian.PutUint32(s.buf, uint32(len(s.buf)-chunkHeaderBytes))
	s.raw(s.buf)
	s.buf = s.buf[:chunkHeaderBytes]
}

// finish writes the checksum of everything before it.
func (s *sectionWriter) finish() error {
	s.raw(binary.LittleEndian.AppendUint64(nil, s.sum.Sum64()))
	return s.err
}

// sectionReader reads what a sectionWriter wrote. It holds one chunk at a time.
type sectionReader struct {
	r    io.Reader
	sum  *xxhash.Digest
	buf  []byte
	rest []byte // of the chunk that was read
	end  bool   // of the section
	err  error  // the first; reading stops there
}

func newSectionReader(r io.Reader) *sectionReader { return &sectionReader{r: r, sum: xxhash.New()} }

// raw fills b with bytes outside any section.
func (s *sectionReader) raw(b []byte) error {
	if s.err != nil {
		return s.err
	}
	if _, err := io.ReadFull(s.r, b); err != nil {
		s.err = shortened(err)
		return s.err
	}
	s.sum.Write(b)
	return nil
}

// shortened tells bytes that end too early from a source that cannot be read.
func shortened(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends too early", ErrBadSnapshot)
	}
	return err
}

// section calls f with a reader of the next section, which f must read to its
// end.
func (s *sectionReader) section(f func(io.Reader) error) error {
	s.end, s.rest = false, nil
	if err := f(s); err != nil {
		if s.err != nil {
			return s.err // the source failed; f only passed it on
		}
		return err
	}
	if n, err := s.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		if s.err != nil {
			return s.err
		}
		return fmt.Errorf("%w: a section is longer than what it holds", ErrBadSnapshot)
	}
	return nil
}

// Read implements io.Reader for the section being read; io.EOF is its end.
func (s *sectionReader) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(s.rest) == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *sectionReader) next() error {
	if s.end {
		return io.EOF
	}
	var h [chunkHeaderBytes]byte
	if err := s.raw(h[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxChunkBytes {
		s.err = fmt.Errorf("%w: a chunk of %d bytes", ErrBadSnapshot, n)
		return s.err
	}
	if n == 0 {
		s.end = true
		return io.EOF
	}
	if cap(s.buf) < int(n) {
		s.buf = make([]byte, n)
	}
	if err := s.raw(s.buf[:n]); err != nil {
		return err
	}
	s.rest = s.buf[:n]
	return nil
}

// finish compares the checksum.
func (s *sectionReader) finish() error {
	want := s.sum.Sum64()
	var b [8]byte
	if err := s.raw(b[:]); err != nil {
		return err
	}
	if have := binary.LittleEndian.Uint64(b[:]); have != want {
		return fmt.Errorf("%w: its checksum is wrong", ErrBadSnapshot)
	}
	return nil
}
