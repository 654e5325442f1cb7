package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	reserveFile = "RESERVE" // in the data directory; its blocks are the reserve
	diskTick    = time.Second
	// diskHysteresis is how much more than the reserve must be free before a
	// server that was low is not; less with a small reserve.
	diskHysteresis = 16 << 20
	// diskMargin is what stays free beside what a write is known to need: file
	// systems keep books of their own, and votes and names are written, too.
	diskMargin = 1 << 20
	// minDiskReserve is the least reserve: the log must be able to begin a file,
	// and half of the reserve must be left then.
	minDiskReserve = 8 << 20
)

// diskRoom watches the room on the disk and keeps a reserve of it.
//
// A write of Raft's that fails ends the server, so the writes of clients are
// refused before. Beside the reserve, which is a file with blocks that nobody
// else can take, as much again must be free; with less this server is low. Then
// the reserve is turned into room piece by piece, each time right before the log
// needs it, for what still goes on: releases, ends of sessions, elections. When
// little is left of both the server is spent. As the leader it proposes nothing
// more, as a follower it takes no entries that do not fit (accepts), and so
// nothing ever meets a full disk unless somebody fills it between two system
// calls.
//
// It is safe for concurrent use. With a reserve of 0 it only measures.
type diskRoom struct {
	dir     string
	reserve int64
	step    int64 // what the log takes at once when it begins a new file
	free    func(dir string) (int64, error)

	low, spent atomic.Bool                // here
	quorum     atomic.Pointer[quorumRoom] // as the leader said; nil: nothing yet
	freeBytes  atomic.Int64               // as last seen
	held       atomic.Int64               // of the reserve, on the disk
	used       atomic.Int64               // see measure

	mu   sync.Mutex // one look at a time; guards bare and the reserve file
	bare bool       // the file system cannot give blocks to a file beforehand
}

func newDiskRoom(dir string, reserve, step int64) *diskRoom {
	return &diskRoom{dir: dir, reserve: reserve, step: step, free: freeBytes}
}

// logSegmentBytes is the size of one file of the log. The next one is allocated
// as a whole when one is full, so it has to be a fraction of the reserve; and a
// file goes only when no entry of it is needed.
func logSegmentBytes(snapshotLog, reserve int64) int64 {
	n := snapshotLog
	if reserve > 0 {
		n = min(n, reserve)
	}
	return min(max(n/4, 1<<20), 16<<20)
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

// isSpent says that next to nothing is left here, of the reserve either.
func (d *diskRoom) isSpent() bool { return d.spent.Load() }

func (d *diskRoom) detail() string {
	text := fmt.Sprintf("%d MiB free", d.freeBytes.Load()>>20)
	if d.reserve == 0 {
		return text + ", no reserve"
	}
	return fmt.Sprintf("%s beside %d of %d MiB of reserve", text, d.held.Load()>>20, d.reserve>>20)
}

// mark is how much must be free beside the whole reserve.
func (d *diskRoom) mark() int64 {
	if d.bare {
		return 2 * d.reserve // nothing else keeps others from it
	}
	return d.reserve
}

// missing is what the reserve file lacks.
func (d *diskRoom) missing() int64 {
	if d.bare {
		return 0
	}
	return d.reserve - d.held.Load()
}

// atOnce is what one write of so many bytes may take: it may fill a file of the
// log, and the next one is made right behind it.
func (d *diskRoom) atOnce(bytes int) int64 { return int64(bytes) + d.step + diskMargin }

// spentMark is the room, with what is left of the reserve, below which a server
// is spent. What a leader needs to be one still fits.
func (d *diskRoom) spentMark() int64 { return max(d.reserve/4, d.atOnce(diskMargin)) }

// look measures, and takes the reserve if there is room for it.
func (d *diskRoom) look() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lookLocked()
}

// prepare is look right before the log writes so many bytes: if they have no
// room otherwise, the reserve gives it. Nothing else makes the reserve smaller:
// room that is not used at once may be taken by others.
func (d *diskRoom) prepare(bytes int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.lookLocked()
	if lack := d.atOnce(bytes) - d.freeBytes.Load(); lack > 0 {
		return errors.Join(err, d.release(lack))
	}
	return err
}

func (d *diskRoom) lookLocked() error {
	free, err := d.free(d.dir)
	if err != nil {
		return err
	}
	d.freeBytes.Store(free)
	if d.reserve == 0 {
		return nil
	}
	err = d.judge(free)
	d.spent.Store(d.low.Load() && free+d.held.Load() < d.spentMark())
	return err
}

// judge decides whether the server is low. d.mu is held.
func (d *diskRoom) judge(free int64) error {
	beside := free - d.missing()
	switch {
	case d.low.Load():
		if beside <= d.mark()+min(diskHysteresis, d.reserve/4) {
			return nil
		}
		d.low.Store(false)
	case beside < d.mark():
		d.low.Store(true)
		return nil
	}
	if d.missing() > 0 {
		return d.take()
	}
	return nil
}

// accepts says whether entries of so many bytes may be added to the log. The
// error says why not. A server that is not low has at least the reserve free.
func (d *diskRoom) accepts(bytes int) error {
	if d.reserve == 0 || !d.low.Load() && d.atOnce(bytes) <= d.reserve {
		return nil
	}
	if d.look() != nil {
		return nil // what cannot be measured is left to the write itself
	}
	if have := d.freeBytes.Load() + d.held.Load(); have < d.atOnce(bytes) {
		return &noRoomError{"log entries", int64(bytes), have, d.atOnce(0)}
	}
	return nil
}

// noRoomError is returned for what is not begun because it would fill the disk.
type noRoomError struct {
	what             string
	size, have, kept int64 // bytes; have is what is free, kept what must stay free
}

func (e *noRoomError) Error() string {
	return fmt.Sprintf("no room for %s of %s: %s are free, and %s must stay free",
		e.what, mebibytes(e.size), mebibytes(e.have), mebibytes(e.kept))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// admits says whether a snapshot of about so many bytes may be begun. It never
// makes a server low that is not; one that is low may write what lets it cut its
// log, but not into the room that the log itself needs.
func (d *diskRoom) admits(snapshot int64) error {
	if err := d.look(); err != nil || d.reserve == 0 {
		return nil // nobody knows: it is tried
	}
	d.mu.Lock()
	kept := d.mark()
	d.mu.Unlock()
	if d.low.Load() {
		kept = d.atOnce(diskMargin)
	}
	if free := d.freeBytes.Load(); free-snapshot < kept {
		return &noRoomError{"a snapshot", snapshot, free, kept}
	}
	return nil
}

// spares says whether a snapshot that is being written may go on.
func (d *diskRoom) spares() error {
	if err := d.look(); err != nil || d.reserve == 0 {
		return nil
	}
	if free, kept := d.freeBytes.Load(), d.atOnce(diskMargin); free < kept {
		return &noRoomError{"more of a snapshot", 0, free, kept}
	}
	return nil
}

// take makes the reserve file whole, with blocks.
func (d *diskRoom) take() error {
	f, err := os.OpenFile(d.reservePath(), os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, d.reserve)
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.ENOSYS) {
		d.bare, err = true, nil
	}
	return errors.Join(err, f.Close(), d.weigh())
}

// release makes the reserve file smaller by at least n bytes.
func (d *diskRoom) release(n int64) error {
	held := d.held.Load()
	if held == 0 {
		return nil
	}
	left := max(0, held-(n+diskMargin-1)/diskMargin*diskMargin)
	if err := os.Truncate(d.reservePath(), left); err != nil {
		return fmt.Errorf("reserve: %w", err)
	}
	return d.weigh()
}

// weigh finds out what the reserve file holds.
func (d *diskRoom) weigh() error {
	info, err := os.Stat(d.reservePath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.held.Store(0)
		return nil
	case err != nil:
		return fmt.Errorf("reserve: %w", err)
	}
	d.held.Store(min(onDisk(info), info.Size()))
	return nil
}

func (d *diskRoom) reservePath() string { return filepath.Join(d.dir, reserveFile) }

// begin looks for the first time, when the data directory is locked and before
// its stores are opened: that may take room, which the reserve gives if there is
// none. A new directory on a disk that could never hold it is refused.
func (d *diskRoom) begin() (warning string, err error) {
	if d.reserve == 0 {
		return "", os.RemoveAll(d.reservePath()) // of a time with another setting
	}
	if err := d.weigh(); err != nil {
		return "", err
	}
	if d.held.Load() > d.reserve { // the setting was lowered
		if err := d.release(d.held.Load() - d.reserve); err != nil {
			return "", err
		}
	}
	if text := d.tooSmall(); text != "" {
		born, err := exists(filepath.Join(d.dir, stableFile))
		if err != nil || !born {
			return "", errors.Join(err, errors.New(text))
		}
		warning = text
	}
	return warning, d.prepare(0)
}

// tooSmall says why this server will be low for ever, "" if it need not be.
func (d *diskRoom) tooSmall() string {
	var st syscall.Statfs_t
	if syscall.Statfs(d.dir, &st) != nil {
		return "" // look says so
	}
	total, want := int64(st.Blocks)*st.Bsize, 2*d.reserve+min(diskHysteresis, d.reserve/4)+2*d.step
	if total >= want {
		return ""
	}
	return fmt.Sprintf("the disk of %s has %s in all, and raft.disk_reserve of %s needs at least %s: make the reserve smaller (%s or more, or 0 for none), or the disk larger",
		d.dir, mebibytes(total), mebibytes(d.reserve), mebibytes(want), mebibytes(minDiskReserve))
}

// explain adds what to do to the error of a start that met a full disk.
func (d *diskRoom) explain(err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	free, ferr := d.free(d.dir)
	if ferr != nil {
		return err
	}
	return fmt.Errorf("%w: the disk of %s is full (%s are free): make room and start again, nothing was lost", err, d.dir, mebibytes(free))
}

// diskLoop watches the room until ctx ends.
func (n *Node) diskLoop(ctx context.Context) {
	said := diskAnnouncer{n: n}
	var yielding yielder
	for ctx.Err() == nil {
		if err := n.disk.look(); err != nil {
			n.log.Warn("cannot look after the room on the disk", "err", err)
		}
		if err := n.disk.measure(); err != nil {
			n.log.Debug("cannot measure the data directory", "err", err)
		}
		said.look()
		yielding.look(ctx, n)
		pause(ctx, nil, n.cfg.slowly(diskTick))
	}
}

// diskAnnouncer logs when a server becomes low or spent, and when it is not any
// more.
type diskAnnouncer struct {
	n          *Node
	low, spent bool
}

func (a *diskAnnouncer) look() {
	d := a.n.disk
	low, spent := d.isLow(), d.isSpent()
	if low == a.low && spent == a.spent {
		return
	}
	a.low, a.spent = low, spent
	if !low {
		a.n.log.Info("there is room on the disk again", "event", "disk_room", "low", false, "spent", false, "detail", d.detail())
		return
	}
	a.n.log.Error("little room on the disk", "event", "disk_room", "low", low, "spent", spent, "detail", d.detail())
}
