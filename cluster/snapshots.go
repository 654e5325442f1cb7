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
				s.node.log.Warn("no snapshot", "err", err)
				wait = snapshotRetry
			}
		}
		pause(ctx, nil, wait)
	}
}

func (s *snapshots) due() bool {
	return s.node.stores.log.bytesAfter(s.covered.Load()) >= uint64(s.node.cfg.SnapshotLogSize)
}

// trailing is how much log stays behind a snapshot: as much as causes one, so
// that a server that was away for less does not need the whole snapshot.
func (s *snapshots) trailing() uint64 {
	return min(trailingLogBytes, uint64(s.node.cfg.SnapshotLogSize))
}

// take writes a snapshot of everything applied. It returns the index of the one
// that is there if nothing was applied since.
func (s *snapshots) take() (uint64, error) {
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
