package cluster

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/internal/seed"
)

func entriesOf(size int, indexes ...uint64) []*raft.Log {
	var logs []*raft.Log
	for _, i := range indexes {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: make([]byte, size)})
	}
	return logs
}

func upTo(first, last uint64) (all []uint64) {
	for i := first; i <= last; i++ {
		all = append(all, i)
	}
	return all
}

func (c *logCache) has(i uint64) bool {
	var l raft.Log
	return c.get(i, &l) && l.Index == i
}

func TestLogCacheIsBoundedByBytes(t *testing.T) {
	c := newLogCache(10 << 20)
	c.add(entriesOf(1<<20, upTo(1, 100)...))
	if c.bytes > 10<<20 {
		t.Errorf("it holds %d bytes", c.bytes)
	}
	if !c.has(100) || !c.has(92) || c.has(90) {
		t.Errorf("92 and 100 should be there, 90 not: %v %v %v", c.has(92), c.has(100), c.has(90))
	}
	if cap(c.entries) > 1000 {
		t.Errorf("the slice grew to %d", cap(c.entries))
	}
}

func TestLogCacheKeepsTheEntryBeforeTheNewestHoweverLarge(t *testing.T) {
	c := newLogCache(1 << 20)
	for i := uint64(1); i <= 5; i++ {
		c.add(entriesOf(4<<20, i))
	}
	if !c.has(5) || !c.has(4) || c.has(3) {
		t.Error("want the newest two entries and no more")
	}
}

func TestLogCacheForgetsWhatIsDeletedAndStartsAnewAfterAGap(t *testing.T) {
	c := newLogCache(1 << 20)
	c.add(entriesOf(10, upTo(1, 10)...))
	c.remove(8, 10)
	if c.has(8) || !c.has(7) {
		t.Error("suffix 8..10 should be gone, 7 not")
	}
	c.add([]*raft.Log{{Index: 8, Term: 2}})
	var l raft.Log
	if !c.get(8, &l) || l.Term != 2 {
		t.Errorf("entry 8 is %+v", l)
	}
	c.remove(1, 3)
	if c.has(3) || !c.has(4) {
		t.Error("prefix 1..3 should be gone, 4 not")
	}
	c.add(entriesOf(10, 50))
	if c.has(8) || !c.has(50) || c.has(49) || c.has(51) {
		t.Error("after a gap only the new entry should be there")
	}
	c.remove(0, 100)
	if c.has(50) || c.bytes != 0 {
		t.Errorf("something stayed: %d bytes", c.bytes)
	}
}

// The cache against a map, with random appends and deletions at both ends.
func TestLogCacheAgreesWithAMap(t *testing.T) {
	r := seed.Rand(t)
	c, model := newLogCache(5000), map[uint64]uint64{}
	first, last, term := uint64(1), uint64(0), uint64(1)
	for range 20000 {
		switch r.IntN(10) {
		case 0:
			from := first + r.Uint64N(last-first+2)
			c.remove(from, last)
			for i := from; i <= last; i++ {
				delete(model, i)
			}
			last, term = from-1, term+1
		case 1:
			to := first + r.Uint64N(last-first+2)
			to = min(to, last)
			c.remove(first, to)
			for i := first; i <= to; i++ {
				delete(model, i)
			}
			first = max(first, to+1)
		default:
			last++
			c.add([]*raft.Log{{Index: last, Term: term, Data: make([]byte, r.IntN(300))}})
			model[last] = term
		}
		i := first + r.Uint64N(last-first+2)
		var l raft.Log
		if c.get(i, &l) && (model[i] != l.Term || l.Index != i) {
			t.Fatalf("entry %d has term %d, want %d", i, l.Term, model[i])
		}
		if last >= first && !c.has(last) && model[last] != 0 && c.bytes > 0 {
			t.Fatalf("the newest entry %d is not there", last)
		}
	}
}
