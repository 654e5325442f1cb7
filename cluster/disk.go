package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/zxid"
)

// Disk is the data directory of a server that does not run, for looking into.
// It works on a copy, as the stores under a log change what they open; large
// snapshots are linked where the file system can. Close removes the copy.
//
// It is used by one goroutine.
type Disk struct {
	stores *stores
	dir    string
	copied string
	lock   *os.File // nil: the directory has none
}

// DiskSummary is what a data directory holds.
type DiskSummary struct {
	Server, Cluster string // ids; Cluster is empty for a server that never joined
	Recovering      bool   // a recovery was begun and not finished
	LogStore        string
	Term            uint64
	First, Last     uint64 // entries in the log; 0, 0: none
	LastTerm        uint64
	Snapshots       []SnapshotInfo // the newest first
	Members         []Former       // by the newest configuration, agreed on or not
	// The state that snapshot and log lead to.
	Index           uint64
	Zxid            zxid.ID
	Clock           int64 // cluster time of its last entry, ms since 1970
	Digest          uint64
	Znodes          int
	Sessions        int
	FeatureLevel    uint32
	SnapshotApplied uint64 // index of the snapshot that it began with
	// Lost says what cannot be read, so that the state ends before it; nil: nothing.
	Lost error
	// Differs and Removed say that the server does not start with this directory,
	// and why; nil: it is not marked as one whose state is wrong, or whose server was
	// taken out of its cluster.
	Differs, Removed error
}

// SnapshotInfo describes a snapshot on the disk.
type SnapshotInfo struct {
	ID          string
	Index, Term uint64
	Bytes       int64
}

// OpenDisk copies the data directory dir, which is not changed, and opens the
// copy. A server that has it makes that errDirInUse. temp is where the copy is
// made; empty: the system's place for such things. When ctx ends the copy is given
// up.
func OpenDisk(ctx context.Context, dir, temp string) (_ *Disk, err error) {
	id, err := identityOf(dir)
	if err != nil {
		return nil, err
	}
	d := &Disk{dir: dir}
	if d.lock, err = lockShared(dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.copied, err = os.MkdirTemp(temp, "coordd-look-"); err == nil {
		err = cloneDir(ctx, d.copied, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("copy %s, which needs room in %s (TMPDIR names another place): %w", dir, cmp.Or(temp, os.TempDir()), err)
	}
	var broken error
	d.stores, err = openStores(storeConfig{
		dir: d.copied, name: id.Server.name(), kind: kindOf(dir), recovering: true,
		fail: func(err error) { broken = err }, log: hclog.NewNullLogger(),
	})
	return d, errors.Join(inPlace(err, d.copied, dir), broken)
}

// inPlace names the files of the original in an error about those of a copy.
func inPlace(err error, copied, dir string) error {
	if err == nil {
		return nil
	}
	return &placedError{strings.ReplaceAll(err.Error(), copied, dir), err}
}

type placedError struct {
	text string
	err  error
}

func (e *placedError) Error() string { return e.text }
func (e *placedError) Unwrap() error { return e.err }

// identityOf reads whose directory it is.
func identityOf(dir string) (identity, error) {
	path := filepath.Join(dir, snapshotDir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return identity{}, fmt.Errorf("%s is not the data directory of a server: %w", dir, err)
	}
	if err != nil {
		return identity{}, err
	}
	id, err := decodeIdentity(b)
	if err != nil {
		err = fmt.Errorf("%s: %w: %w", path, err, errDiskNotWhole)
	}
	return id, err
}

func kindOf(dir string) logStoreKind {
	if found, err := exists(filepath.Join(dir, boltDir)); err == nil && found {
		return logStoreBoltDB
	}
	return logStoreWAL
}

// lockShared keeps servers out without writing anything; nil if the directory
// has no lock file.
func lockShared(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w (%s)", dir, errDirInUse, holderOf(f))
		}
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// cloneDir copies what is under from, but for the reserve of room.
func cloneDir(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case e.IsDir():
			return os.MkdirAll(target, dirMode)
		case rel == reserveFile || rel == differsFile || !e.Type().IsRegular():
			return nil // a directory that is marked may be looked into
		case filepath.Dir(filepath.Dir(rel)) == snapshotDir && os.Link(path, target) == nil:
			return nil // never changed in place
		}
		return copyFile(ctx, target, path)
	})
}

func copyFile(ctx context.Context, to, from string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	for err == nil {
		if _, err = io.CopyN(out, in, copyStep); err == nil {
			err = ctx.Err()
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Close())
}

// copyStep is how many bytes are copied between two looks at whether to go on.
const copyStep = 16 << 20

// Close lets the directory go and removes the copy. It may be called twice.
func (d *Disk) Close() error {
	var errs []error
	if d.stores != nil {
		errs = append(errs, d.stores.close())
	}
	if d.copied != "" {
		errs = append(errs, os.RemoveAll(d.copied))
	}
	if d.lock != nil {
		_ = d.lock.Close() // the lock ends with it
		d.lock = nil
	}
	return errors.Join(errs...)
}

// Summary restores and applies all there is, and says what came of it.
func (d *Disk) Summary() (*DiskSummary, error) {
	s := d.stores
	out := &DiskSummary{Server: string(s.server()), Cluster: s.cluster(), LogStore: string(kindOf(d.copied))}
	var err error
	out.Differs, out.Removed = checkDiffers(d.dir), readRemoved(d.dir)
	if term, err := s.stable.GetUint64(keyCurrentTerm); err == nil {
		out.Term = term
	}
	if out.First, err = s.log.FirstIndex(); err != nil {
		return nil, err
	}
	if out.Last, err = s.log.LastIndex(); err != nil {
		return nil, err
	}
	list, err := s.snaps.List()
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		out.Snapshots = append(out.Snapshots, SnapshotInfo{m.ID, m.Index, m.Term, m.Size})
	}
	p, err := s.replay()
	if err != nil {
		return nil, inPlace(err, d.copied, d.dir)
	}
	out.LastTerm, out.Members, out.SnapshotApplied = p.last.term, formers(p.config), p.snapshot
	out.Lost = inPlace(p.lost, d.copied, d.dir)
	begun, err := readRecovery(d.copied)
	switch {
	case err == nil:
		out.Recovering, out.Members = true, begun.Members
	case !errors.Is(err, fs.ErrNotExist):
		return nil, inPlace(err, d.copied, d.dir)
	}
	out.Digest, out.Index, out.Zxid = p.machine.Digest()
	p.machine.View(func(v *fsm.View) {
		out.Clock, out.Znodes, out.Sessions, out.FeatureLevel = v.Clock, v.Tree.Counts().Nodes, v.Sessions.Len(), v.FeatureLevel
	})
	return out, nil
}

// DiskEntry is an entry of the log.
type DiskEntry struct {
	Index, Term uint64
	Kind        string // command, configuration, noop, ..., or damaged
	Bytes       int
	Clock       int64    // of commands: cluster time in ms
	Commands    [][]byte // of commands: encoded, see fsm.DecodeCommand; valid until the next entry
	Members     []Former // of configurations
	Damage      error    // of one that cannot be read, which has nothing but its index
}

// Entries calls f with the entries of the log from from to to, in order, until it
// fails. One that is damaged is given as such.
func (d *Disk) Entries(from, to uint64, f func(*DiskEntry) error) error {
	first, err := d.stores.log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := d.stores.log.LastIndex()
	if err != nil {
		return err
	}
	for i := max(from, first); i <= min(to, last) && i > 0; i++ {
		var l raft.Log
		if err := d.stores.log.read(i, &l); err != nil {
			if err := f(&DiskEntry{Index: i, Kind: "damaged", Damage: inPlace(err, d.copied, d.dir)}); err != nil {
				return err
			}
			continue
		}
		e, err := entryOf(&l)
		if err != nil {
			return fmt.Errorf("log entry %d: %w", i, err)
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return nil
}

func entryOf(l *raft.Log) (*DiskEntry, error) {
	e := &DiskEntry{Index: l.Index, Term: l.Term, Bytes: len(l.Data), Kind: strings.ToLower(strings.TrimPrefix(l.Type.String(), "Log"))}
	switch l.Type {
	case raft.LogConfiguration:
		c, err := decodeConfiguration(l.Data)
		e.Members = formers(c)
		return e, err
	case raft.LogCommand:
		var err error
		if e.Clock, err = fsm.BatchClock(l.Data); err != nil {
			return nil, err
		}
		err = fsm.ForEach(l.Data, func(cmd []byte) error {
			e.Commands = append(e.Commands, cmd)
			return nil
		})
		return e, err
	default:
	}
	return e, nil
}
