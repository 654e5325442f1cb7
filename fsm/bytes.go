package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBadCommand is returned for bytes that are no command or entry: a replica
// that finds them in its log stops.
var ErrBadCommand = errors.New("undecodable command")

func appendString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// reader takes values off the front of b. After the first mistake err is set
// and every further value is zero, so callers check once at the end. It never
// allocates more than the input could fill.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrBadCommand}, args...)...)
		r.b = nil
	}
}

// done reports the first mistake, or that bytes are left over.
func (r *reader) done() error {
	if r.err == nil && len(r.b) != 0 {
		r.fail("%d bytes left over", len(r.b))
	}
	return r.err
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("cut short")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) bool() bool {
	v := r.byte()
	if v > 1 {
		r.fail("%d is not a truth value", v)
	}
	return v == 1
}

func (r *reader) uint32() uint32 {
	if len(r.b) < 4 {
		r.fail("cut short")
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

// uvarint reads the shortest form only: one value has one encoding, so equal
// commands are equal bytes.
func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 { // the usual case
		v := r.b[0]
		r.b = r.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || r.b[n-1] == 0 {
		r.fail("bad number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

// narrow reads a number that must not be above limit.
func (r *reader) narrow(limit uint64) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail("%d where at most %d may stand", v, limit)
		return 0
	}
	return v
}

// count reads how many values follow, each of at least size bytes.
func (r *reader) count(size int) int {
	v := r.uvarint()
	if v > uint64(len(r.b)/size) {
		r.fail("%d values in %d bytes", v, len(r.b))
		return 0
	}
	return int(v)
}

// bytes returns a part of the input: copy what is kept.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail("%d bytes announced, %d there", n, len(r.b))
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

// fixed copies len(dst) bytes into dst.
func (r *reader) fixed(dst []byte) {
	if len(r.b) < len(dst) {
		r.fail("cut short")
		return
	}
	copy(dst, r.b)
	r.b = r.b[len(dst):]
}

func (r *reader) string() string { return string(r.bytes()) }

// known returns the string among words that the bytes spell, without
// allocating, or a copy of them.
func (r *reader) known(words ...string) string {
	b := r.bytes()
	for _, w := range words {
		if string(b) == w {
			return w
		}
	}
	return string(b)
}
