package session

import (
	"iter"
	"slices"
	"sort"
)

// pageSize is how many pointers a page holds: a page is what the first change
// after a snapshot copies (2 KiB), and the snapshot itself copies one pointer
// for each page.
const pageSize = 256

// shelf keeps pointers in ascending order, in pages that are copied on the
// first write after a snapshot. Writers say which edition of the table they
// write for; a page of an older edition may be part of an image and is left
// alone. The zero value is not usable: compare must be set.
//
// Invariant: pages are never empty, n = Σ len(page.items), items ascend
// strictly by compare within and over pages.
type shelf[T any] struct {
	compare func(a, b *T) int
	pages   []*page[T]
	n       int
}

type page[T any] struct {
	edition uint64
	items   []*T
}

// find returns the place of x: the page, the index within it, and whether it
// is there. If it is not, the place is where it would be inserted, and i may be
// len(pages) only if the shelf is empty.
func (s *shelf[T]) find(x *T) (p, i int, ok bool) {
	p = sort.Search(len(s.pages), func(p int) bool {
		return s.compare(s.pages[p].items[0], x) > 0
	})
	if p > 0 {
		p--
	}
	if p == len(s.pages) {
		return p, 0, false
	}
	i, ok = slices.BinarySearchFunc(s.pages[p].items, x, s.compare)
	return p, i, ok
}

// own returns page p, ready to be written in this edition.
func (s *shelf[T]) own(p int, edition uint64) *page[T] {
	pg := s.pages[p]
	if pg.edition == edition {
		return pg
	}
	c := &page[T]{edition: edition, items: make([]*T, len(pg.items), pageSize)}
	copy(c.items, pg.items)
	s.pages[p] = c
	return c
}

// insert puts x in its place; it reports false, and does nothing, if an equal
// one is there.
func (s *shelf[T]) insert(x *T, edition uint64) bool {
	p, i, ok := s.find(x)
	if ok {
		return false
	}
	s.n++
	if p == len(s.pages) {
		s.addPage(p, edition, x)
		return true
	}
	if len(s.pages[p].items) < pageSize {
		pg := s.own(p, edition)
		pg.items = slices.Insert(pg.items, i, x)
		return true
	}
	// Ids rise, so the usual full page is the last one and stays full.
	if i == pageSize {
		s.addPage(p+1, edition, x)
		return true
	}
	s.split(p, edition)
	if i > pageSize/2 {
		p, i = p+1, i-pageSize/2
	}
	pg := s.own(p, edition)
	pg.items = slices.Insert(pg.items, i, x)
	return true
}

func (s *shelf[T]) addPage(p int, edition uint64, xs ...*T) {
	pg := &page[T]{edition: edition, items: make([]*T, len(xs), pageSize)}
	copy(pg.items, xs)
	s.pages = slices.Insert(s.pages, p, pg)
}

// split moves the upper half of page p to a new page behind it.
func (s *shelf[T]) split(p int, edition uint64) {
	pg := s.own(p, edition)
	s.addPage(p+1, edition, pg.items[pageSize/2:]...)
	clear(pg.items[pageSize/2:])
	pg.items = pg.items[:pageSize/2]
}

// replace puts x in the place of the one that is equal to it.
func (s *shelf[T]) replace(x *T, edition uint64) bool {
	p, i, ok := s.find(x)
	if ok {
		s.own(p, edition).items[i] = x
	}
	return ok
}

// remove takes out the one that is equal to x.
func (s *shelf[T]) remove(x *T, edition uint64) bool {
	p, i, ok := s.find(x)
	if !ok {
		return false
	}
	s.n--
	pg := s.own(p, edition)
	pg.items = slices.Delete(pg.items, i, i+1) // clears the freed place
	if len(pg.items) == 0 {
		s.pages = slices.Delete(s.pages, p, p+1)
		return true
	}
	s.join(p, edition)
	return true
}

// join puts page p and its next together when both are so empty that pages
// would come to outweigh what they hold.
func (s *shelf[T]) join(p int, edition uint64) {
	if p+1 >= len(s.pages) || len(s.pages[p].items)+len(s.pages[p+1].items) > pageSize/2 {
		return
	}
	pg := s.own(p, edition)
	pg.items = append(pg.items, s.pages[p+1].items...)
	s.pages = slices.Delete(s.pages, p+1, p+2)
}

// first returns the smallest, or nil.
func (s *shelf[T]) first() *T {
	if len(s.pages) == 0 {
		return nil
	}
	return s.pages[0].items[0]
}

// from yields those at or above x in order, all if x is nil. The shelf must not
// be changed meanwhile.
func (s *shelf[T]) from(x *T) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		p, i := 0, 0
		if x != nil {
			p, i, _ = s.find(x)
		}
		eachItem(s.pages, p, i, yield)
	}
}

func eachItem[T any](pages []*page[T], p, i int, yield func(*T) bool) {
	for ; p < len(pages); p, i = p+1, 0 {
		for ; i < len(pages[p].items); i++ {
			if !yield(pages[p].items[i]) {
				return
			}
		}
	}
}

// freeze returns the pages as they are now, for an image. The caller raises the
// edition.
func (s *shelf[T]) freeze() frozen[T] { return slices.Clone(s.pages) }

// frozen is the content of a shelf at one moment. Its pages are never written
// to any more.
type frozen[T any] []*page[T]

func (f frozen[T]) len() int {
	n := 0
	for _, p := range f {
		n += len(p.items)
	}
	return n
}

func (f frozen[T]) all() iter.Seq[*T] {
	return func(yield func(*T) bool) { eachItem(f, 0, 0, yield) }
}
