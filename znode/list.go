package znode

import "slices"

// list keeps node numbers in some order: the children of a node by name, the
// ephemerals of a session by number, the mortal nodes by their time. It is cut
// into chunks, so that neither a page of a million children nor an insert among
// them costs more than a chunk and a binary search. The zero value is empty.
//
// The order is not known to the list: each call brings a function that says on
// which side of the place looked for a number lies.
//
// Invariant: chunks are never empty, n = Σ len(chunk).
type list struct {
	chunks [][]uint32
	n      int
}

// chunkSize bounds a chunk (2 KiB). A full last chunk stays full, since names
// with sequence numbers come in ascending order.
const chunkSize = 512

// place is a position in a list.
type place struct{ chunk, at int }

// search returns the first place whose number is not before the one looked
// for, or the end. before(i) tells whether number i is.
func (l *list) search(before func(i uint32) bool) place {
	last := len(l.chunks) - 1
	if last < 0 {
		return place{}
	}
	if c := l.chunks[last]; before(c[len(c)-1]) {
		return place{last, len(c)}
	}
	lo, hi := 0, last // the first chunk whose last number is not before
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if c := l.chunks[mid]; before(c[len(c)-1]) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	c := l.chunks[lo]
	a, b := 0, len(c)-1
	for a < b {
		mid := int(uint(a+b) / 2)
		if before(c[mid]) {
			a = mid + 1
		} else {
			b = mid
		}
	}
	return place{lo, a}
}

// get returns the number at p, or 0 at the end.
func (l *list) get(p place) uint32 {
	if p.chunk >= len(l.chunks) || p.at >= len(l.chunks[p.chunk]) {
		return 0
	}
	return l.chunks[p.chunk][p.at]
}

// next returns the place behind p.
func (l *list) next(p place) place {
	if p.at+1 < len(l.chunks[p.chunk]) || p.chunk+1 >= len(l.chunks) {
		return place{p.chunk, p.at + 1}
	}
	return place{p.chunk + 1, 0}
}

// insert puts i at p, a place that search returned.
func (l *list) insert(p place, i uint32) {
	l.n++
	if len(l.chunks) == 0 {
		l.chunks = append(l.chunks, []uint32{i})
		return
	}
	c := l.chunks[p.chunk]
	switch {
	case len(c) < chunkSize:
		l.chunks[p.chunk] = slices.Insert(c, p.at, i)
	case p.at == len(c):
		l.chunks = slices.Insert(l.chunks, p.chunk+1, []uint32{i})
	default:
		l.split(p.chunk)
		if p.at > chunkSize/2 {
			p = place{p.chunk + 1, p.at - chunkSize/2}
		}
		l.chunks[p.chunk] = slices.Insert(l.chunks[p.chunk], p.at, i)
	}
}

func (l *list) split(at int) {
	c := l.chunks[at]
	upper := append(make([]uint32, 0, chunkSize), c[chunkSize/2:]...)
	l.chunks[at] = c[:chunkSize/2]
	l.chunks = slices.Insert(l.chunks, at+1, upper)
}

// remove takes out the number at p, and joins chunks that have become small.
func (l *list) remove(p place) {
	l.n--
	c := slices.Delete(l.chunks[p.chunk], p.at, p.at+1)
	l.chunks[p.chunk] = c
	if len(c) == 0 {
		l.chunks = slices.Delete(l.chunks, p.chunk, p.chunk+1)
		return
	}
	if cap(c) > 4*len(c) && cap(c) > 16 {
		l.chunks[p.chunk] = append(make([]uint32, 0, 2*len(c)), c...)
	}
	if next := p.chunk + 1; next < len(l.chunks) && len(c)+len(l.chunks[next]) <= chunkSize/2 {
		l.chunks[p.chunk] = append(l.chunks[p.chunk], l.chunks[next]...)
		l.chunks = slices.Delete(l.chunks, next, next+1)
	}
}

// fill makes the list hold numbers, which are in its order already.
func (l *list) fill(numbers []uint32) {
	l.n = len(numbers)
	l.chunks = make([][]uint32, 0, (len(numbers)+chunkSize-1)/chunkSize)
	for c := range slices.Chunk(numbers, chunkSize) {
		l.chunks = append(l.chunks, slices.Clone(c))
	}
}

// each calls f for each number in order until it returns false.
func (l *list) each(f func(i uint32) bool) {
	for _, c := range l.chunks {
		for _, i := range c {
			if !f(i) {
				return
			}
		}
	}
}
