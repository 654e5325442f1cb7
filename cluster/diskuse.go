package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/coordd/coord/cluster/peerpb"
)

// DiskUse is what the data directory takes and has left, in bytes, as found
// within about the last second. The zero value: nobody has looked yet.
type DiskUse struct {
	Store    int64 // on the disk, for all files but the reserve
	Free     int64 // for this user, beside the reserve
	Snapshot int64 // the newest snapshot; 0: there is none
	// Reserve is raft.disk_reserve, 0 if there is none, Held what the reserve file
	// has of it. Held is less only while the disk is short of room.
	Reserve, Held int64
	// Budget is what Store may be at most, as long as snapshots succeed and the
	// state is as large as in the newest one.
	Budget int64
	Low    bool // less is free than the reserve
	Spent  bool // next to nothing is left, of the reserve either
	// Trouble is why there was no snapshot the last time one was due; empty: there
	// was one.
	Trouble string
}

// DiskUse returns what was found last. It does not touch the disk, so it also
// answers while that hangs.
func (n *Node) DiskUse() DiskUse {
	d := n.disk
	return DiskUse{
		Store: d.used.Load(), Free: d.freeBytes.Load(), Snapshot: n.stores.snaps.newest.Load(),
		Reserve: d.reserve, Held: d.held.Load(), Budget: n.diskBudget(),
		Low: d.isLow(), Spent: d.isSpent(), Trouble: n.snapshots.trouble(),
	}
}

// storeSlack is what votes, identity, and the books of the stores take at most.
const storeSlack = 8 << 20

// diskBudget is the bound that log and snapshots keep. There are two snapshots,
// and a third one while it is written. The log has what causes a snapshot, what
// stays behind one, as much again for what comes while it is written, and files
// of which only a part is needed; bbolt gives nothing back, and a page that is in
// use twice makes it twice as large.
func (n *Node) diskBudget() int64 {
	logBytes := 3*n.cfg.SnapshotLogSize + 3*n.disk.step
	if n.cfg.LogStore == string(logStoreBoltDB) {
		logBytes *= 2
	}
	return (retainSnapshots+1)*n.stores.snaps.newest.Load() + logBytes + storeSlack
}

func diskOut(u DiskUse) *peerpb.Disk {
	return &peerpb.Disk{
		Store: u.Store, Free: u.Free, Reserve: u.Reserve, Held: u.Held, Budget: u.Budget, Snapshot: u.Snapshot,
		Spent: u.Spent, Trouble: u.Trouble,
	}
}

// diskIn is the room of the server that s is of, nil if it has not said.
func diskIn(s *peerpb.ServerState) *DiskUse {
	d := s.GetDisk()
	if d == nil {
		return nil
	}
	return &DiskUse{
		Store: d.GetStore(), Free: d.GetFree(), Reserve: d.GetReserve(), Held: d.GetHeld(), Budget: d.GetBudget(),
		Snapshot: d.GetSnapshot(), Low: s.GetDiskLow(), Spent: d.GetSpent(), Trouble: d.GetTrouble(),
	}
}

// measure adds up what the files of the data directory take. Files come and go
// meanwhile; those that are gone do not count.
func (d *diskRoom) measure() error {
	var total int64
	err := filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && e.Name() != reserveFile {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				total += onDisk(info)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err == nil {
		d.used.Store(total)
	}
	return err
}

// onDisk is what a file takes: segments of the log are allocated before they are
// filled, and their length does not show it.
func onDisk(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512 // whatever the block size of the file system is
	}
	return info.Size()
}
