package znode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// An image is written in chunks: a length of 4 bytes and so many bytes, up to a
// length of 0 and the xxhash of all that was in chunks. So a reader takes not
// one byte more from the stream than belongs to the image, and whatever follows
// it there is left in place.
const maxChunk = 64 << 10

// ErrCorrupt is returned when an image cannot be read: it is cut, changed, or
// was never one.
var ErrCorrupt = errors.New("damaged image of the tree")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// chunkWriter writes the chunks. The first error stops it and is kept.
type chunkWriter struct {
	w   io.Writer
	sum *xxhash.Digest
	buf []byte // 4 bytes for the length, then the chunk
	err error
}

func newChunkWriter(w io.Writer) *chunkWriter {
	return &chunkWriter{w: w, sum: xxhash.New(), buf: make([]byte, 4, 4+maxChunk)}
}

// room makes sure that n more bytes fit into the buffer.
func (c *chunkWriter) room(n int) {
	if len(c.buf)+n > cap(c.buf) {
		c.flush()
	}
}

func (c *chunkWriter) uvarint(v uint64) {
	c.room(binary.MaxVarintLen64)
	c.buf = binary.AppendUvarint(c.buf, v)
}

func (c *chunkWriter) varint(v int64) {
	c.room(binary.MaxVarintLen64)
	c.buf = binary.AppendVarint(c.buf, v)
}

func (c *chunkWriter) uint64(v uint64) {
	c.room(8)
	c.buf = binary.LittleEndian.AppendUint64(c.buf, v)
}

func (c *chunkWriter) text(s string) {
	for len(s) > 0 {
		c.room(1)
		n := min(len(s), cap(c.buf)-len(c.buf))
		c.buf = append(c.buf, s[:n]...)
		s = s[n:]
	}
}

func (c *chunkWriter) flush() {
	if c.err == nil && len(c.buf) > 4 {
		binary.LittleEndian.PutUint32(c.buf, uint32(len(c.buf)-4))
		_, _ = c.sum.Write(c.buf[4:])
		_, c.err = c.w.Write(c.buf)
	}
	c.buf = c.buf[:4]
}

// close writes the end.
func (c *chunkWriter) close() error {
	c.flush()
	if c.err != nil {
		return c.err
	}
	end := binary.LittleEndian.AppendUint64(make([]byte, 4), c.sum.Sum64())
	_, c.err = c.w.Write(end)
	return c.err
}

// chunkReader reads what chunkWriter wrote. The first error stops it and is
// kept; all that is read behind it is zero.
type chunkReader struct {
	r   io.Reader
	sum *xxhash.Digest
	buf []byte // the chunk
	at  int    // what of it was read
	err error
}

func newChunkReader(r io.Reader) *chunkReader {
	return &chunkReader{r: r, sum: xxhash.New()}
}

func (c *chunkReader) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.buf, c.at = nil, 0
}

// full reads exactly len(b) bytes of the stream.
func (c *chunkReader) full(b []byte) bool {
	if _, err := io.ReadFull(c.r, b); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = corrupt("it ends too early")
		}
		c.fail(err)
		return false
	}
	return true
}

// more gets the next chunk, when the one before it has been read.
func (c *chunkReader) more() bool {
	var head [4]byte
	if c.err != nil || !c.full(head[:]) {
		return false
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		c.fail(corrupt("it ends too early"))
		return false
	}
	if n > maxChunk {
		c.fail(corrupt("a chunk of %d bytes", n))
		return false
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, maxChunk)
	}
	b := c.buf[:n]
	if !c.full(b) {
		return false
	}
	c.buf, c.at = b, 0
	_, _ = c.sum.Write(b)
	return true
}

func (c *chunkReader) byte() byte {
	if c.at == len(c.buf) && !c.more() {
		return 0
	}
	b := c.buf[c.at]
	c.at++
	return b
}

func (c *chunkReader) uvarint() uint64 {
	if len(c.buf)-c.at >= binary.MaxVarintLen64 {
		v, n := binary.Uvarint(c.buf[c.at:])
		if n <= 0 {
			c.fail(corrupt("a number has too many bytes"))
			return 0
		}
		c.at += n
		return v
	}
	var v uint64
	for shift := uint(0); shift < 70; shift += 7 {
		b := c.byte()
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	c.fail(corrupt("a number has too many bytes"))
	return 0
}

func (c *chunkReader) varint() int64 {
	v := c.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// text reads n bytes into b. Memory grows with what really comes, whatever n
// says.
func (c *chunkReader) text(b *strings.Builder, n int) {
	for n > 0 {
		if c.at == len(c.buf) && !c.more() {
			return
		}
		k := min(n, len(c.buf)-c.at)
		b.Write(c.buf[c.at : c.at+k])
		c.at += k
		n -= k
	}
}

func (c *chunkReader) string(n int) string {
	var b strings.Builder
	c.text(&b, n)
	return b.String()
}

func (c *chunkReader) uint64() uint64 {
	var b [8]byte
	for i := range b {
		b[i] = c.byte()
	}
	return binary.LittleEndian.Uint64(b[:])
}

// end reads the end, and compares the checksum.
func (c *chunkReader) end() error {
	var tail [12]byte
	if c.err == nil && c.at != len(c.buf) {
		c.fail(corrupt("%d bytes behind the last record", len(c.buf)-c.at))
	}
	if c.err != nil || !c.full(tail[:]) {
		return c.err
	}
	if binary.LittleEndian.Uint32(tail[:]) != 0 || binary.LittleEndian.Uint64(tail[4:]) != c.sum.Sum64() {
		c.fail(corrupt("the checksum is wrong"))
	}
	return c.err
}
