package znode

import (
	"slices"
	"strings"
)

// Queue keeps names that end in a sequence number in the order of
// [Tree.Predecessor], for a parent with so many children that looking at each
// would take long. It knows nothing of a tree: its user tells it who comes and
// who goes. The zero value is empty. It takes one caller that changes it, or any
// number that only read.
//
// It is cut into chunks, so that neither coming nor going costs more than a chunk
// and a binary search.
//
// Invariant: chunks are never empty.
type Queue struct {
	chunks [][]queued
	n      int
}

type queued struct {
	number uint64
	name   string
}

// queueChunk bounds a chunk (12 KiB). A full last chunk stays full, since numbers
// ascend.
const queueChunk = 512

// Len is how many names are in the queue.
func (q *Queue) Len() int { return q.n }

// Fill makes the queue hold those of names that have a number, which may come in
// any order, each once.
func (q *Queue) Fill(names []string) {
	all := make([]queued, 0, len(names))
	for _, name := range names {
		if number, ok := SequenceOf(name); ok {
			all = append(all, queued{number, name})
		}
	}
	slices.SortFunc(all, order)
	q.n = len(all)
	q.chunks = make([][]queued, 0, (len(all)+queueChunk-1)/queueChunk)
	for c := range slices.Chunk(all, queueChunk) {
		q.chunks = append(q.chunks, slices.Clone(c))
	}
}

// Names returns the names in the queue that contain a text, in order.
func (q *Queue) Names(containing string) []string {
	var names []string
	for _, c := range q.chunks {
		for _, e := range c {
			if strings.Contains(e.name, containing) {
				names = append(names, e.name)
			}
		}
	}
	return names
}

func order(a, b queued) int {
	switch {
	case precedes(a.number, a.name, b.number, b.name):
		return -1
	case a == b:
		return 0
	default:
		return 1
	}
}

// search returns the first place that is not before e, or the end.
func (q *Queue) search(e queued) (chunk, at int) {
	chunk, _ = slices.BinarySearchFunc(q.chunks, e, func(c []queued, e queued) int { return order(c[len(c)-1], e) })
	if chunk == len(q.chunks) {
		return chunk, 0
	}
	at, _ = slices.BinarySearchFunc(q.chunks[chunk], e, order)
	return chunk, at
}

// find returns the place of a name that is in the queue.
func (q *Queue) find(name string) (chunk, at int, ok bool) {
	number, ok := SequenceOf(name)
	if !ok {
		return 0, 0, false
	}
	chunk, at = q.search(queued{number, name})
	return chunk, at, chunk < len(q.chunks) && q.chunks[chunk][at].name == name
}

// Add puts a name into the queue. One that has no number, or is there already,
// changes nothing.
func (q *Queue) Add(name string) {
	number, ok := SequenceOf(name)
	if !ok {
		return
	}
	e := queued{number, name}
	chunk, at := q.search(e)
	if chunk == len(q.chunks) { // the usual case: it is the last
		if chunk > 0 && len(q.chunks[chunk-1]) < queueChunk {
			q.chunks[chunk-1] = append(q.chunks[chunk-1], e)
		} else {
			q.chunks = append(q.chunks, []queued{e})
		}
		q.n++
		return
	}
	c := q.chunks[chunk]
	if c[at].name == name {
		return
	}
	q.n++
	if len(c) == queueChunk {
		upper := append(make([]queued, 0, queueChunk), c[queueChunk/2:]...)
		clear(c[queueChunk/2:])
		q.chunks[chunk] = c[:queueChunk/2]
		q.chunks = slices.Insert(q.chunks, chunk+1, upper)
		if at > queueChunk/2 {
			chunk, at = chunk+1, at-queueChunk/2
		}
	}
	q.chunks[chunk] = slices.Insert(q.chunks[chunk], at, e)
}

// Remove takes a name out of the queue, if it is there.
func (q *Queue) Remove(name string) {
	chunk, at, ok := q.find(name)
	if !ok {
		return
	}
	q.n--
	c := slices.Delete(q.chunks[chunk], at, at+1)
	q.chunks[chunk] = c
	if len(c) == 0 {
		q.chunks = slices.Delete(q.chunks, chunk, chunk+1)
		return
	}
	q.join(chunk)
	q.join(chunk - 1)
}

// join makes one chunk of two neighbours that have become small.
func (q *Queue) join(chunk int) {
	next := chunk + 1
	if chunk < 0 || next >= len(q.chunks) || len(q.chunks[chunk])+len(q.chunks[next]) > queueChunk/2 {
		return
	}
	q.chunks[chunk] = append(q.chunks[chunk], q.chunks[next]...)
	q.chunks = slices.Delete(q.chunks, next, next+1)
}

// Last returns who stands last in the queue before the place of a name, which
// need not be in the queue itself; "" if nobody does.
func (q *Queue) Last(name string) string {
	number, ok := SequenceOf(name)
	if !ok {
		return ""
	}
	return q.previous(q.search(queued{number, name}))
}

// previous is who stands right before a place, which may be the end.
func (q *Queue) previous(chunk, at int) string {
	switch {
	case at > 0:
		return q.chunks[chunk][at-1].name
	case chunk > 0:
		return q.chunks[chunk-1][len(q.chunks[chunk-1])-1].name
	}
	return ""
}

// Before returns who stands right before a name, "" if nobody does, and how many
// are before it; false if the name is not in the queue.
func (q *Queue) Before(name string) (before string, ahead int, ok bool) {
	chunk, at, ok := q.find(name)
	if !ok {
		return "", 0, false
	}
	for _, c := range q.chunks[:chunk] {
		ahead += len(c)
	}
	return q.previous(chunk, at), ahead + at, true
}
