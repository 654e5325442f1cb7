package main

import (
	"math/bits"
	"time"
)

// histogram counts durations. A bucket is at most 1/64 of its values wide, so
// that a quantile is off by less than 1.6 %. The zero value is empty.
type histogram struct {
	counts [(64 - histogramBits) << histogramBits]uint64
	n      uint64
	max    time.Duration
}

const histogramBits = 6

// bucket returns the index for v: the position of its highest bit and the bits
// that follow.
func bucket(v uint64) int {
	shift := max(bits.Len64(v)-histogramBits-1, 0)
	return shift<<histogramBits + int(v>>shift)
}

// top is the largest value in a bucket.
func top(bucket int) uint64 {
	shift := max(bucket>>histogramBits-1, 0)
	return uint64(bucket-shift<<histogramBits+1)<<shift - 1
}

func (h *histogram) add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

func (h *histogram) merge(other *histogram) {
	for i, c := range other.counts {
		h.counts[i] += c
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// quantile returns the least duration that at least the part q of all do not
// exceed; 0 of an empty histogram.
func (h *histogram) quantile(q float64) time.Duration {
	rank := max(uint64(q*float64(h.n)+0.5), 1)
	var seen uint64
	for i, c := range h.counts {
		if seen += c; c > 0 && seen >= rank {
			return min(time.Duration(top(i)), h.max)
		}
	}
	return h.max
}
