package cluster

import (
	"sync"

	"github.com/hashicorp/raft"
)

const (
	// logCacheBytes bounds what the cache keeps. hashicorp/raft's own LogCache
	// counts entries, and 512 entries of 1 MiB are more than a server may use.
	logCacheBytes = 16 << 20
	// logCacheMinEntries stay whatever their size: a replicator that has just
	// sent the newest entry asks for it again as the "previous entry" of the
	// next message, and the state machine asks for the newest one.
	logCacheMinEntries = 2
	// logEntryOverhead is what an entry is counted for beside its bytes.
	logEntryOverhead = 64
)

// logCache holds the newest entries of the log, without gaps. It is safe for
// concurrent use: replicators and the Raft loop read while the loop appends.
//
// The bytes of an entry are shared with the reader: nobody may change them.
//
// Invariant: entries[head:] have consecutive indexes and bytes is their size.
type logCache struct {
	limit int

	mu      sync.RWMutex
	entries []raft.Log
	head    int // entries before head are dropped and zero
	bytes   int
}

func newLogCache(limit int) *logCache { return &logCache{limit: limit} }

func logSize(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + logEntryOverhead }

// get copies the entry of index into out and says whether it was there.
func (c *logCache) get(index uint64, out *raft.Log) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	live := c.entries[c.head:]
	if len(live) == 0 || index < live[0].Index || index-live[0].Index >= uint64(len(live)) {
		return false
	}
	*out = live[index-live[0].Index]
	return true
}

// add appends entries that follow one another. If they do not follow what is
// cached, the cache begins anew with them.
func (c *logCache) add(logs []*raft.Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if n := len(c.entries); n > c.head && c.entries[n-1].Index+1 != l.Index {
			c.resetLocked()
		}
		c.entries = append(c.entries, *l)
		c.bytes += logSize(l)
	}
	for c.bytes > c.limit && len(c.entries)-c.head > logCacheMinEntries {
		c.dropHeadLocked()
	}
	c.compactLocked()
}

// remove forgets the entries from first to last, both included. It keeps a
// suffix if the range is a prefix, and a prefix if it is a suffix.
func (c *logCache) remove(first, last uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.entries) > c.head && c.entries[len(c.entries)-1].Index >= first &&
		c.entries[len(c.entries)-1].Index <= last {
		n := len(c.entries) - 1
		c.bytes -= logSize(&c.entries[n])
		c.entries[n] = raft.Log{}
		c.entries = c.entries[:n]
	}
	for len(c.entries) > c.head && c.entries[c.head].Index >= first && c.entries[c.head].Index <= last {
		c.dropHeadLocked()
	}
	c.compactLocked()
}

func (c *logCache) dropHeadLocked() {
	c.bytes -= logSize(&c.entries[c.head])
	c.entries[c.head] = raft.Log{} // let the bytes go
	c.head++
}

// compactLocked moves the entries to the front once half of the slice is
// dropped, so that the slice stays as long as what it holds.
func (c *logCache) compactLocked() {
	if c.head == 0 || c.head < len(c.entries)/2 {
		return
	}
	n := copy(c.entries, c.entries[c.head:])
	clear(c.entries[n:])
	c.entries, c.head = c.entries[:n], 0
}

func (c *logCache) resetLocked() {
	clear(c.entries)
	c.entries, c.head, c.bytes = c.entries[:0], 0, 0
}
