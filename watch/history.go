package watch

import (
	"slices"
	"sort"

	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// History keeps the latest changes, so that a watch can begin in the past. It
// covers every transaction with a zxid in (Floor, Last]: all of its changes, or
// the transaction is at or below the floor. See [NewHistory].
//
// Invariants: changes ascend by (zxid, index); the first kept is the first of
// its transaction, the last kept the last of its own; bytes = Σ path and data
// bytes kept; no change before dataFrom has data but empty data.
type History struct {
	maxChanges int
	maxBytes   int64

	blocks []*block // of the changes first … next-1
	spare  *block   // one that has become free, for the next
	first  uint64   // number of the oldest change kept; all are counted from 0
	next   uint64   // number of the next one
	bytes  int64
	// dataFrom is the number of the oldest change that may have data.
	dataFrom uint64
	floor    zxid.ID

	cat    *catalog // nil while nobody needs one
	looked uint64   // changes looked at by watches that resumed, without catalog
}

// blockSize is how many changes a block holds, so that the history grows and
// shrinks without copying.
const blockSize = 256

type block [blockSize]past

// past is one change as it is kept.
type past struct {
	change  znode.Change
	index   uint32 // within its transaction
	dropped bool   // there was data
}

// NewHistory returns an empty history that keeps at most maxChanges changes,
// and at most maxBytes bytes of their paths and data. Past the bytes, data goes
// first, from the oldest change on; who did what is kept longer. Then, and past
// the count, the oldest transactions go as a whole. Beside the bytes each
// change takes about 190 bytes, and as much again while there is a catalog.
func NewHistory(maxChanges int, maxBytes int64) *History {
	return &History{maxChanges: maxChanges, maxBytes: maxBytes}
}

// Floor is the zxid of the last change dropped: nothing at or below it is known.
func (h *History) Floor() zxid.ID { return h.floor }

// Last is the zxid of the newest change, or Floor if there is none.
func (h *History) Last() zxid.ID {
	if h.first == h.next {
		return h.floor
	}
	return h.at(h.next - 1).change.Zxid
}

// Len is the number of changes kept.
func (h *History) Len() int { return int(h.next - h.first) }

// Bytes is the size of the paths and data kept.
func (h *History) Bytes() int64 { return h.bytes }

// Reset empties the history and sets its floor: the state was replaced by one
// whose last transaction is floor, and how it came to that is not known.
func (h *History) Reset(floor zxid.ID) {
	*h = History{maxChanges: h.maxChanges, maxBytes: h.maxBytes, floor: floor}
}

func (h *History) at(n uint64) *past {
	return &h.blocks[n/blockSize-h.first/blockSize][n%blockSize]
}

// Append adds the changes of one transaction; the slice may be reused by the
// caller, what the changes point to must not change. Transactions come in
// order, each once; anything else would make the history lie, so it panics.
func (h *History) Append(changes []znode.Change) {
	if len(changes) == 0 {
		return
	}
	z := changes[0].Zxid
	if z <= h.Last() || z != changes[len(changes)-1].Zxid {
		panic("watch: changes appended that are not the next transaction")
	}
	if len(changes) > h.maxChanges {
		h.Reset(z)
		return
	}
	for h.Len()+len(changes) > h.maxChanges {
		h.dropTransaction()
	}
	for i := range changes {
		h.push(&changes[i], uint32(i))
	}
	h.shrink()
}

func (h *History) push(c *znode.Change, index uint32) {
	if h.next%blockSize == 0 || len(h.blocks) == 0 {
		b := h.spare
		h.spare = nil
		if b == nil {
			b = new(block)
		}
		h.blocks = append(h.blocks, b)
	}
	h.next++
	*h.at(h.next - 1) = past{change: *c, index: index}
	h.bytes += int64(len(c.Path) + len(c.Data))
}

// shrink brings the bytes back under their bound.
func (h *History) shrink() {
	for ; h.bytes > h.maxBytes && h.dataFrom < h.next; h.dataFrom++ {
		p := h.at(h.dataFrom)
		if n := len(p.change.Data); n > 0 {
			h.bytes -= int64(n)
			p.change.Data, p.dropped = nil, true
		}
	}
	for h.bytes > h.maxBytes {
		h.dropTransaction()
	}
}

// dropTransaction forgets the oldest transaction.
func (h *History) dropTransaction() {
	h.floor = h.at(h.first).change.Zxid
	for h.first < h.next && h.at(h.first).change.Zxid == h.floor {
		p := h.at(h.first)
		h.bytes -= int64(len(p.change.Path) + len(p.change.Data))
		*p = past{}
		h.first++
		if h.first%blockSize == 0 {
			h.spare = h.blocks[0]
			h.blocks[0] = nil
			h.blocks = h.blocks[1:]
		}
	}
	h.dataFrom = max(h.dataFrom, h.first)
	if h.first == h.next {
		h.blocks = nil
	}
	if h.cat != nil && h.cat.next <= h.first {
		h.cat = nil // nobody has resumed for a whole history
	}
}

// Since hands to emit what a lasting watch of kind k on path would have got from
// the transactions after z, event for event as [Table.Fire] gives them live,
// without subscriber and id. It reports false, and emits nothing, if a
// transaction after z is no longer known: the client must read the state anew.
// Whether this server has come as far as z is for the caller to see to.
func (h *History) Since(z zxid.ID, k Kind, path string, emit func(Event)) bool {
	if z < h.floor {
		return false
	}
	r := replay{emit: emit}
	n := h.first + uint64(sort.Search(h.Len(), func(i int) bool {
		return h.at(h.first+uint64(i)).change.Zxid > z
	}))
	var c *catalog
	if k != Recursive {
		c = h.catalog(h.next - n)
	}
	if c == nil {
		h.replayAll(&r, n, k, path)
	} else {
		for _, n := range slices.Backward(c.since(n, path)) {
			r.take(h.at(n), k, path)
		}
	}
	r.flush(true)
	return true
}

// replayAll looks at every change from number n on.
func (h *History) replayAll(r *replay, n uint64, k Kind, path string) {
	for ; n < h.next; n++ {
		r.take(h.at(n), k, path)
	}
}

// replay holds one event back until it is known whether another of its
// transaction follows.
type replay struct {
	emit func(Event)
	held Event
	have bool
}

// take adds the event that a change gives to the watch, if it gives one.
func (r *replay) take(p *past, k Kind, path string) {
	if typ := match(k, path, &p.change); typ != 0 {
		r.add(p, typ, path)
	}
}

func (r *replay) add(p *past, typ EventType, path string) {
	if r.have {
		r.flush(r.held.Change.Zxid != p.change.Zxid)
	}
	r.held = Event{Type: typ, Path: p.change.Path, Index: p.index, DataDropped: p.dropped, Change: &p.change}
	if typ == ChildrenChanged {
		r.held.Path = path
	}
	r.have = true
}

func (r *replay) flush(last bool) {
	if !r.have {
		return
	}
	r.held.Last = last
	r.have = false
	r.emit(r.held)
}
