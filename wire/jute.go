package wire

import (
	"encoding/binary"
	"errors"
)

// ErrMarshalling is returned for a record that cannot be read.
var ErrMarshalling = errors.New("the record cannot be read")

// Primitives of the encoding: numbers are big-endian, a buffer or string has its
// length before it, a list the number of its elements; -1 stands for null.

func appendInt(dst []byte, v int32) []byte  { return binary.BigEndian.AppendUint32(dst, uint32(v)) }
func appendLong(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func appendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// appendBuffer writes nil as null, which is not the same as empty.
func appendBuffer(dst, b []byte) []byte {
	if b == nil {
		return appendInt(dst, -1)
	}
	return append(appendInt(dst, int32(len(b))), b...)
}

func appendString(dst []byte, s string) []byte {
	return append(appendInt(dst, int32(len(s))), s...)
}

func appendStrings(dst []byte, list []string) []byte {
	dst = appendInt(dst, int32(len(list)))
	for _, s := range list {
		dst = appendString(dst, s)
	}
	return dst
}

// reader takes a record apart. After the first thing that is missing it yields
// zeros, and err is set.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail() {
	r.b, r.err = nil, ErrMarshalling
}

func (r *reader) int() int32 {
	if len(r.b) < 4 {
		r.fail()
		return 0
	}
	v := int32(binary.BigEndian.Uint32(r.b))
	r.b = r.b[4:]
	return v
}

func (r *reader) long() int64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := int64(binary.BigEndian.Uint64(r.b))
	r.b = r.b[8:]
	return v
}

// bool takes any byte but zero for true.
func (r *reader) bool() bool {
	if len(r.b) < 1 {
		r.fail()
		return false
	}
	v := r.b[0] != 0
	r.b = r.b[1:]
	return v
}

// bytes yields a part of the input and whether it was not null.
func (r *reader) bytes() ([]byte, bool) {
	n := int(r.int())
	switch {
	case r.err != nil, n == -1:
		return nil, false
	case n < 0, n > len(r.b):
		r.fail()
		return nil, false
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v, true
}

// buffer yields a copy, nil for null and not nil for empty.
func (r *reader) buffer() []byte {
	b, ok := r.bytes()
	if !ok {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// string takes null for empty.
func (r *reader) string() string {
	b, _ := r.bytes()
	return string(b)
}

// path refuses null, which no node can have.
func (r *reader) path() string {
	b, ok := r.bytes()
	if !ok {
		r.fail()
	}
	return string(b)
}

// count yields the number of elements of a list, of which each takes at least min
// bytes, and whether it was not null.
func (r *reader) count(min int) (n int, ok bool) {
	n = int(r.int())
	switch {
	case r.err != nil, n == -1:
		return 0, false
	case n < 0, n > len(r.b)/min:
		r.fail()
		return 0, false
	}
	return n, true
}

// strings yields nil for null.
func (r *reader) strings() []string {
	n, ok := r.count(4)
	if !ok {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		list = append(list, r.string())
	}
	return list
}
