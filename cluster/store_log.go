package cluster

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// errLogGap is returned when entries do not follow the log. Raft never asks for
// it; a store that took it would hide a lost entry until it is needed.
var errLogGap = errors.New("log entries do not follow one another")

// logBackend is what a store on disk has to offer to be the Raft log: the log
// itself, and a few small values kept with it (our identity).
type logBackend interface {
	raft.LogStore
	Get(key []byte) ([]byte, error)
	Set(key, value []byte) error
	Close() error
}

// logStore is the Raft log: a store on disk under a cache, a watch for disks
// that fail or hang, and a count of its bytes. Reads may be concurrent with
// each other and with one writer, as hashicorp/raft uses it.
//
// Invariant: first and last are those of the backend; last-first+1 entries are
// there without gaps, or none and both are 0. The log goes on where the newest
// snapshot ends, or before: first <= snap.index+1.
type logStore struct {
	backend logBackend
	cache   *logCache
	watch   *diskWatch
	sizes   *logSizes
	// deleteBatch is how many entries one DeleteRange at the front of the
	// backend may take; 0 is no limit. bbolt holds its one writer for the whole
	// of it, and the leader's next append must not wait for seconds.
	deleteBatch uint64
	onDamage    func(error) // hears of an entry that cannot be read and is not needed, once
	saidDamaged sync.Once
	onSync      func(took time.Duration, entries, bytes int) // nil: nobody asks
	prepare     func(bytes int) error                        // before each append; nil: no call

	path string    // for messages
	tail *tailNote // how far the log goes, outside of it; nil in some tests

	writing diskTurn // one StoreLogs or DeleteRange step at a time

	mu          sync.RWMutex
	first, last uint64
	snap        logPosition // end of the newest snapshot; zero: none
}

// logPosition names an entry of the log.
type logPosition struct{ index, term uint64 }

// IsMonotonic implements raft.MonotonicLogStore. It holds for both backends.
// Without it raft leaves a gap behind an installed snapshot and, after a
// conflict, installs the same snapshot for ever (hashicorp/raft 697).
func (s *logStore) IsMonotonic() bool { return true }

func newLogStore(b logBackend, w *diskWatch) (*logStore, error) {
	first, err := b.FirstIndex()
	if err != nil {
		return nil, fmt.Errorf("log: first index: %w", err)
	}
	last, err := b.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("log: last index: %w", err)
	}
	return &logStore{
		backend: b, cache: newLogCache(logCacheBytes), watch: w, sizes: &logSizes{},
		onDamage: func(error) {}, first: first, last: last, writing: newDiskTurn(),
	}, nil
}

// FirstIndex implements raft.LogStore; 0 means empty.
func (s *logStore) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.first, nil
}

// LastIndex implements raft.LogStore; 0 means empty.
func (s *logStore) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.last, nil
}

// GetLog implements raft.LogStore. The bytes of the entry must not be changed.
// raft compares the error with ==, so raft.ErrLogNotFound comes unwrapped.
//
// For the last entry of the newest snapshot, if it is not in the log, it gives
// index and term, and nothing else. A follower asks for it as the entry before a
// message. raft finds it by itself only if its log ends there; if its first entry
// behind the snapshot has to be replaced, it would refuse the leader for ever. A
// leader does not read it as an entry to send, as it finds no entry before.
func (s *logStore) GetLog(index uint64, out *raft.Log) error {
	err := s.entry(index, out)
	if err != raft.ErrLogNotFound { //nolint:errorlint // it comes unwrapped, see above
		return err
	}
	snap := s.snapshot()
	if index != snap.index || index <= 1 {
		return err
	}
	*out = raft.Log{Index: snap.index, Term: snap.term, Type: raft.LogNoop}
	return nil
}

// entry reads what is really in the log.
func (s *logStore) entry(index uint64, out *raft.Log) error {
	err := s.read(index, out)
	if err == nil || err == raft.ErrLogNotFound { //nolint:errorlint // it comes unwrapped
		return err
	}
	if index <= s.snapshot().index { // whoever needs it can have a snapshot instead
		s.saidDamaged.Do(func() { s.onDamage(err) })
		return raft.ErrLogNotFound
	}
	s.watch.report(err)
	return err
}

// read is entry without consequences. What the backend cannot give, though it
// has to be there, or gives as something else than was stored, is damaged.
func (s *logStore) read(index uint64, out *raft.Log) error {
	if s.cache.get(index, out) {
		return nil
	}
	if !s.has(index) {
		return raft.ErrLogNotFound
	}
	err := s.backend.GetLog(index, out)
	if err == nil {
		err = checkSum(index, out)
	}
	if err != nil && !s.has(index) { // it was deleted meanwhile
		return raft.ErrLogNotFound
	}
	if err != nil {
		return asDamage(s.path, fmt.Errorf("entry %d: %w", index, err))
	}
	s.sizes.seen(index, logSize(out))
	return nil
}

func (s *logStore) has(index uint64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return index >= s.first && index <= s.last && s.last != 0
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore: when it returns nil the entries are on
// the disk.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.writing.take()
	defer s.writing.giveBack()
	start := time.Now()
	err := s.watch.do("store log entries", func() error {
		if err := s.checkFollows(logs); err != nil {
			return err
		}
		if s.prepare != nil {
			_ = s.prepare(sizeOf(logs)) // if there is no room, the write will say so
		}
		if err := s.backend.StoreLogs(sumLogs(logs)); err != nil {
			return err
		}
		end := logs[len(logs)-1]
		return s.note(logPosition{end.Index, end.Term}, false)
	})
	if err != nil {
		return err
	}
	s.stored(logs, time.Since(start))
	return nil
}

func (s *logStore) checkFollows(logs []*raft.Log) error {
	s.mu.RLock()
	want := s.last + 1
	empty := s.last == 0
	s.mu.RUnlock()
	if empty { // an empty log may begin anywhere: behind the snapshot
		want = logs[0].Index
	}
	for _, l := range logs {
		if l.Index != want || l.Index == 0 {
			return fmt.Errorf("%w: got index %d, want %d", errLogGap, l.Index, want)
		}
		want++
	}
	return nil
}

func (s *logStore) stored(logs []*raft.Log, took time.Duration) {
	for _, l := range logs {
		s.sizes.appended(l.Index, logSize(l))
	}
	s.cache.add(logs)
	s.mu.Lock()
	if s.last == 0 {
		s.first = logs[0].Index
	}
	s.last = logs[len(logs)-1].Index
	s.mu.Unlock()
	if s.onSync != nil {
		s.onSync(took, len(logs), sizeOf(logs))
	}
}

// sizeOf is what entries take in the log, about.
func sizeOf(logs []*raft.Log) (bytes int) {
	for _, l := range logs {
		bytes += logSize(l)
	}
	return bytes
}

// DeleteRange implements raft.LogStore for a prefix or a suffix of the log,
// both ends included; parts outside of the log are ignored.
func (s *logStore) DeleteRange(first, last uint64) error {
	s.mu.RLock()
	first, last = max(first, s.first), min(last, s.last)
	prefix := first == s.first
	s.mu.RUnlock()
	if first > last || last == 0 {
		return nil
	}
	step := last - first + 1
	if prefix && s.deleteBatch > 0 {
		step = s.deleteBatch
	}
	for from := first; from <= last; from += step {
		if err := s.deleteStep(from, min(from+step-1, last)); err != nil {
			return err
		}
	}
	return nil
}

// deleteStep shows the shorter log to readers before the backend has it, so
// that nobody is sent to an entry that is just going.
func (s *logStore) deleteStep(first, last uint64) error {
	s.writing.take()
	defer s.writing.giveBack()
	if err := s.noteShorter(first, last); err != nil {
		return err
	}
	s.mu.Lock()
	switch {
	case first <= s.first && last >= s.last:
		s.first, s.last = 0, 0
	case first <= s.first:
		s.first = last + 1
	default:
		s.last = first - 1
	}
	s.mu.Unlock()
	s.cache.remove(first, last)
	s.sizes.removed(first, last)
	return s.watch.do("delete log entries", func() error { return s.backend.DeleteRange(first, last) })
}

// noteShorter lowers the note of the log's end before the end is deleted: the log
// must never be shorter than noted.
func (s *logStore) noteShorter(first, last uint64) error {
	end, _ := s.LastIndex() // from memory: cannot fail
	if last < end {
		return nil
	}
	var at logPosition
	var l raft.Log
	if keep := min(end, first-1); s.has(keep) && s.read(keep, &l) == nil {
		at = logPosition{l.Index, l.Term}
	}
	return s.watch.do("note the end of the log", func() error { return s.note(at, true) })
}

func (s *logStore) note(p logPosition, durable bool) error {
	if s.tail == nil {
		return nil
	}
	return s.tail.note(p, durable)
}

// setSnapshot says where the newest snapshot ends. An older one is ignored.
func (s *logStore) setSnapshot(p logPosition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.index > s.snap.index {
		s.snap = p
	}
}

// snapshot returns where the newest snapshot ends; zero if there is none.
func (s *logStore) snapshot() logPosition {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.snap
}

// begin returns the first index that the log can replay: a snapshot that ends
// before the one before it leaves a hole. It is 0 if any snapshot will do.
func (s *logStore) begin() uint64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.last == 0 && s.snap.index != 0 {
		return s.snap.index + 1
	}
	return s.first
}

// holds says whether the log itself has the entry index with that term. An entry
// that is there and cannot be read is an error: nobody knows, and what follows
// from "no" would delete the log.
func (s *logStore) holds(index, term uint64) (bool, error) {
	var l raft.Log
	err := s.read(index, &l)
	if err == raft.ErrLogNotFound { //nolint:errorlint // it comes unwrapped
		return false, nil
	}
	return err == nil && l.Term == term, err
}

// bytesAfter returns how many bytes of log follow index, as a whole: what a
// snapshot at index leaves to be replayed.
func (s *logStore) bytesAfter(index uint64) uint64 { return s.sizes.after(index) }

// entriesWithin returns how many of the newest entries make about size bytes,
// at least 1: what raft's TrailingLogs has to be for that many bytes to stay.
func (s *logStore) entriesWithin(size uint64) uint64 {
	s.mu.RLock()
	n := s.last - s.first + 1
	if s.last == 0 {
		n = 0
	}
	s.mu.RUnlock()
	return max(1, min(n, s.sizes.within(size)))
}
