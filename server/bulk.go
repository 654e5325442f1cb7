package server

import (
	"fmt"
	"sync"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
)

// bulkChildren is the number of children from which on a listing is bulk work.
const bulkChildren = 1000

// errManyLong is returned for a long read that others were before for all the time
// that a read may wait: whoever asked may have left long ago.
var errManyLong = fmt.Errorf("too many long reads wait: %w", &cluster.OverloadedError{RetryAfter: time.Second})

// bulk keeps long reads apart, so that who lists a huge directory again and again
// holds up nobody else's small reads: one at a time is executed, in turn for each
// connection. Calls without a session are one connection here. The zero value but
// for wake is ready; it is safe for concurrent use.
//
// Bound: the requests in flight of the connections, and of calls without one.
type bulk struct {
	wake chan struct{} // has room for one

	mu    sync.Mutex // guards below
	lines map[*conn][]*reading
	turns ring[*conn] // those in lines, each once
}

// add takes a long read.
func (b *bulk) add(q *reading) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines == nil {
		b.lines = make(map[*conn][]*reading)
	}
	if len(b.lines[q.c]) == 0 {
		b.turns.push(q.c)
	}
	b.lines[q.c] = append(b.lines[q.c], q)
	poke(b.wake)
}

// next is the read whose turn it is, nil if there is none.
func (b *bulk) next() *reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.turns.len() == 0 {
		return nil
	}
	c := b.turns.pop()
	q := b.lines[c][0]
	if rest := b.lines[c][1:]; len(rest) > 0 {
		b.lines[c] = rest
		b.turns.push(c)
	} else {
		delete(b.lines, c)
	}
	if b.turns.len() > 0 {
		poke(b.wake)
	}
	return q
}

// isBulk says whether a read may take long. The machine's read lock is held.
func (r *reader) isBulk(q *reading, v *fsm.View) bool {
	switch q.read.GetKind() {
	case coordpb.Read_KIND_WALK, coordpb.Read_KIND_COUNT:
		return true
	case coordpb.Read_KIND_CHILDREN:
		if r.s.page(q.read.GetLimit()) <= bulkChildren {
			return false
		}
		st, ok := v.Tree.Exists(q.read.GetPath())
		return ok && st.NumChildren > bulkChildren
	default:
		return false
	}
}
