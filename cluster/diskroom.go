package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

const (
	reserveFile = "RESERVE" // in the data directory; its blocks are the reserve
	diskTick    = time.Second
	// diskHysteresis is how much more than the reserve must be free before a
	// server takes writes again.
	diskHysteresis = 16 << 20
)

// diskRoom watches the room on the disk. A write of Raft's that fails ends the
// server, so writes of clients are refused before: when less is free than the
// reserve. The reserve itself is a file with blocks, so that others who fill the
// disk cannot take it; it is given up when the disk is full, so that what still
// goes on (ends of sessions, elections) has room.
type diskRoom struct {
	dir     string
	reserve int64
	free    func(dir string) (int64, error)

	low       atomic.Bool // here
	quorumBad atomic.Bool // as the leader said
	freeBytes atomic.Int64
	used      atomic.Int64 // bytes, see measure
	held      bool         // the reserve file has its blocks; used by one goroutine
}

func newDiskRoom(dir string, reserve int64) *diskRoom {
	return &diskRoom{dir: dir, reserve: reserve, free: freeBytes}
}

// freeBytes is the room on the disk of dir for this user.
func freeBytes(dir string) (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free room of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// isLow says that this server's disk has less room than the reserve.
func (d *diskRoom) isLow() bool { return d.low.Load() }

// quorumLow says that too many servers are low for writes to be taken.
func (d *diskRoom) quorumLow() bool { return d.quorumBad.Load() }

func (d *diskRoom) setQuorumLow(low bool) { d.quorumBad.Store(low) }

func (d *diskRoom) detail() string {
	return fmt.Sprintf("%d MiB free beside a reserve of %d MiB", d.freeBytes.Load()>>20, d.reserve>>20)
}

// look measures, and takes or gives up the reserve.
func (d *diskRoom) look() error {
	free, err := d.free(d.dir)
	if err != nil {
		return err
	}
	d.freeBytes.Store(free)
	switch {
	case d.low.Load():
		// The reserve was given up, so its room must be there again too.
		if free > 2*d.reserve+diskHysteresis {
			d.low.Store(false)
			return d.take()
		}
	case free < d.reserve:
		d.low.Store(true)
		return d.giveUp()
	case !d.held:
		return d.take()
	}
	return nil
}

// take makes the reserve file, with blocks.
func (d *diskRoom) take() error {
	if d.reserve == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(d.dir, reserveFile), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return err
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, d.reserve)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		err = nil // a file system without it: only the measured room protects
	}
	d.held = err == nil
	return errors.Join(err, f.Close())
}

func (d *diskRoom) giveUp() error {
	d.held = false
	err := os.Remove(filepath.Join(d.dir, reserveFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// diskLoop watches the room until ctx ends.
func (n *Node) diskLoop(ctx context.Context) {
	was := false
	for ctx.Err() == nil {
		if err := n.disk.look(); err != nil {
			n.log.Warn("cannot look after the room on the disk", "err", err)
		}
		if err := n.disk.measure(); err != nil {
			n.log.Debug("cannot measure the data directory", "err", err)
		}
		if now := n.disk.isLow(); now != was {
			was = now
			n.log.Error("room on the disk", "event", "disk_room", "low", now, "detail", n.disk.detail())
		}
		pause(ctx, nil, n.cfg.slowly(diskTick))
	}
}

// quorumDiskLow says at the leader that so many voters are short of room, or
// silent, that no majority has room.
func (n *Node) quorumDiskLow() bool {
	voters, low := 0, 0
	for _, s := range n.members() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if state, _, ok := n.stateOfServer(serverID(s.ID)); ok && state.GetDiskLow() {
			low++
		}
	}
	return voters > 0 && voters-low <= voters/2
}
