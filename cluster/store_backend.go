package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/metadb"
	"go.etcd.io/bbolt"
)

// logStoreKind is the value of raft.log_store.
type logStoreKind string

const (
	logStoreWAL    logStoreKind = "wal"    // one fsync for each append
	logStoreBoltDB logStoreKind = "boltdb" // two, and older
)

// errWrongLogStore is returned when the directory's log was made by the other
// log store than the configured one.
var errWrongLogStore = errors.New("the log of this data directory was made with another raft.log_store")

// boltDeleteBatch keeps each deletion of old entries in bbolt to some
// milliseconds, as appends wait for it.
const boltDeleteBatch = 1024

// boltOpenTimeout is how long to wait for bbolt's own file lock. The lock of the
// directory is held already, so only a stranger can hold it.
const boltOpenTimeout = time.Second

// openBackend opens the log of the data directory, empty if there is none.
func openBackend(cfg storeConfig) (logBackend, error) {
	dir, kind := cfg.dir, cfg.kind
	other := map[logStoreKind]string{logStoreWAL: boltDir, logStoreBoltDB: walDir}[kind]
	if other == "" {
		return nil, fmt.Errorf("raft.log_store %q is not known (want wal or boltdb)", kind)
	}
	found, err := exists(filepath.Join(dir, other))
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if found {
		return nil, fmt.Errorf("%w: it is %q, and %s exists", errWrongLogStore, kind, filepath.Join(dir, other))
	}
	if kind == logStoreBoltDB {
		return openBoltLog(filepath.Join(dir, boltDir))
	}
	return openWAL(filepath.Join(dir, walDir), cfg)
}

// openWAL opens the log in dir, empty if there is none.
func openWAL(dir string, cfg storeConfig) (logBackend, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	meta := filepath.Join(dir, metadb.FileName)
	found, err := exists(meta)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	if found {
		if err := checkBolt(meta); err != nil {
			return nil, err
		}
	}
	var w *wal.WAL
	list := &metadb.BoltMetaDB{}
	err = guarded(dir, func() (err error) {
		if found {
			if err := finishRotation(dir); err != nil {
				return err
			}
		}
		if !cfg.recovering { // a recovery takes what is left
			if err := checkFiles(dir, list); err != nil {
				return errors.Join(err, list.Close())
			}
		}
		w, err = wal.Open(dir, wal.WithMetaStore(list), wal.WithLogger(cfg.log), wal.WithSegmentSize(cfg.segment))
		if err != nil { // the library leaves the list open and locked
			err = errors.Join(err, list.Close())
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open log: %w", asDamage(dir, err))
	}
	return walLog{w, dir}, nil
}

// walLog makes an error of what raft-wal panics about when it decodes a damaged
// entry. It also says what it means that a file of the log is full and there is no
// next one: raft-wal makes that in the background and only logs what kept it from
// it.
type walLog struct {
	*wal.WAL
	dir string
}

// GetLog implements raft.LogStore.
func (w walLog) GetLog(index uint64, out *raft.Log) error {
	return guarded(w.dir, func() error { return w.WAL.GetLog(index, out) })
}

// errNoNextFile is returned when a file of the log is full and the next one could
// not be made.
var errNoNextFile = errors.New("the next file of the log could not be made, most likely for want of room")

func (w walLog) StoreLogs(logs []*raft.Log) error {
	err := w.WAL.StoreLogs(logs)
	if errors.Is(err, wal.ErrSealed) {
		return fmt.Errorf("%w: %w", errNoNextFile, err)
	}
	return err
}

func openBoltLog(dir string) (logBackend, error) {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	b, err := openBolt(filepath.Join(dir, boltLogFile))
	if err != nil {
		return nil, err
	}
	return boltLog{b, filepath.Join(dir, boltLogFile)}, nil
}

// boltLog makes a value that is not there nil, as raft-wal does, and an error of
// what bbolt panics about.
type boltLog struct {
	*raftboltdb.BoltStore
	path string
}

func (b boltLog) Get(key []byte) ([]byte, error) {
	v, err := b.BoltStore.Get(key)
	if errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return nil, nil
	}
	return v, err
}

// GetLog implements raft.LogStore.
func (b boltLog) GetLog(index uint64, out *raft.Log) error {
	return guarded(b.path, func() error { return b.BoltStore.GetLog(index, out) })
}

// StoreLogs implements raft.LogStore.
func (b boltLog) StoreLogs(logs []*raft.Log) error {
	return guarded(b.path, func() error { return b.BoltStore.StoreLogs(logs) })
}

// DeleteRange implements raft.LogStore.
func (b boltLog) DeleteRange(first, last uint64) error {
	return guarded(b.path, func() error { return b.BoltStore.DeleteRange(first, last) })
}

// openBolt opens the bbolt file at path. A new file is made aside and then
// renamed: a crash while bbolt writes its first pages would leave a file that
// no later start can open.
func openBolt(path string) (*raftboltdb.BoltStore, error) {
	found, err := exists(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if !found {
		if err := createBolt(path); err != nil {
			return nil, fmt.Errorf("create %s: %w", path, err)
		}
	}
	if err := checkBolt(path); err != nil {
		return nil, err
	}
	var b *raftboltdb.BoltStore
	err = guarded(path, func() (err error) {
		b, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: boltOptions()})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, asDamage(path, err))
	}
	return b, nil
}

func createBolt(path string) error {
	tmp := path + tmpSuffix
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	b, err := raftboltdb.New(raftboltdb.Options{Path: tmp, BoltOptions: boltOptions()})
	if err != nil {
		return err
	}
	if err := b.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func boltOptions() *bbolt.Options {
	o := *bbolt.DefaultOptions
	o.Timeout = boltOpenTimeout
	return &o
}
