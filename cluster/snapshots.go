package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// snapshotTick is how often the size of the log is looked at.
	snapshotTick = time.Second
	// snapshotRetry is the pause after a snapshot that failed.
	snapshotRetry = 10 * time.Second
)

// snapshots writes a snapshot whenever enough log has come together since the
// last one. Raft itself counts entries, and ours are batches of any size.
type snapshots struct {
	node    *Node
	newest  atomic.Uint64 // index of the last entry applied
	taking  diskTurn      // one at a time
	covered atomic.Uint64 // index that the last snapshot reaches
	failed  atomic.Pointer[string]
}

func newSnapshots(n *Node) *snapshots { return &snapshots{node: n, taking: newDiskTurn()} }

// applied notes the progress of the state machine.
func (s *snapshots) applied(index uint64) { s.newest.Store(index) }

// run takes snapshots until ctx ends.
func (s *snapshots) run(ctx context.Context) {
	if list, err := s.node.stores.snaps.List(); err == nil && len(list) > 0 {
		s.covered.Store(list[0].Index)
		s.node.stores.snaps.newest.CompareAndSwap(0, list[0].Size)
	}
	for ctx.Err() == nil {
		wait := s.node.cfg.slowly(snapshotTick)
		if s.due() {
			if _, err := s.take(); err != nil {
				s.node.log.Warn("no snapshot", "event", "no_snapshot", "err", err, "log_bytes", s.pending())
				wait = snapshotRetry
			}
		}
		pause(ctx, nil, wait)
	}
}

// due says whether enough log has come together. A server that is short of room
// does not wait for that: a snapshot lets it cut its log.
func (s *snapshots) due() bool {
	if s.pending() >= uint64(s.node.cfg.SnapshotLogSize) {
		return true
	}
	return s.node.disk.isLow() && s.pending() > 0 && s.node.stores.log.bytesAfter(0) >= 2*uint64(s.node.disk.step)
}

// pending is how many bytes of log no snapshot covers.
func (s *snapshots) pending() uint64 { return s.node.stores.log.bytesAfter(s.covered.Load()) }

// trailing is how much log stays behind a snapshot: as much as causes one, so
// that a server that was away for less does not need the whole snapshot; hardly
// any where there is no room for it.
func (s *snapshots) trailing() uint64 {
	if s.node.disk.isLow() {
		return uint64(s.node.disk.step)
	}
	return min(trailingLogBytes, uint64(s.node.cfg.SnapshotLogSize))
}

// trouble is why there is no snapshot that should be there.
func (s *snapshots) trouble() string {
	if text := s.failed.Load(); text != nil {
		return *text
	}
	return ""
}

// size is about how large the next snapshot will be.
func (s *snapshots) size() int64 {
	if newest := s.node.stores.snaps.newest.Load(); newest > 0 {
		return newest + newest/4
	}
	return int64(s.pending()) // what made the state is no smaller, as a rule
}

// take writes a snapshot of everything applied. It returns the index of the one
// that is there if nothing was applied since.
func (s *snapshots) take() (uint64, error) {
	index, err := s.takeOne()
	if err != nil && !errors.Is(err, ErrStopped) {
		text := err.Error()
		s.failed.Store(&text)
		s.node.counters.snapshotsFailed.Add(1)
	}
	return index, err
}

func (s *snapshots) takeOne() (uint64, error) {
	r := s.node.raft.Load()
	if r == nil || s.node.stopping.Load() {
		return 0, ErrStopped
	}
	s.taking.take()
	defer s.taking.giveBack()
	if covered := s.covered.Load(); covered > 0 && covered >= s.newest.Load() {
		return covered, nil
	}
	if err := s.node.changesRefused(); err != nil {
		return 0, err
	}
	if err := s.node.disk.admits(s.size()); err != nil {
		return 0, err
	}
	if err := setTrailingLogs(r, s.node.stores.log, s.trailing()); err != nil {
		return 0, err
	}
	start := time.Now()
	f := r.Snapshot()
	if err := f.Error(); err != nil {
		if errors.Is(err, raft.ErrNothingNewToSnapshot) {
			return s.covered.Load(), nil
		}
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	index, err := snapshotIndex(f)
	if err != nil {
		return 0, err
	}
	s.covered.Store(index)
	s.failed.Store(nil)
	s.node.counters.snapshots.Add(1)
	took := time.Since(start)
	if f := s.node.cfg.Timings.Snapshot; f != nil {
		f(took)
	}
	s.node.log.Info("wrote a snapshot", "event", "snapshot", "index", index, "took", took)
	return index, nil
}

func snapshotIndex(f raft.SnapshotFuture) (uint64, error) {
	meta, r, err := f.Open()
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	return meta.Index, r.Close()
}
