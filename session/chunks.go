package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
)

// An image is a sequence of chunks: length (4 bytes), checksum of everything up
// to and with this chunk (8 bytes), the bytes. A chunk of length 0 ends it. So
// a reader takes no byte too many, holds no more than one chunk, and parses
// nothing before its checksum was right.
const (
	maxChunk    = 64 << 10
	chunkHeader = 12
)

type chunkWriter struct {
	w   io.Writer
	sum *xxhash.Digest
	buf []byte // header and bytes of the chunk being filled
}

func newChunkWriter(w io.Writer) *chunkWriter {
	return &chunkWriter{w: w, sum: xxhash.New(), buf: make([]byte, chunkHeader, chunkHeader+maxChunk)}
}

func (c *chunkWriter) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), cap(c.buf)-len(c.buf))
		c.buf = append(c.buf, b[:n]...)
		b = b[n:]
		if len(c.buf) == cap(c.buf) {
			if err := c.emit(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *chunkWriter) emit() error {
	body := c.buf[chunkHeader:]
	binary.LittleEndian.PutUint32(c.buf, uint32(len(body)))
	c.sum.Write(c.buf[:4])
	c.sum.Write(body)
	binary.LittleEndian.PutUint64(c.buf[4:], c.sum.Sum64())
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:chunkHeader]
	return err
}

// finish writes the last chunk and the end, unless there was an error before.
func (c *chunkWriter) finish(err error) error {
	if err == nil && len(c.buf) > chunkHeader {
		err = c.emit()
	}
	if err == nil {
		err = c.emit()
	}
	return err
}

type chunkReader struct {
	r    io.Reader
	sum  *xxhash.Digest
	buf  []byte
	rest []byte // of the chunk that was read, not used yet
	end  bool
	io   bool // r itself failed: that says nothing about the image
}

func newChunkReader(r io.Reader) *chunkReader { return &chunkReader{r: r, sum: xxhash.New()} }

var (
	errImageEnds = errors.New("it ends too early")
	errChecksum  = errors.New("checksum is wrong")
)

// next reads a chunk. It is called when rest is empty.
func (c *chunkReader) next() error {
	if c.end {
		return errImageEnds
	}
	var h [chunkHeader]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return c.short(err)
	}
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxChunk {
		return fmt.Errorf("a chunk has %d bytes, more than %d", n, maxChunk)
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, n)
	}
	c.rest = c.buf[:n]
	if _, err := io.ReadFull(c.r, c.rest); err != nil {
		return c.short(err)
	}
	c.sum.Write(h[:4])
	c.sum.Write(c.rest)
	if c.sum.Sum64() != binary.LittleEndian.Uint64(h[4:]) {
		return errChecksum
	}
	c.end = n == 0
	return nil
}

func (c *chunkReader) short(err error) error {
	c.rest = nil
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errImageEnds
	}
	c.io = true
	return err
}

// read fills b.
func (c *chunkReader) read(b []byte) error {
	for len(b) > 0 {
		if len(c.rest) == 0 {
			if err := c.next(); err != nil {
				return err
			}
			continue
		}
		n := copy(b, c.rest)
		b, c.rest = b[n:], c.rest[n:]
	}
	return nil
}

// ReadByte makes chunkReader an io.ByteReader for binary.ReadUvarint.
func (c *chunkReader) ReadByte() (byte, error) {
	for len(c.rest) == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return b, nil
}

// finish reads the end; anything before it is too much.
func (c *chunkReader) finish() error {
	if len(c.rest) == 0 && !c.end {
		if err := c.next(); err != nil {
			return err
		}
	}
	if len(c.rest) > 0 || !c.end {
		return errors.New("bytes are left over")
	}
	return nil
}
