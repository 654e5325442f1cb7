package server

import "container/heap"

// parking is a set of reads that wait for a number to be reached: a zxid, or
// the number of a write. Finding out that none is due costs one comparison,
// which is done for each log entry. The zero value is ready; the user locks.
type parking struct{ heap parkedHeap }

// parkedRead is a read and the number it waits for.
type parkedRead struct {
	until uint64
	read  *reading
}

type parkedHeap []parkedRead

func (h parkedHeap) Len() int           { return len(h) }
func (h parkedHeap) Less(i, j int) bool { return h[i].until < h[j].until }
func (h parkedHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *parkedHeap) Push(x any) { *h = append(*h, x.(parkedRead)) }

// Pop implements heap.Interface.
func (h *parkedHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = parkedRead{}
	*h = old[:len(old)-1]
	return last
}

func (p *parking) add(until uint64, r *reading) { heap.Push(&p.heap, parkedRead{until, r}) }

// due takes out the reads that wait for no more than reached.
func (p *parking) due(reached uint64) (out []*reading) {
	for len(p.heap) > 0 && p.heap[0].until <= reached {
		out = append(out, heap.Pop(&p.heap).(parkedRead).read)
	}
	return out
}

// remove takes out the reads for which gone is true.
func (p *parking) remove(gone func(*reading) bool) (out []*reading) {
	kept := p.heap[:0]
	for _, w := range p.heap {
		if gone(w.read) {
			out = append(out, w.read)
		} else {
			kept = append(kept, w)
		}
	}
	if len(out) > 0 {
		clear(p.heap[len(kept):])
		p.heap = kept
		heap.Init(&p.heap)
	}
	return out
}
