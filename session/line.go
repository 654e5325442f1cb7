package session

// What servers let one line have unanswered; past it they stop reading from
// the client. The line itself does not enforce it: what the log holds is done.
const (
	// MaxUnacked is the number of writes of one line whose answers the client
	// has not acknowledged.
	MaxUnacked = 1024
	// MaxUnackedBytes is the size in bytes of the answers to those.
	MaxUnackedBytes = 1 << 20
)

// Value is a remembered answer. It is immutable. Two replicas that applied the
// same log hold equal values; a value that also implements [Digester] makes the
// table's digest notice when they do not.
type Value interface {
	// Size is what the value counts for against [MaxUnackedBytes], in bytes.
	// It is the same on every call.
	Size() int
}

// Digester is a [Value] with a digest of its content. A value without one
// enters the digest of the table by its size only.
type Digester interface {
	Digest() uint64
}

// Verdict says what to do with a number on a line.
type Verdict uint8

const (
	// Do: it is the next number; do it and Record the answer.
	Do Verdict = iota
	// Repeat: it was done; here is its answer.
	Repeat
	// Gap: a number before it is missing; do nothing, the sender offers again.
	Gap
	// Acknowledged: it was done and the client has said that it has the answer.
	Acknowledged
	// Forgotten: it was done and its answer was never kept, as on the lines of
	// ZooKeeper sessions, whose clients never ask twice.
	Forgotten
)

// String names the verdict, for tests and logs.
func (v Verdict) String() string {
	switch v {
	case Do:
		return "do"
	case Repeat:
		return "repeat"
	case Gap:
		return "gap"
	case Acknowledged:
		return "acknowledged"
	case Forgotten:
		return "forgotten"
	}
	return "verdict?"
}

// Line is one number line: which numbers were used, and the answers that are
// still needed. The zero value expects number 1. A Line must not be copied
// while both copies are used; clone it.
//
// Invariants:
//
//	acked <= done
//	kept[head:] are the numbers done-len(kept[head:])+1 … done, all > acked
//	bytes = Σ size, digest = Σ entryDigest over kept[head:]
type Line struct {
	done  uint64 // the largest number used; the next is done+1
	acked uint64 // the client has the answers up to here

	kept   []remembered
	head   int // kept[:head] was acknowledged and is cleared
	bytes  int
	digest uint64
}

// remembered is the answer to one number; value is nil if it was not kept but
// lies between two that were.
type remembered struct {
	value  Value
	digest uint64
}

// Next is the number the line expects.
func (l *Line) Next() uint64 { return l.done + 1 }

// Acked is the largest number whose answer the client is known to have.
func (l *Line) Acked() uint64 { return l.acked }

// Unacked returns how many answers the line keeps and their size in bytes.
func (l *Line) Unacked() (n, bytes int) { return len(l.kept) - l.head, l.bytes }

// Check says what to do with number seq, and the answer if it is a [Repeat].
// Number 0 is never given out and counts as acknowledged.
func (l *Line) Check(seq uint64) (Verdict, Value) {
	switch {
	case seq == l.done+1:
		return Do, nil
	case seq > l.done:
		return Gap, nil
	case seq <= l.acked:
		return Acknowledged, nil
	}
	if back := l.done - seq; back < uint64(len(l.kept)-l.head) {
		if v := l.kept[uint64(len(l.kept))-1-back].value; v != nil {
			return Repeat, v
		}
	}
	return Forgotten, nil
}

// Record uses number seq, which must be [Line.Next], and remembers its answer
// if keep is true and v is not nil. Any other number would break the promise
// the line exists for, so it panics: the caller has not asked Check.
func (l *Line) Record(seq uint64, v Value, keep bool) {
	if seq != l.done+1 {
		panic("session: Record of a number that is not the next")
	}
	l.done = seq
	if !keep || v == nil {
		if l.head == len(l.kept) {
			return // nothing before it is kept either
		}
		v = nil
	}
	l.push(v)
}

func (l *Line) push(v Value) {
	e := remembered{value: v, digest: entryDigest(l.done, v)}
	if l.head > 0 && len(l.kept) == cap(l.kept) && l.head >= len(l.kept)/2 {
		l.compact()
	}
	l.kept = append(l.kept, e)
	l.digest += e.digest
	if v != nil {
		l.bytes += v.Size()
	}
}

// Ack says that the client has the answers up to and with upto; they are
// dropped. A smaller number than before changes nothing, a number that was not
// used yet counts as the last one that was.
func (l *Line) Ack(upto uint64) {
	upto = min(upto, l.done)
	if upto <= l.acked {
		return
	}
	l.acked = upto
	keep := min(l.done-upto, uint64(len(l.kept)-l.head))
	for end := len(l.kept) - int(keep); l.head < end; l.head++ {
		e := &l.kept[l.head]
		l.digest -= e.digest
		if e.value != nil {
			l.bytes -= e.value.Size()
		}
		*e = remembered{}
	}
	if l.head == len(l.kept) {
		l.reset()
	}
}

// reset starts the empty buffer anew. One that a burst has made large is given
// back, so that an idle session costs nothing.
func (l *Line) reset() {
	l.head = 0
	l.kept = l.kept[:0]
	if cap(l.kept) > 64 {
		l.kept = nil
	}
}

// compact moves what is kept to the front of the buffer, so that a line whose
// acknowledgements follow its writes stops growing. It is called when at least
// half of the buffer is free: the cost of a move is paid by as many writes.
func (l *Line) compact() {
	n := copy(l.kept, l.kept[l.head:])
	clear(l.kept[n:])
	l.kept = l.kept[:n]
	l.head = 0
}

// clone returns an independent copy; the values are shared, they are immutable.
func (l *Line) clone() Line {
	c := *l
	c.head = 0
	c.kept = append([]remembered(nil), l.kept[l.head:]...)
	return c
}
