package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/hashicorp/raft"
)

// errLogBroken is returned when log and snapshots leave a hole between them.
var errLogBroken = errors.New("log and snapshots do not fit together")

// repairLog finishes the installation of a snapshot that was cut short by a
// crash. raft writes the snapshot, restores it, and only then clears the log; if
// the process ends in between, the log that raft finds either stops before the
// snapshot, and its next append would leave a gap, or has other entries where the
// snapshot is, and every message of the leader would be refused. The snapshot
// is of committed entries, so it wins. It also begins the count of log bytes.
func repairLog(log *logStore, snaps *snapshotStore) error {
	meta, err := newestReadable(log, snaps)
	if err != nil {
		return err
	}
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	if meta == nil {
		if err := checkWithoutSnapshot(snaps, first); err != nil {
			return err
		}
		log.sizes.start(0)
		return nil
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	goesOn, err := continues(log, first, meta)
	if err != nil {
		return err
	}
	if last != 0 && (last < meta.Index || !goesOn) {
		if err := log.DeleteRange(first, last); err != nil {
			return fmt.Errorf("clear the log behind snapshot %s: %w", meta.ID, err)
		}
	}
	log.setSnapshot(logPosition{meta.Index, meta.Term})
	log.sizes.start(meta.Index)
	return nil
}

// checkWithoutSnapshot is for a directory without a snapshot that can be read: then
// the log must have everything. first is 0 if it is empty.
func checkWithoutSnapshot(snaps *snapshotStore, first uint64) error {
	if first > 1 {
		return fmt.Errorf("%s: %w: the log begins at index %d and there is no snapshot: %w", snaps.path, errLogBroken, first, errDiskNotWhole)
	}
	ids, err := snaps.names()
	if err != nil {
		return err
	}
	if first == 0 && len(ids) > 0 {
		return fmt.Errorf("%s: %w: none of %d snapshots can be used, and the log is empty: %s", snaps.path, errDamaged, len(ids), whatToDo)
	}
	return nil
}

// continues says whether the log goes on where the snapshot ends: it has the
// snapshot's last entry, or begins just behind it.
func continues(log *logStore, first uint64, meta *raft.SnapshotMeta) (bool, error) {
	if first == meta.Index+1 {
		return true, nil
	}
	return log.holds(meta.Index, meta.Term)
}

// newestReadable returns the snapshot that raft is going to restore, nil if
// there is none. The newest is read whole only if the log does not fit it, as
// then the log is about to be cleared; otherwise raft reads it anyway.
func newestReadable(log *logStore, snaps *snapshotStore) (*raft.SnapshotMeta, error) {
	list, err := snaps.List()
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	first, err := log.FirstIndex()
	if err != nil {
		return nil, err
	}
	for _, meta := range list {
		if ok, err := continues(log, first, meta); ok || err != nil {
			return meta, err
		}
		_, r, err := snaps.Open(meta.ID)
		if err == nil {
			return meta, closeReader(r)
		}
		snaps.log.Warn("cannot read a snapshot", "snapshot", meta.ID, "error", err)
	}
	if len(list) > 0 {
		return nil, fmt.Errorf("%s: %w: none of %d snapshots can be used: %w", snaps.path, errLogBroken, len(list), errDiskNotWhole)
	}
	return nil, nil
}

func closeReader(r io.Closer) error {
	if err := r.Close(); err != nil {
		return fmt.Errorf("close snapshot: %w", err)
	}
	return nil
}
