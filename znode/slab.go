package znode

import "math/bits"

// pageSize is how many items a page of a slab has. A page is what the first
// write after a snapshot copies: 26 KiB of nodes, which fills an allocation
// class of Go with little waste.
const pageSize = 256

// maxSlots bounds the numbers of a slab, and with them what a hostile image
// can make a reader allocate. 134 million nodes do not fit the memory of a
// server anyhow.
const maxSlots = 1 << 27

// slab keeps items of one type under small numbers, in pages that are copied
// on the first write after a snapshot. Number 0 is never handed out, so that it
// can mean "none". The zero value is ready.
//
// A new item gets the lowest free number. So the numbers follow from which
// items live, and a replica that was restored from an image numbers on exactly
// like one that was not.
//
// Invariants: pages[p] is nil only if no item of page p lives; gens[p] is the
// generation that page p was made or copied in; a page with gens[p] != gen may
// be part of an image and is read only.
type slab[T any] struct {
	pages []*[pageSize]T
	gens  []uint32
	gen   uint32
	free  freeSet
	n     int // live items
}

// at returns item i for reading.
func (s *slab[T]) at(i uint32) *T { return &s.pages[i/pageSize][i%pageSize] }

// own returns item i for writing. It is the only way to write, and what it
// returns is good until the next snapshot.
func (s *slab[T]) own(i uint32) *T {
	p := i / pageSize
	if s.gens[p] != s.gen {
		c := *s.pages[p]
		s.pages[p] = &c
		s.gens[p] = s.gen
	}
	return &s.pages[p][i%pageSize]
}

// alloc returns the lowest free number; its item is the zero value. It returns
// 0 when the slab is full.
func (s *slab[T]) alloc() uint32 {
	if len(s.pages) == 0 {
		s.addPage()
	}
	i, ok := s.free.lowest()
	if !ok {
		if len(s.pages)*pageSize >= maxSlots {
			return 0
		}
		i = uint32(len(s.pages) * pageSize)
		s.addPage()
	}
	s.take(i)
	return i
}

// claim takes number i for an item that is being restored. It reports false if
// the number is out of range or taken.
func (s *slab[T]) claim(i uint32) bool {
	if i == 0 || i >= maxSlots {
		return false
	}
	for int(i/pageSize) >= len(s.pages) {
		s.addPage()
	}
	if !s.free.has(i) {
		return false
	}
	s.take(i)
	return true
}

func (s *slab[T]) take(i uint32) {
	p := i / pageSize
	if s.pages[p] == nil {
		s.pages[p] = new([pageSize]T)
		s.gens[p] = s.gen
	}
	s.free.take(i)
	s.n++
}

// release clears item i and frees its number. A page that becomes empty is let
// go, but not the first one with room: the next item goes there.
func (s *slab[T]) release(i uint32) {
	var zero T
	*s.own(i) = zero
	s.free.put(i)
	s.n--
	p := i / pageSize
	if s.free.slots[p] != emptyPage {
		return
	}
	if first, _ := s.free.lowest(); first/pageSize < p {
		s.pages[p] = nil
	}
}

// addPage makes room for 256 more numbers, without memory for their items.
func (s *slab[T]) addPage() {
	s.pages = append(s.pages, nil)
	s.gens = append(s.gens, s.gen)
	s.free.addPage()
}

// snapshot returns the pages as they are now. They are not written any more;
// later writes go to copies.
func (s *slab[T]) snapshot() []*[pageSize]T {
	s.gen++
	return append([]*[pageSize]T(nil), s.pages...)
}

// freeSet finds the lowest free number in a few steps: one bit for each
// number, and above them one bit for each page that has a free one.
type freeSet struct {
	slots []pageBits // bit set: free
	pages []uint64   // bit set: the page has a free number
}

type pageBits [pageSize / 64]uint64

var emptyPage = pageBits{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}

func (f *freeSet) addPage() {
	p := len(f.slots)
	f.slots = append(f.slots, emptyPage)
	if p == 0 {
		f.slots[0][0] &^= 1 // number 0 means none
	}
	if p/64 == len(f.pages) {
		f.pages = append(f.pages, 0)
	}
	f.pages[p/64] |= 1 << (p % 64)
}

func (f *freeSet) lowest() (uint32, bool) {
	for w, word := range f.pages {
		if word == 0 {
			continue
		}
		p := w*64 + bits.TrailingZeros64(word)
		for v, slot := range f.slots[p] {
			if slot != 0 {
				return uint32(p*pageSize + v*64 + bits.TrailingZeros64(slot)), true
			}
		}
	}
	return 0, false
}

func (f *freeSet) has(i uint32) bool {
	return f.slots[i/pageSize][i%pageSize/64]&(1<<(i%64)) != 0
}

func (f *freeSet) take(i uint32) {
	p := i / pageSize
	f.slots[p][i%pageSize/64] &^= 1 << (i % 64)
	if f.slots[p] == (pageBits{}) {
		f.pages[p/64] &^= 1 << (p % 64)
	}
}

func (f *freeSet) put(i uint32) {
	p := i / pageSize
	f.slots[p][i%pageSize/64] |= 1 << (i % 64)
	f.pages[p/64] |= 1 << (p % 64)
}
