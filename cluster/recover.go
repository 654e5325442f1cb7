package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/zxid"
)

// recoveryFile, in the data directory, says that a recovery was begun. Until it
// is gone the directory belongs half to the old cluster and half to the new one,
// and no server starts on it.
const recoveryFile = "RECOVERING"

// errRecovering is returned when a recovery was begun and not finished.
var errRecovering = errors.New("a recovery of this data directory was begun and not finished: run coordd recover again")

// recovery is what recoveryFile holds: a second run goes on with the same ids.
type recovery struct {
	Format  int    `json:"format"` // recoveryFormat
	Cluster string `json:"cluster"`
	Epoch   uint32 `json:"epoch"`
}

const recoveryFormat = 1

// Recovered is what Recover has made.
type Recovered struct {
	ClusterID string
	Zxid      zxid.ID // every later transaction is above it
	Index     uint64  // of the snapshot that the new cluster begins with
	Sessions  int     // that ended
	Members   []Former
}

// Former is a member of the cluster that was.
type Former struct {
	ID   string // name~incarnation
	Vote bool
}

// Name is the part of the id that the operator chose.
func (f Former) Name() string { return serverID(f.ID).name() }

// Recover makes the data directory of c, whose server does not run, that of a
// new cluster with this server alone, out of everything in its log: what was
// agreed on, and what nobody can say of whether it was. The new cluster has an id
// of its own, so that servers of the old one are refused; its epoch is above
// every one in the log, and at least that of the present time; all sessions end.
//
// It may be stopped at any moment: either nothing was done, or the server does
// not start until Recover was run again.
func Recover(c Config) (_ *Recovered, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	var broken error
	s, err := openStores(storeConfig{
		dir: c.DataDir, name: c.Name, kind: logStoreKind(c.LogStore), recovering: true,
		fail: func(err error) { broken = err }, beforeWrite: c.BeforeWrite, log: newRaftLogger(c.Logger),
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, broken, s.close()) }()
	if s.cluster() == "" {
		return nil, fmt.Errorf("%s belongs to no cluster: there is nothing to recover", c.DataDir)
	}
	want, err := beginRecovery(c.DataDir, c.Clock.Wall())
	if err != nil {
		return nil, err
	}
	r := &recoveryRun{s: s, want: want}
	for _, step := range r.steps() {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &r.out, nil
}

// beginRecovery writes down what is going to be done, or reads what was.
func beginRecovery(dir string, now time.Time) (r recovery, err error) {
	path := filepath.Join(dir, recoveryFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		r = recovery{Format: recoveryFormat, Cluster: newClusterID(), Epoch: EpochAt(now)}
		if b, err = json.Marshal(r); err == nil {
			err = writeFileDurably(path, append(b, '\n'))
		}
		if err != nil {
			return r, fmt.Errorf("begin recovery: %w", err)
		}
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && r.Format != recoveryFormat {
		err = fmt.Errorf("format %d, this program knows %d", r.Format, recoveryFormat)
	}
	if err == nil {
		err = validateClusterID(r.Cluster)
	}
	if err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// checkRecovering refuses a directory whose recovery is not finished.
func checkRecovering(cfg *storeConfig) error {
	found, err := exists(filepath.Join(cfg.dir, recoveryFile))
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if found && !cfg.recovering {
		return fmt.Errorf("%s: %w", cfg.dir, errRecovering)
	}
	return nil
}

// recoveryRun is the work of one Recover.
type recoveryRun struct {
	s     *stores
	want  recovery
	term  uint64 // of the last entry of the old cluster
	image *fsm.Image
	out   Recovered
}

// steps are what has to be done, in an order in which each may be the last before
// a crash: the new state is durable before the log that it was made of goes, the
// log has gone before the directory changes its cluster, and the mark stays until
// the end.
func (r *recoveryRun) steps() []func() error {
	return []func() error{r.makeState, r.writeSnapshot, r.clearLog, r.changeCluster, r.finish}
}

func (r *recoveryRun) makeState() error {
	p, err := r.s.replay()
	if err != nil {
		return err
	}
	// Behind the last entry, so that this snapshot is newer than any that is
	// there, and the log, if it should stay, is seen to be older.
	r.term = p.last.term
	r.out = Recovered{ClusterID: r.want.Cluster, Index: p.last.index + 1, Members: formers(p.config)}
	r.out.Sessions, err = p.machine.Recover(fsm.Recovery{ClusterID: r.want.Cluster, MinEpoch: r.want.Epoch, Index: r.out.Index})
	r.out.Zxid, r.image = p.machine.Zxid(), p.machine.Snapshot()
	return err
}

func (r *recoveryRun) writeSnapshot() error {
	if err := r.s.writeAlone(r.image, logPosition{r.out.Index, r.term}); err != nil {
		return fmt.Errorf("write the snapshot of the new cluster: %w", err)
	}
	return nil
}

func (r *recoveryRun) changeCluster() error {
	if err := r.s.replaceCluster(r.want.Cluster); err != nil {
		return err
	}
	return markFormed(r.s.dir, r.want.Cluster)
}

func (r *recoveryRun) finish() error {
	if err := os.Remove(filepath.Join(r.s.dir, recoveryFile)); err != nil {
		return fmt.Errorf("finish recovery: %w", err)
	}
	return syncDir(r.s.dir)
}

// writeAlone writes a snapshot whose configuration is this server alone.
func (s *stores) writeAlone(image *fsm.Image, at logPosition) error {
	id := s.server()
	alone := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id),
	}}}
	_, encoder := raft.NewInmemTransport(raft.ServerAddress(id)) // writes down addresses, no more
	sink, err := s.snaps.Create(raft.SnapshotVersionMax, at.index, at.term, alone, at.index, encoder)
	if err != nil {
		return err
	}
	if err := image.Encode(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (r *recoveryRun) clearLog() error {
	log := r.s.log
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	if err := log.DeleteRange(first, last); err != nil {
		return fmt.Errorf("clear the log of the old cluster: %w", err)
	}
	return nil
}

// replayed is a state made of everything that a data directory holds.
type replayed struct {
	machine  *fsm.Machine
	snapshot uint64 // index it began with, 0: none
	last     logPosition
	config   raft.Configuration // the newest, agreed on or not
}

// replay restores the newest snapshot and applies the whole log.
func (s *stores) replay() (*replayed, error) {
	var stopped error
	p := &replayed{machine: fsm.New(fsm.Options{Fatal: func(err error) { stopped = err }})}
	machine := p.machine.Raft()
	meta, err := newestReadable(s.log, s.snaps)
	if err != nil {
		return nil, err
	}
	if meta != nil {
		_, r, err := s.snaps.Open(meta.ID)
		if err == nil {
			err = errors.Join(machine.Restore(r), r.Close())
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", meta.ID, err)
		}
		p.snapshot, p.config, p.last = meta.Index, meta.Configuration, logPosition{meta.Index, meta.Term}
	}
	end, err := s.log.LastIndex()
	if err != nil {
		return nil, err
	}
	for i := p.last.index + 1; i <= end && stopped == nil; i++ {
		var l raft.Log
		if err := s.log.GetLog(i, &l); err != nil {
			return nil, fmt.Errorf("log entry %d: %w", i, err)
		}
		if l.Type == raft.LogConfiguration {
			if p.config, err = decodeConfiguration(l.Data); err != nil {
				return nil, fmt.Errorf("log entry %d: %w", i, err)
			}
		}
		machine.Apply(&l)
		p.last = logPosition{l.Index, l.Term}
	}
	return p, stopped
}

// decodeConfiguration is raft's, which panics, as an error.
func decodeConfiguration(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not a configuration: %v", p)
		}
	}()
	return raft.DecodeConfiguration(b), nil
}

func formers(c raft.Configuration) (out []Former) {
	for _, s := range c.Servers {
		out = append(out, Former{ID: string(s.ID), Vote: s.Suffrage == raft.Voter})
	}
	return out
}
