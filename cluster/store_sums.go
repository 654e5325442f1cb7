package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
)

// sumBytes is the length of the checksum of an entry.
const sumBytes = 8

// errBadSum is returned for an entry whose bytes are not those that were stored.
var errBadSum = errors.New("checksum of the entry is wrong")

// sumLogs returns copies of the entries that carry a checksum of themselves in
// Extensions, which nobody else uses. Neither store looks at what it reads:
// raft-wal checks sums only of the last append, when it opens the log, and bbolt
// only of its two meta pages, so a flipped bit would be applied, or sent to a
// follower as an agreed entry. The entries of the caller are not changed: they
// are on their way to followers.
func sumLogs(logs []*raft.Log) []*raft.Log {
	copies := make([]raft.Log, len(logs))
	out := make([]*raft.Log, len(logs))
	for i, l := range logs {
		copies[i] = *l
		copies[i].Extensions = binary.LittleEndian.AppendUint64(make([]byte, 0, sumBytes), sumOf(l))
		out[i] = &copies[i]
	}
	return out
}

// sumOf covers all that is agreed on of an entry.
func sumOf(l *raft.Log) uint64 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[0:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	d := xxhash.New()
	_, _ = d.Write(head[:]) // never fails
	_, _ = d.Write(l.Data)
	return d.Sum64()
}

// checkSum compares an entry that was read for index with its checksum, and takes
// that away.
func checkSum(index uint64, l *raft.Log) error {
	if l.Index != index {
		return fmt.Errorf("%w: an entry of index %d is in the place of %d", errBadSum, l.Index, index)
	}
	if len(l.Extensions) != sumBytes {
		return fmt.Errorf("%w: it has %d bytes, want %d", errBadSum, len(l.Extensions), sumBytes)
	}
	if got, want := sumOf(l), binary.LittleEndian.Uint64(l.Extensions); got != want {
		return fmt.Errorf("%w: %016x, want %016x", errBadSum, got, want)
	}
	l.Extensions = nil
	return nil
}
