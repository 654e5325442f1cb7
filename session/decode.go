package session

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/coordd/coord/zxid"
)

// Bounds of what an image may hold; larger is not ours.
const (
	maxString = 1 << 20
	maxValue  = 64 << 20
)

// Decode reads a table from r. value makes a remembered answer of its bytes,
// which it may keep. Bytes that are not a whole, undamaged image of a version
// this program knows are [ErrBadImage], whatever they are: no panic, and no
// memory for more than they hold. An error of r comes back as it is.
func Decode(r io.Reader, value func([]byte) (Value, error)) (*Table, error) {
	d := &decoder{r: newChunkReader(r), value: value}
	t := d.table()
	if d.err != nil {
		return nil, fmt.Errorf("read session table: %w", d.err)
	}
	return t, nil
}

type decoder struct {
	r       *chunkReader
	value   func([]byte) (Value, error)
	pending uint64 // values that follow the line just read
	err     error
}

func (d *decoder) table() *Table {
	want := d.header()
	t := NewTable()
	for n := d.count(math.MaxInt32); n > 0 && d.err == nil; n-- {
		s := d.session()
		d.values(&s.Line)
		d.check(t.Open(s))
	}
	for n := d.count(MaxEnded); n > 0 && d.err == nil; n-- {
		d.addEnded(t, d.ended())
	}
	for n := d.count(math.MaxInt32); n > 0 && d.err == nil; n-- {
		l := d.serverLine()
		d.values(&l.Line)
		if t.serverBy[l.Server] != nil {
			d.fail("a server is there twice")
			break
		}
		t.addServer(l)
	}
	for n := d.count(MaxRequests); n > 0 && d.err == nil; n-- {
		r := d.request()
		r.Value = d.remembered()
		if d.err == nil {
			d.check(t.Remember(r))
		}
	}
	d.check(d.r.finish())
	if d.err == nil {
		d.check(t.Check())
	}
	if d.err == nil && t.Digest() != want {
		d.fail("its content has another digest than it names")
	}
	return t
}

// header returns the digest that the content must have.
func (d *decoder) header() uint64 {
	var magic [8]byte
	d.fixed(magic[:])
	if d.err == nil && magic != imageMagic {
		d.fail("it begins with something else")
	}
	if v := d.uvarint(); d.err == nil && v != imageVersion {
		d.fail(fmt.Sprintf("it has version %d, this program knows version %d", v, imageVersion))
	}
	return d.uint64()
}

func (d *decoder) addEnded(t *Table, e *Ended) {
	if d.err != nil {
		return
	}
	if t.open[e.ID] != nil || t.endedBy[e.ID] != nil {
		d.fail("an ended session is there twice")
		return
	}
	t.rememberEnded(e)
}

// values reads the answers that belong to the line just read. Places are made
// as values come: the number is only a claim.
func (d *decoder) values(l *Line) {
	first := l.done - d.pending + 1
	for ; d.pending > 0 && d.err == nil; d.pending-- {
		v := d.remembered()
		e := remembered{value: v, digest: entryDigest(first+uint64(len(l.kept)), v)}
		l.kept = append(l.kept, e)
		l.digest += e.digest
		if v != nil {
			l.bytes += v.Size()
		}
	}
}

func (d *decoder) remembered() Value {
	n := d.uvarint()
	if n == 0 || d.err != nil {
		return nil
	}
	b := d.bytes(n-1, maxValue)
	if d.err != nil {
		return nil
	}
	v, err := d.value(b)
	if err == nil && v == nil {
		err = errors.New("no value")
	}
	if err != nil {
		d.err = fmt.Errorf("%w: remembered answer: %w", ErrBadImage, err)
		return nil
	}
	return v
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrBadImage, why)
	}
}

// check keeps the first error. What the reader under the image says is passed
// on; all else means that the bytes are wrong.
func (d *decoder) check(err error) {
	if err == nil || d.err != nil {
		return
	}
	if d.r.io {
		d.err = err
		return
	}
	d.err = fmt.Errorf("%w: %w", ErrBadImage, err)
}

func (d *decoder) fixed(b []byte) {
	if d.err == nil {
		d.check(d.r.read(b))
	}
}

func (d *decoder) uint64() uint64 {
	var b [8]byte
	d.fixed(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// byte reads a number up to limit.
func (d *decoder) byte(limit byte) byte {
	var b [1]byte
	d.fixed(b[:])
	if b[0] > limit {
		d.fail("a kind is unknown")
	}
	return b[0]
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(d.r)
	d.check(err)
	return v
}

func (d *decoder) varint() int64 {
	if d.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(d.r)
	d.check(err)
	return v
}

func (d *decoder) zxid() zxid.ID { return zxid.ID(d.uvarint()) }

// count reads how many things follow, at most limit.
func (d *decoder) count(limit uint64) uint64 {
	n := d.uvarint()
	if n > limit {
		d.fail(fmt.Sprintf("a count is %d, more than %d", n, limit))
		return 0
	}
	return n
}

func (d *decoder) string() string { return string(d.bytes(d.uvarint(), maxString)) }

// bytes reads n bytes. It takes memory as they come, so that a length alone
// costs nothing.
func (d *decoder) bytes(n, limit uint64) []byte {
	if n > limit {
		d.fail(fmt.Sprintf("a length is %d, more than %d", n, limit))
	}
	if d.err != nil {
		return nil
	}
	b := make([]byte, 0, min(n, maxChunk))
	for uint64(len(b)) < n && d.err == nil {
		step := min(n-uint64(len(b)), maxChunk)
		old := len(b)
		b = append(b, make([]byte, step)...)
		d.fixed(b[old:])
	}
	return b
}
