package cluster

import (
	"sort"
	"sync"
)

// sizeMarkBytes is the resolution of logSizes. 64 MiB of log are 256 marks.
const sizeMarkBytes = 256 << 10

// logSizes knows how many bytes the entries of the log have, to within
// sizeMarkBytes, without remembering each entry. It learns from appends and,
// after a start, from the reads of raft, which goes through the log once from
// the snapshot on; entries before that stay unknown and are taken to be as
// large as the known ones.
//
// It is safe for concurrent use. The zero value knows nothing.
//
// Invariant: marks rise in index and total; known entries are those after
// marks[0].index up to last; total is their size plus marks[0].total.
type logSizes struct {
	mu    sync.Mutex
	marks []sizeMark
	last  uint64 // newest known entry; 0: none
	total uint64
}

// sizeMark says that all known entries up to index have total bytes.
type sizeMark struct{ index, total uint64 }

// appended counts an entry at the end of the log.
func (z *logSizes) appended(index uint64, size int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.marks) == 0 || index != z.last+1 {
		z.startLocked(index - 1)
	}
	z.addLocked(index, size)
}

// seen counts an entry that raft read, if it is the next unknown one. The
// first entry that is read begins the count.
func (z *logSizes) seen(index uint64, size int) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.marks) != 0 && index == z.last+1 {
		z.addLocked(index, size)
	}
}

// start begins the count behind index: raft is about to read from index+1 on.
func (z *logSizes) start(index uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.startLocked(index)
}

func (z *logSizes) startLocked(index uint64) {
	z.marks = append(z.marks[:0], sizeMark{index: index})
	z.last, z.total = index, 0
}

func (z *logSizes) addLocked(index uint64, size int) {
	z.last = index
	z.total += uint64(size)
	if newest := z.marks[len(z.marks)-1]; z.total-newest.total >= sizeMarkBytes {
		z.marks = append(z.marks, sizeMark{index: index, total: z.total})
	}
}

// removed forgets entries that were deleted at either end.
func (z *logSizes) removed(first, last uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.marks) == 0 || first > z.last {
		return
	}
	if last >= z.last { // a suffix, or all
		z.cutLocked(first)
		return
	}
	// A prefix: keep the last mark at or before its end as the new beginning.
	i := sort.Search(len(z.marks), func(i int) bool { return z.marks[i].index > last })
	if i > 1 {
		z.marks = append(z.marks[:0], z.marks[i-1:]...)
	}
}

func (z *logSizes) cutLocked(first uint64) {
	i := sort.Search(len(z.marks), func(i int) bool { return z.marks[i].index >= first })
	if i == 0 {
		z.marks, z.last, z.total = nil, 0, 0
		return
	}
	// Between the mark and first the size is not known exactly; share it out.
	before := z.totalAtLocked(first - 1)
	z.marks = z.marks[:i]
	z.last, z.total = first-1, before
}

// totalAtLocked estimates the total at index by a straight line between the
// marks around it.
func (z *logSizes) totalAtLocked(index uint64) uint64 {
	if index >= z.last {
		return z.total
	}
	i := sort.Search(len(z.marks), func(i int) bool { return z.marks[i].index > index })
	if i == 0 {
		return z.marks[0].total
	}
	low, high := z.marks[i-1], sizeMark{z.last, z.total}
	if i < len(z.marks) {
		high = z.marks[i]
	}
	return low.total + (high.total-low.total)*(index-low.index)/(high.index-low.index)
}

// after returns the bytes of the known entries behind index.
func (z *logSizes) after(index uint64) uint64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.marks) == 0 {
		return 0
	}
	return z.total - z.totalAtLocked(index)
}

// within returns how many of the newest entries make about size bytes. If
// fewer are known, it goes on with their mean size.
func (z *logSizes) within(size uint64) uint64 {
	z.mu.Lock()
	defer z.mu.Unlock()
	if len(z.marks) == 0 || z.last == z.marks[0].index {
		return size / logEntryOverhead
	}
	oldest := z.marks[0]
	known, entries := z.total-oldest.total, z.last-oldest.index
	if known <= size {
		mean := max(1, known/entries)
		return entries + (size-known)/mean
	}
	want := z.total - size
	i := sort.Search(len(z.marks), func(i int) bool { return z.marks[i].total > want })
	low, high := z.marks[i-1], sizeMark{z.last, z.total}
	if i < len(z.marks) {
		high = z.marks[i]
	}
	return z.last - (low.index + (high.index-low.index)*(want-low.total)/(high.total-low.total))
}
