package fsm

import "github.com/cespare/xxhash/v2"

// hash is a running sum of 64 bits over a sequence of values. It is part of
// replicated digests: the same on every machine and in every version.
type hash uint64

func (h hash) uint64(v uint64) hash { return hash(mix64(uint64(h) ^ mix64(v+0x9e3779b97f4a7c15))) }

func (h hash) string(s string) hash {
	if s == "" {
		return h.uint64(0)
	}
	return h.uint64(xxhash.Sum64String(s))
}

func (h hash) bool(b bool) hash {
	if b {
		return h.uint64(1)
	}
	return h.uint64(0)
}

// mix64 is the finisher of SplitMix64: every input bit reaches every output bit.
func mix64(v uint64) uint64 {
	v ^= v >> 30
	v *= 0xbf58476d1ce4e5b9
	v ^= v >> 27
	v *= 0x94d049bb133111eb
	return v ^ v>>31
}

// requestHash sums what a request does; who asks and until when is not part of
// it, because a repeat may come through another server. ops are encoded.
func requestHash(multi bool, ops []byte) uint64 {
	return uint64(hash(xxhash.Sum64(ops)).bool(multi))
}
