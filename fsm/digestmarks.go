package fsm

import "sync"

// MarkEvery is the distance of the log indexes at which every server notes the
// digest of its state, so that they can be compared. A mark costs the digests of
// the sessions that were touched since the last one, at most one for each
// command, which is less than 1 % of what applying them costs
// (BenchmarkApplyWithMarks).
const MarkEvery = 64

// keptMarks is how many marks a server keeps: those of the last 65,536 entries.
const keptMarks = 1024

// DigestVersion says what the digest is made of. Servers of different versions
// do not compare theirs.
const DigestVersion = digestVersion

// Mark is the digest of the state behind the log entry Index, a multiple of
// MarkEvery.
type Mark struct{ Index, Digest uint64 }

// marks holds the newest marks in rising order. It has a lock of its own: who
// reads them must not wait for an entry being applied.
type marks struct {
	mu   sync.Mutex
	ring []Mark
}

// last is the index of the newest mark, 0 if there is none.
func (k *marks) last() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ring) == 0 {
		return 0
	}
	return k.ring[len(k.ring)-1].Index
}

func (k *marks) add(m Mark) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ring) == 2*keptMarks {
		k.ring = append(k.ring[:0], k.ring[keptMarks:]...)
	}
	k.ring = append(k.ring, m)
}

// clear forgets all: they are of a state that a snapshot has replaced.
func (k *marks) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ring = k.ring[:0]
}

// Marks returns the newest marks behind the index after, oldest first and at
// most limit of them. It may be called from any goroutine, and waits for none.
func (m *Machine) Marks(after uint64, limit int) []Mark {
	m.marks.mu.Lock()
	defer m.marks.mu.Unlock()
	ring := m.marks.ring
	from := max(0, len(ring)-min(limit, keptMarks))
	for from < len(ring) && ring[from].Index <= after {
		from++
	}
	return append([]Mark(nil), ring[from:]...)
}

// MarkAt returns the mark at index, if it is kept.
func (m *Machine) MarkAt(index uint64) (Mark, bool) {
	m.marks.mu.Lock()
	defer m.marks.mu.Unlock()
	for _, k := range m.marks.ring {
		if k.Index == index {
			return k, true
		}
	}
	return Mark{}, false
}

// markLocked notes the digest at the last multiple of MarkEvery up to index, if
// the state is still that of there: all entries up to index have been applied,
// and what the state machine was not shown (Raft's own entries) changes nothing.
// So each server has a mark at the same places, whichever entries it saw there.
func (m *Machine) markLocked(index uint64) {
	at := index - index%MarkEvery
	if at == 0 || at < m.state.Index || at <= m.marks.last() {
		return
	}
	m.fresh = 0
	m.marks.add(Mark{at, digestOf(&m.state)})
}

// FeatureLevel is the level of behaviour that the cluster has agreed on. It may
// be called from any goroutine.
func (m *Machine) FeatureLevel() uint32 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.FeatureLevel
}
