package fsm

import (
	"context"
	"fmt"

	"github.com/coordd/coord/session"
	"github.com/coordd/coord/znode"
	"github.com/coordd/coord/zxid"
)

// errRestoreGone is the answer to a restore that is not the one under way.
var errRestoreGone = fmt.Errorf("this restore is not under way any more: another one was begun, or it stood still for %s: %w",
	restoreIdle, znode.ErrBadArguments)

// restorable says whether the state at a feature level may take in a snapshot of
// a form. It is asked before the outcome of the building is looked at, which says
// of a form that a build does not know that it is damaged: a refusal, too, must
// be the same on builds of different age.
func restorable(version, level uint32) bool { return version <= snapshotVersionAt(level) }

func checkRestoreBegin(b *RestoreBegin) error {
	switch {
	case b.ID == "" || len(b.ID) > MaxRestoreID:
		return badArguments("id of a restore of %d bytes, 1 to %d are allowed", len(b.ID), MaxRestoreID)
	case b.Nonce == session.Nonce{}:
		return badArguments("restore without a nonce")
	case b.Size <= 0:
		return badArguments("a backup of %d bytes", b.Size)
	case b.Size > MaxRestoreBytes:
		return tooLarge("a backup of %d bytes, at most %d can be restored", b.Size, int64(MaxRestoreBytes))
	}
	return nil
}

// restoreBegin makes room for a backup.
func (m *Machine) restoreBegin(c *Command) *Result {
	if err := checkRestoreBegin(c.Begin); err != nil {
		return newResult(c, StatusDone, err)
	}
	if last := &m.state.LastRestore; last.ID == c.Begin.ID {
		return newResult(c, StatusRepeat, nil)
	}
	m.dropRestore()
	m.state.restoring = newStaging(c.Begin, m.state.Clock)
	return newResult(c, StatusDone, nil)
}

// restoreChunk takes the next bytes of the backup.
func (m *Machine) restoreChunk(c *Command) *Result {
	s, b := m.state.restoring, c.Chunk
	switch {
	case !s.of(b.Nonce):
		return newResult(c, StatusDone, errRestoreGone)
	case len(b.Data) == 0 || len(b.Data) > MaxRestoreChunk:
		return newResult(c, StatusDone, badArguments("%d bytes of a backup at once, 1 to %d are allowed", len(b.Data), MaxRestoreChunk))
	case b.Offset != s.got:
		return newResult(c, StatusDone, badArguments("bytes of a backup from %d on, the next are those from %d on", b.Offset, s.got))
	case int64(len(b.Data)) > s.begin.Size-s.got:
		return newResult(c, StatusDone, badArguments("the backup is longer than the %d bytes announced", s.begin.Size))
	}
	s.touched = m.state.Clock
	s.add(append([]byte(nil), b.Data...)) // the entry must not be pinned
	s.buildIfWhole()
	return newResult(c, StatusDone, nil)
}

// restoreCommit replaces the tree. Whatever its outcome, the bytes are let go.
func (m *Machine) restoreCommit(c *Command) *Result {
	s, b := m.state.restoring, c.Commit
	if !s.of(b.Nonce) {
		return newResult(c, StatusDone, errRestoreGone)
	}
	defer m.dropRestore()
	if b.Abandon {
		return newResult(c, StatusDone, nil)
	}
	epoch, err := m.mayRestore(s, b)
	if err != nil {
		return newResult(c, StatusDone, err)
	}
	m.state.Zxid = zxid.Make(epoch, 0)
	tx := m.begin(&znode.Caller{Trusted: true}, znode.ByAdmin)
	m.state.Tree = s.build.tree
	ended := m.endAllSessions(tx, false)
	m.state.Sessions.ForgetAllRequests()
	m.state.LastRestore = Restored{
		ID: s.begin.ID, Zxid: tx.Zxid, Znodes: int64(m.state.Tree.Counts().Nodes), Sessions: int64(ended),
	}
	m.swapped = true
	r := newResult(c, StatusDone, nil)
	r.Zxid = tx.Zxid
	return r
}

// mayRestore says whether the backup that has come may take the place of the
// tree, and which epoch begins then. It depends on the state and the bytes only.
func (m *Machine) mayRestore(s *staging, b *RestoreCommit) (epoch uint32, err error) {
	if s.build == nil {
		return 0, badArguments("%d of %d bytes of the backup have come", s.got, s.begin.Size)
	}
	if b.IntoEmpty && !m.state.Tree.Empty() {
		return 0, fmt.Errorf("the cluster has %d znodes and was to be empty: %w", m.state.Tree.Counts().Nodes, znode.ErrNotEmpty)
	}
	level := m.state.FeatureLevel
	if v := formOf(s.chunks); !restorable(v, level) {
		return 0, fmt.Errorf("the backup has format %d, which the cluster does not take at feature level %d: %w", v, level, ErrUnimplemented)
	}
	<-s.build.done // nearly always closed already, see awaitBuild
	if err := s.build.err; err != nil {
		return 0, fmt.Errorf("%w: %w", err, znode.ErrBadArguments)
	}
	if s.build.level > level {
		return 0, fmt.Errorf("the backup was made at feature level %d, the cluster is at %d: %w", s.build.level, level, ErrUnimplemented)
	}
	epoch = max(m.state.Zxid.Epoch()+1, s.build.last.Epoch()+1, b.MinEpoch)
	if epoch > MaxRestoreEpoch {
		return 0, badArguments("the epoch would become %d, and at most %d is left room behind", epoch, uint32(MaxRestoreEpoch))
	}
	return epoch, nil
}

// endAllSessions ends every session because of a restore, with its ephemerals if
// the tree is still the one that they are in.
func (m *Machine) endAllSessions(tx *znode.Tx, ephemerals bool) (ended int) {
	var open []session.ID
	for s := range m.state.Sessions.All() {
		open = append(open, s.ID)
	}
	for _, id := range open {
		by := m.state.Sessions.Get(id).Protocol
		if ephemerals {
			m.state.Tree.EndSession(tx, id, false)
		}
		m.state.Sessions.End(id, session.Restored, tx.Zxid, tx.Time)
		m.ended = append(m.ended, endedSession{id, by, session.Restored})
	}
	clear(m.callers)
	return len(open)
}

// dropRestore lets a backup go that is not wanted any more.
func (m *Machine) dropRestore() {
	m.state.restoring.drop()
	m.state.restoring = nil
}

// dropIdleRestore forgets a restore that nobody goes on with.
func (m *Machine) dropIdleRestore() {
	if s := m.state.restoring; s != nil && m.state.Clock-s.touched > restoreIdle.Milliseconds() {
		m.dropRestore()
	}
}

// awaitBuild waits for the tree that one of the first n decoded commands is
// about to put in place: here, and not under the write lock, so that readers do
// not wait for it. Only the applying goroutine, whose this is, changes what it
// looks at.
func (m *Machine) awaitBuild(n int) {
	for i := range m.decoded[:n] {
		c := m.decoded[i].Commit
		if s := m.state.restoring; c != nil && !c.Abandon && s.of(c.Nonce) && s.build != nil {
			<-s.build.done
		}
	}
}

// AwaitRestore waits until this replica has made a tree of the backup that the
// attempt nonce has brought, and returns why it could not. The commit finds the
// same on every replica.
func (m *Machine) AwaitRestore(ctx context.Context, nonce session.Nonce) error {
	m.mu.RLock()
	s := m.state.restoring
	var b *building
	if s.of(nonce) {
		b = s.build
	}
	m.mu.RUnlock()
	if b == nil {
		return errRestoreGone
	}
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Recovery is what a machine needs to know when its cluster is begun anew from
// one of its servers.
type Recovery struct {
	ClusterID string // the new one
	MinEpoch  uint32
	// Index is that of the snapshot to be written: behind everything applied.
	Index uint64
}

// Recover makes the state that of a new cluster, in a transaction of a new
// epoch: the writes that were lost with the other servers must not be able to
// come back with the old ids, so every session ends, and its ephemerals go. It
// is for a machine that nobody uses yet. It returns how many sessions ended.
func (m *Machine) Recover(r Recovery) (sessions int, err error) {
	m.entry.Lock()
	defer m.entry.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	epoch := max(m.state.Zxid.Epoch()+1, r.MinEpoch)
	if epoch > zxid.MaxEpoch || r.Index <= m.state.Index {
		return 0, fmt.Errorf("recover to epoch %d, index %d, from %s, index %d: %w", epoch, r.Index, m.state.Zxid, m.state.Index, ErrStop)
	}
	m.dropRestore()
	m.tx.Changes, m.ended = m.tx.Changes[:0], m.ended[:0]
	m.state.Zxid = zxid.Make(epoch, 0)
	tx := m.begin(&znode.Caller{Trusted: true}, znode.ByAdmin)
	sessions = m.endAllSessions(tx, true)
	m.state.ClusterID = r.ClusterID
	m.state.Index = r.Index
	m.publish()
	return sessions, nil
}
