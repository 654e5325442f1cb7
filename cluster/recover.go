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
	Format  int      `json:"format"` // recoveryFormat
	Cluster string   `json:"cluster"`
	Epoch   uint32   `json:"epoch"`
	Members []Former `json:"members"` // of the old cluster: later they are in nothing that is kept
}

const recoveryFormat = 1

// Recovered is what Recover has made.
type Recovered struct {
	ClusterID string
	Zxid      zxid.ID // every later transaction is above it
	Index     uint64  // of the snapshot that the new cluster begins with
	Sessions  int     // that ended
	Members   []Former
	// Lost says what of the directory could not be read, and is not in the new
	// cluster; nil: nothing.
	Lost error
}

// Former is a member of the cluster that was.
type Former struct {
	ID   string `json:"id"` // name~incarnation
	Vote bool   `json:"vote"`
}

// Name is the part of the id that the operator chose.
func (f Former) Name() string { return serverID(f.ID).name() }

// Recover makes the data directory of c, whose server does not run, that of a
// new cluster with this server alone, out of everything in its log: what was
// agreed on, and what nobody can say of whether it was. Behind an entry that is
// damaged nothing is taken. The new cluster has an id of its own, so that servers
// of the old one are refused; its epoch is above every one in the log, and at least
// that of the present time; all sessions end.
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
	r, err := newRecoveryRun(s, c.Clock.Wall())
	if err != nil {
		return nil, err
	}
	for _, step := range r.steps() {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &r.out, nil
}

// newRecoveryRun reads all there is, and writes down what is going to be done: in
// this order, so that a directory that cannot be read stays as it was.
func newRecoveryRun(s *stores, now time.Time) (*recoveryRun, error) {
	p, err := s.replay()
	if err != nil {
		return nil, err
	}
	want, err := readRecovery(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		want, err = beginRecovery(s.dir, now, formers(p.config))
	}
	if err != nil {
		return nil, err
	}
	return &recoveryRun{s: s, from: p, want: want}, nil
}

// beginRecovery writes down what is going to be done.
func beginRecovery(dir string, now time.Time, members []Former) (recovery, error) {
	r := recovery{Format: recoveryFormat, Cluster: newClusterID(), Epoch: EpochAt(now), Members: members}
	b, err := json.Marshal(r)
	if err == nil {
		err = writeFileDurably(filepath.Join(dir, recoveryFile), append(b, '\n'))
	}
	if err != nil {
		return r, fmt.Errorf("begin recovery: %w", err)
	}
	return r, nil
}

// readRecovery reads what was begun; fs.ErrNotExist: nothing was.
func readRecovery(dir string) (r recovery, err error) {
	path := filepath.Join(dir, recoveryFile)
	b, err := os.ReadFile(path)
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
	from  *replayed
	want  recovery
	image *fsm.Image
	fresh string // id of the snapshot that the new cluster begins with
	out   Recovered
}

// steps are what has to be done, in an order in which each may be the last before
// a crash: the new state is durable before what it was made of goes, that has gone
// before the directory changes its cluster, and the mark stays until the end.
func (r *recoveryRun) steps() []func() error {
	return []func() error{r.makeState, r.writeSnapshot, r.clearOld, r.changeCluster, r.finish}
}

func (r *recoveryRun) makeState() error {
	p := r.from
	// Behind the last entry, also behind those that cannot be read, so that this
	// snapshot is newer than any that is there, and the log, if it should stay, is
	// seen to be older.
	end, err := r.s.log.LastIndex()
	if err != nil {
		return err
	}
	r.out = Recovered{ClusterID: r.want.Cluster, Index: max(end, p.last.index) + 1, Members: r.want.Members, Lost: p.lost}
	r.out.Sessions, err = p.machine.Recover(fsm.Recovery{ClusterID: r.want.Cluster, MinEpoch: r.want.Epoch, Index: r.out.Index})
	r.out.Zxid, r.image = p.machine.Zxid(), p.machine.Snapshot()
	return err
}

func (r *recoveryRun) writeSnapshot() (err error) {
	if r.fresh, err = r.s.writeAlone(r.image, logPosition{r.out.Index, r.from.last.term}); err != nil {
		return fmt.Errorf("write the snapshot of the new cluster: %w", err)
	}
	return nil
}

// clearOld removes the log and the snapshots of the old cluster. A snapshot that
// stayed would be what a start falls back to if it cannot read the new one.
func (r *recoveryRun) clearOld() error {
	s := r.s
	first, _ := s.log.FirstIndex() // both from memory: cannot fail
	last, _ := s.log.LastIndex()
	if err := s.log.DeleteRange(first, last); err != nil {
		return fmt.Errorf("clear the log of the old cluster: %w", err)
	}
	if err := s.log.note(logPosition{}, true); err != nil { // it may name entries that were lost
		return err
	}
	ids, err := s.snaps.names()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id == r.fresh {
			continue
		}
		if err := s.snaps.remove(id); err != nil {
			return fmt.Errorf("remove a snapshot of the old cluster: %w", err)
		}
	}
	return syncDir(s.snaps.path)
}

// changeCluster makes the directory one of the new cluster. That this server was
// taken out of the old one does not matter in it.
func (r *recoveryRun) changeCluster() error {
	if err := r.s.replaceCluster(r.want.Cluster); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(r.s.dir, removedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("finish recovery: %w", err)
	}
	return markFormed(r.s.dir, r.want.Cluster)
}

func (r *recoveryRun) finish() error {
	if err := os.Remove(filepath.Join(r.s.dir, recoveryFile)); err != nil {
		return fmt.Errorf("finish recovery: %w", err)
	}
	return syncDir(r.s.dir)
}

// writeAlone writes a snapshot whose configuration is this server alone, and
// returns its id.
func (s *stores) writeAlone(image *fsm.Image, at logPosition) (string, error) {
	id := s.server()
	alone := raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id),
	}}}
	_, encoder := raft.NewInmemTransport(raft.ServerAddress(id)) // writes down addresses, no more
	sink, err := s.snaps.Create(raft.SnapshotVersionMax, at.index, at.term, alone, at.index, encoder)
	if err != nil {
		return "", err
	}
	if err := image.Encode(sink); err != nil {
		return "", errors.Join(err, sink.Cancel())
	}
	return sink.ID(), sink.Close()
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
