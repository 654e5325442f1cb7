package cluster

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// DiskUse is what the data directory takes and has left, in bytes, as found
// within about the last second. The zero value: nobody has looked yet.
type DiskUse struct {
	Store    int64 // on the disk, for all files but the reserve
	Free     int64 // for this user, beside the reserve
	Snapshot int64 // the newest snapshot; 0: there is none
}

// DiskUse returns what was found last. It does not touch the disk, so it also
// answers while that hangs.
func (n *Node) DiskUse() DiskUse {
	return DiskUse{Store: n.disk.used.Load(), Free: n.disk.freeBytes.Load(), Snapshot: n.stores.snaps.newest.Load()}
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
