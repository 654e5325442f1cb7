package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// errOtherCluster is returned when a server that belongs to a cluster is told
// to belong to another one.
var errOtherCluster = errors.New("this server belongs to another cluster")

// storeConfig says how to open a data directory.
type storeConfig struct {
	dir  string
	name string // of this server
	kind logStoreKind
	// writeDeadline is how long one write to the log or the votes may take
	// before fail is called; 0 is no deadline.
	writeDeadline time.Duration
	// fail is called at most once, with the reason why the disk cannot be
	// trusted any more. It must cut the server off and end the process. It must
	// not wait for Raft, whose loop may be the caller.
	fail func(error)
	// beforeWrite is called before each write, see Config.BeforeWrite.
	beforeWrite func() error
	// written is called after each write, see Faults.Written.
	written func() error
	// locked is called once the directory is there and locked, before anything in
	// it is opened; its error is the start's. nil is no call.
	locked func() error
	// segment is the size of one file of the log, for raft-wal; 0 is its default.
	segment int
	// prepare is called before each append of so many bytes, as a part of it. Its
	// error is nothing more than a hint. nil is no call.
	prepare func(bytes int) error
	// onSync hears of each append to the log; nil if nobody asks. It must not block.
	onSync func(took time.Duration, entries, bytes int)
	log    hclog.Logger
	// recovering opens a directory to read what can be read of it: also one whose
	// recovery was begun, or whose log has lost something, and leaves the log as it
	// is.
	recovering bool
}

// stores is an open data directory: all that Raft keeps on disk.
type stores struct {
	dir    string
	log    *logStore
	stable *watchedStable
	snaps  *snapshotStore

	lock    *dirLock
	watch   *diskWatch
	backend logBackend
	noted   logPosition // the end of the log as it was noted before this start
	places  []identityPlace

	// writing is held by who changes the identity or closes the stores, over the
	// writes of that, and taken before mu. Who reads the identity does not wait for
	// the disk.
	writing diskTurn
	closed  bool // guarded by writing

	mu sync.Mutex // guards below; held over nothing
	id identity
}

// openStores locks and opens the data directory, making it if it is not there,
// and checks that it is whole: errDirInUse, errWrongLogStore, errDiskNotWhole
// or errLogBroken say what is not. Call close at the end, after raft.Shutdown.
func openStores(cfg storeConfig) (_ *stores, err error) {
	if err := validateName(cfg.name); err != nil {
		return nil, err
	}
	lock, err := lockDir(cfg.dir)
	if err != nil {
		return nil, err
	}
	if err := checkDiffers(cfg.dir); err != nil {
		lock.release()
		return nil, err
	}
	s := &stores{dir: cfg.dir, lock: lock, watch: newDiskWatch(cfg.writeDeadline, cfg.fail), writing: newDiskTurn()}
	s.watch.before, s.watch.after = cfg.beforeWrite, cfg.written
	defer func() {
		if err != nil {
			_ = s.close() // the first error says more
		}
	}()
	if cfg.locked != nil {
		if err := cfg.locked(); err != nil {
			return nil, err
		}
	}
	if err := guarded(cfg.dir, func() error { return s.openAll(cfg) }); err != nil {
		return nil, explained(cfg.dir, err)
	}
	return s, nil
}

func (s *stores) openAll(cfg storeConfig) error {
	if err := s.openParts(cfg); err != nil {
		return err
	}
	if err := s.settle(cfg); err != nil {
		return err
	}
	if cfg.recovering { // who reads it finds out how far it can be read
		return nil
	}
	if err := checkTail(s.log, s.noted); err != nil {
		return err
	}
	return repairLog(s.log, s.snaps)
}

func (s *stores) openParts(cfg storeConfig) error {
	if err := checkRecovering(&cfg); err != nil {
		return err
	}
	bolt, err := openBolt(filepath.Join(cfg.dir, stableFile))
	if err != nil {
		return err
	}
	s.stable = &watchedStable{BoltStore: bolt, watch: s.watch}
	if s.stable.votes, err = openVotes(cfg.dir, bolt, cfg.log); err != nil {
		return err
	}
	if s.backend, err = openBackend(cfg); err != nil {
		return err
	}
	if s.log, err = newLogStore(s.backend, s.watch); err != nil {
		return asDamage(s.logPath(cfg), err)
	}
	s.log.path = s.logPath(cfg)
	s.log.onDamage = func(err error) {
		cfg.log.Error("a part of the log that a snapshot holds cannot be read", "error", err)
	}
	if s.log.tail, s.noted, err = openTail(cfg.dir); err != nil {
		return err
	}
	s.log.onSync, s.log.prepare = cfg.onSync, cfg.prepare
	if cfg.kind == logStoreBoltDB {
		s.log.deleteBatch = boltDeleteBatch
	}
	if s.snaps, err = openSnapshots(cfg.dir, cfg.log); err != nil {
		return err
	}
	s.snaps.logBegin, s.snaps.onNew = s.log.begin, s.log.setSnapshot
	return nil
}

func (s *stores) settle(cfg storeConfig) error {
	unborn, err := s.unborn()
	if err != nil {
		return err
	}
	s.places = identityPlaces(cfg.dir, s.stable, s.backend, s.logPath(cfg))
	s.id, err = settleIdentity(s.places, cfg.name, unborn)
	return err
}

// logPath names the log in messages.
func (s *stores) logPath(cfg storeConfig) string {
	if cfg.kind == logStoreBoltDB {
		return filepath.Join(cfg.dir, boltDir, boltLogFile)
	}
	return filepath.Join(cfg.dir, walDir)
}

// unborn says that no part holds Raft state: no term was ever seen, nothing is
// in the log, and there is no snapshot, not even one that cannot be read.
func (s *stores) unborn() (bool, error) {
	term, err := s.stable.GetUint64(keyCurrentTerm)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return false, fmt.Errorf("read the term: %w", err)
	}
	last, err := s.log.LastIndex()
	if err != nil {
		return false, err
	}
	ids, err := s.snaps.names()
	return term == 0 && last == 0 && len(ids) == 0, err
}

// server is the identity that never changes as long as the directory lives.
func (s *stores) server() serverID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id.Server
}

// cluster is the id of the cluster, empty as long as there is none.
func (s *stores) cluster() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id.Cluster
}

// adoptCluster makes this server one of the cluster id, for good. It returns
// errOtherCluster if it is one of another already, and nil if of the same.
func (s *stores) adoptCluster(id string) error {
	s.writing.take()
	defer s.writing.giveBack()
	if now := s.cluster(); now != "" && now != id {
		return fmt.Errorf("%w: %s, not %s", errOtherCluster, now, clip(id))
	}
	return s.setClusterLocked(id)
}

// replaceCluster puts a new cluster id in the place of the old one, for a
// cluster that is recovered from one of its servers.
func (s *stores) replaceCluster(id string) error {
	s.writing.take()
	defer s.writing.giveBack()
	return s.setClusterLocked(id)
}

// setClusterLocked is called with writing held.
func (s *stores) setClusterLocked(id string) error {
	if err := validateClusterID(id); err != nil {
		return err
	}
	s.mu.Lock()
	want := s.id
	s.mu.Unlock()
	want.Cluster = id
	if err := writeIdentity(s.places, make([]*identity, len(s.places)), want); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = want
	return nil
}

// forgetUnfinishedBootstrap makes a directory in which raft.BootstrapCluster was
// cut short one that can be bootstrapped: that function writes term 1 first and
// the first entry then, and refuses to run when it finds the term. A server with
// an empty log, no snapshot and no vote has promised nothing in term 1.
func (s *stores) forgetUnfinishedBootstrap() error {
	last, err := s.log.LastIndex()
	if err != nil {
		return err
	}
	ids, err := s.snaps.names()
	if err != nil {
		return err
	}
	term, err := s.stable.GetUint64(keyCurrentTerm)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the term: %w", err)
	}
	vote, err := getStable(s.stable, keyLastVoteTerm)
	if err != nil {
		return fmt.Errorf("read the vote: %w", err)
	}
	if last != 0 || len(ids) != 0 || term != 1 || vote != nil {
		return nil
	}
	return s.stable.SetUint64(keyCurrentTerm, 0)
}

// close lets the directory go. It may be called twice. Raft must have ended.
func (s *stores) close() error {
	s.writing.take()
	defer s.writing.giveBack()
	if s.closed {
		return nil
	}
	s.closed = true
	s.watch.close()
	var errs []error
	if s.log != nil && s.log.tail != nil {
		errs = append(errs, s.log.tail.close())
	}
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
	}
	if s.stable != nil {
		if s.stable.votes != nil {
			errs = append(errs, s.stable.votes.close())
		}
		errs = append(errs, s.stable.Close())
	}
	s.lock.release()
	return errors.Join(errs...)
}

// Keys under which hashicorp/raft keeps its term and vote.
var (
	keyCurrentTerm  = []byte("CurrentTerm")
	keyLastVoteTerm = []byte("LastVoteTerm")
	keyLastVoteCand = []byte("LastVoteCand")
)

// watchedStable is the store of votes and terms under the watch of the disk: an
// election writes it on Raft's main loop, where a hang is as bad as in the log.
type watchedStable struct {
	*raftboltdb.BoltStore
	votes *votes
	watch *diskWatch
}

// Set implements raft.StableStore.
func (s *watchedStable) Set(key, value []byte) error {
	return s.settled(s.watch.do("store vote", func() error { return s.put(key, value) }))
}

// SetUint64 implements raft.StableStore.
func (s *watchedStable) SetUint64(key []byte, value uint64) error {
	return s.settled(s.watch.do("store term", func() error { return s.put(key, binary.BigEndian.AppendUint64(nil, value)) }))
}

func (s *watchedStable) put(key, value []byte) error {
	return guarded(filepath.Join(filepath.Dir(s.votes.path), stableFile), func() error {
		if ok, err := s.votes.set(key, value); ok {
			return err
		}
		return s.BoltStore.Set(key, value)
	})
}

// Get implements raft.StableStore.
func (s *watchedStable) Get(key []byte) ([]byte, error) {
	v, ours := s.votes.get(key)
	switch {
	case !ours:
		return s.BoltStore.Get(key)
	case v == nil:
		return nil, raftboltdb.ErrKeyNotFound
	}
	return v, nil
}

// GetUint64 implements raft.StableStore.
func (s *watchedStable) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: %s has %d bytes", errDamaged, key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

// settled keeps from Raft that a server that has cut itself off has stored
// nothing, or one that could not wait for Raft any longer when it stopped: Raft
// would panic, and hide the reason for which the process ends. As nothing of what
// it does leaves the server any more, it does no harm to let it believe so.
func (s *watchedStable) settled(err error) error {
	if err != nil && (s.watch.closed.Load() || s.watch.isCutOff()) {
		return nil
	}
	return err
}

// removeStale deletes what a crash left unfinished in dir.
func removeStale(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == tmpSuffix {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
