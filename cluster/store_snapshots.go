package cluster

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// retainSnapshots is how many snapshots stay: the newest, and one before it in
// case the newest cannot be read.
const retainSnapshots = 2

// snapshotStore is raft.FileSnapshotStore, with two differences. Old snapshots
// are removed here, after the new one is safe: the library reports an old one
// that cannot be removed as a failure of the new one, and from then on no
// snapshot succeeds and the log is never cut. And the directory of a snapshot is
// synced before raft may cut the log behind it; the library syncs the files and
// the parent only.
//
// It is safe for concurrent use.
type snapshotStore struct {
	*raft.FileSnapshotStore
	path string
	log  hclog.Logger
	// logBegin is the index at which the log begins, 0 if it is empty. A
	// snapshot that does not reach it must not be restored at a start.
	logBegin func() uint64
	// onNew hears where a new snapshot ends, once it is durable and before raft
	// cuts the log.
	onNew func(logPosition)
	// spares says whether there is room for more of a snapshot; nil: nobody asks.
	spares func() error
	// newest is the size of the newest snapshot in bytes; 0: there is none, or
	// nobody has looked since the start.
	newest atomic.Int64

	// broken is the first error of a snapshot that could not be opened; raft says
	// only that there was one.
	broken atomic.Pointer[error]

	reaping sync.Mutex
}

func openSnapshots(dir string, log hclog.Logger) (*snapshotStore, error) {
	path := filepath.Join(dir, snapshotDir)
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("open snapshots: %w", err)
	}
	inner, err := raft.NewFileSnapshotStoreWithLogger(dir, math.MaxInt, log)
	if err != nil {
		return nil, fmt.Errorf("open snapshots %s: %w", path, err)
	}
	return &snapshotStore{
		FileSnapshotStore: inner, path: path, log: log,
		logBegin: func() uint64 { return 0 }, onNew: func(logPosition) {},
	}, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotStore) Create(v raft.SnapshotVersion, index, term uint64, c raft.Configuration,
	configIndex uint64, t raft.Transport,
) (raft.SnapshotSink, error) {
	if err := s.room(); err != nil {
		return nil, err
	}
	sink, err := s.FileSnapshotStore.Create(v, index, term, c, configIndex, t)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s, end: logPosition{index, term}}, nil
}

func (s *snapshotStore) room() error {
	if s.spares == nil {
		return nil
	}
	return s.spares()
}

// Open implements raft.SnapshotStore. It refuses a snapshot that ends before the
// log begins: raft falls back to an older snapshot when it cannot read the
// newest, and would find a hole behind it.
func (s *snapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if err := s.checkMeta(id); err != nil {
		return nil, nil, explained(s.path, err)
	}
	meta, r, err := s.FileSnapshotStore.Open(id)
	if err != nil {
		err = asDamage(filepath.Join(s.path, id), err)
		s.broken.CompareAndSwap(nil, &err)
		return nil, nil, err
	}
	if first := s.logBegin(); first > meta.Index+1 {
		_ = r.Close()
		return nil, nil, fmt.Errorf("snapshot %s ends at index %d, the log begins at %d: %w", filepath.Join(s.path, id), meta.Index, first, errDiskNotWhole)
	}
	return meta, r, nil
}

// reap removes all but the newest snapshots that can be read, those that cannot
// included: nothing else would ever remove them. A failure is logged and tried
// again after the next snapshot.
func (s *snapshotStore) reap() {
	s.reaping.Lock()
	defer s.reaping.Unlock()
	there, err := s.names() // first: one that comes meanwhile is none that cannot be read
	list, listErr := s.List()
	if err := errors.Join(err, listErr); err != nil {
		s.log.Warn("cannot list snapshots", "error", err)
		return
	}
	if len(list) < retainSnapshots {
		return
	}
	for _, id := range there {
		kept := slices.ContainsFunc(list[:retainSnapshots], func(m *raft.SnapshotMeta) bool { return m.ID == id })
		if kept || !isSnapshotID(id) {
			continue
		}
		if err := s.remove(id); err != nil {
			s.log.Warn("cannot remove an old snapshot", "snapshot", id, "error", err)
		}
	}
}

// isSnapshotID says whether the library gives such names: term, index, time. A
// directory of another name is somebody else's (lost+found).
func isSnapshotID(name string) bool {
	parts := strings.Split(name, "-")
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 64); err != nil {
			return false
		}
	}
	return len(parts) == 3
}

// remove hides the snapshot first, so that a crash half-way does not leave one
// that looks whole.
func (s *snapshotStore) remove(id string) error {
	path := filepath.Join(s.path, id)
	hidden := path + tmpSuffix
	if err := os.Rename(path, hidden); err != nil {
		return err
	}
	return os.RemoveAll(hidden)
}

// names lists the snapshots, also those that cannot be read.
func (s *snapshotStore) names() ([]string, error) {
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && filepath.Ext(e.Name()) != tmpSuffix {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// syncEvery is how much of a snapshot is written before it is forced to the
// disk. A hundred megabytes forced at once hold up the appends to the log, which
// share the disk's queue with them.
const syncEvery = 4 << 20

// Beside what the library writes, a snapshot has a file with the checksum of its
// metadata: membership, index and term in it would otherwise be believed whatever
// happened to them.
const (
	metaFile = "meta.json"
	metaSum  = "meta.sum"
)

// List implements raft.SnapshotStore. It leaves out snapshots whose metadata is
// not what was written. One without a checksum was cut short by a crash right
// before it was added, and is whole.
func (s *snapshotStore) List() ([]*raft.SnapshotMeta, error) {
	list, err := s.FileSnapshotStore.List()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(m *raft.SnapshotMeta) bool {
		err := s.checkMeta(m.ID)
		if err != nil {
			s.log.Error("a snapshot is left out", "snapshot", m.ID, "error", err)
		}
		return err != nil
	}), nil
}

func (s *snapshotStore) checkMeta(id string) error {
	dir := filepath.Join(s.path, id)
	want, err := os.ReadFile(filepath.Join(dir, metaSum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return err
	}
	if got := sumText(meta); got != string(want) {
		return fmt.Errorf("%s: %w: its checksum is %s, expected %q", filepath.Join(dir, metaFile), errDamaged, got, clip(string(want)))
	}
	return nil
}

func sumText(b []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(b)) }

func (s *snapshotStore) writeMetaSum(id string) error {
	dir := filepath.Join(s.path, id)
	meta, err := os.ReadFile(filepath.Join(dir, metaFile))
	if err != nil {
		return err
	}
	return writeFileDurably(filepath.Join(dir, metaSum), []byte(sumText(meta)))
}

// snapshotSink is one snapshot being written.
type snapshotSink struct {
	raft.SnapshotSink
	store    *snapshotStore
	end      logPosition
	unsynced int   // bytes
	written  int64 // bytes
}

// Write adds to the snapshot, and forces it to the disk bit by bit.
func (s *snapshotSink) Write(p []byte) (int, error) {
	n, err := s.SnapshotSink.Write(p)
	s.written += int64(n)
	if s.unsynced += n; err == nil && s.unsynced >= syncEvery {
		s.unsynced = 0
		if err = s.store.room(); err != nil {
			return n, err
		}
		err = syncFile(filepath.Join(s.store.path, s.ID()+tmpSuffix, "state.bin"))
	}
	return n, err
}

// syncFile forces what was written to the file, by whomever, to the disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Close makes the snapshot durable and visible. On an error nothing stays.
func (s *snapshotSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		s.removeUnfinished()
		return err
	}
	err := s.store.writeMetaSum(s.ID())
	if err == nil {
		err = syncDir(filepath.Join(s.store.path, s.ID()))
	}
	if err != nil { // the library has it by now, and nobody would ever count or remove it
		if err := s.store.remove(s.ID()); err != nil {
			s.store.log.Warn("cannot remove an unfinished snapshot", "snapshot", s.ID(), "error", err)
		}
		return err
	}
	s.store.newest.Store(s.written)
	s.store.onNew(s.end)
	s.store.reap()
	return nil
}

// Cancel gives the snapshot up. The library keeps the files when it cannot flush
// them, as on a full disk, where they hurt most.
func (s *snapshotSink) Cancel() error {
	err := s.SnapshotSink.Cancel()
	s.removeUnfinished()
	return err
}

func (s *snapshotSink) removeUnfinished() {
	if err := os.RemoveAll(filepath.Join(s.store.path, s.ID()+tmpSuffix)); err != nil {
		s.store.log.Warn("cannot remove an unfinished snapshot", "snapshot", s.ID(), "error", err)
	}
}
