package cluster

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

const mib = 1 << 20

// testDisk is a disk of which only the reserve is real; the rest is arithmetic.
type testDisk struct {
	mu    sync.Mutex
	size  int64
	other int64 // taken by others
}

// room makes the room of dir on the disk, with a reserve of 8 MiB and files of the
// log of 1 MiB.
func (k *testDisk) room(dir string) *diskRoom {
	d := newDiskRoom(dir, 8*mib, mib)
	d.free = k.free
	return d
}

// free is what others and the reserve have left.
func (k *testDisk) free(dir string) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.size - k.other
	info, err := os.Stat(filepath.Join(dir, reserveFile))
	if err == nil {
		left -= onDisk(info)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	return max(left, 0), nil
}

// leave makes others take all but so much, of which the reserve is a part.
func (k *testDisk) leave(n int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.other = k.size - n
}

func (d *diskRoom) mustLook(t *testing.T) {
	t.Helper()
	if err := d.look(); err != nil {
		t.Fatal(err)
	}
}

func wantHeld(t *testing.T, d *diskRoom, want int64) {
	t.Helper()
	var have int64
	if info, err := os.Stat(d.reservePath()); err == nil {
		have = info.Size()
	}
	if d.held.Load() != want || have != want {
		t.Errorf("the reserve holds %d, its file has %d; want %d", d.held.Load(), have, want)
	}
}

func TestServerIsLowUntilTheWholeReserveHasRoomAgain(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	d := k.room(t.TempDir())
	for _, step := range []struct {
		left int64 // of the disk, for the reserve and beside it
		low  bool
	}{
		{500 * mib, false},
		{16 * mib, false}, // the reserve and as much again
		{16*mib - 1, true},
		{16*mib + 1, true}, // not for a moment
		{18 * mib, true},
		{18*mib + 1, false},
		{17 * mib, false},
		{9 * mib, true},
	} {
		k.leave(step.left)
		d.mustLook(t)
		if d.isLow() != step.low {
			t.Errorf("with %d left: low %v", step.left, d.isLow())
		}
		wantHeld(t, d, 8*mib) // a look alone gives nothing away
	}
}

func TestReserveIsTurnedIntoRoomOnlyForWhatTheLogWrites(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	d := k.room(t.TempDir())
	d.mustLook(t)
	k.leave(8 * mib) // somebody has taken all that is not held
	for range 3 {
		d.mustLook(t)
	}
	if free, _ := k.free(d.dir); free != 0 {
		t.Fatalf("%d bytes are free", free)
	}
	wantHeld(t, d, 8*mib)
	for i := range 3 {
		// A write of half a MiB, a file of the log of 1 MiB, and 1 MiB that stays.
		if err := d.prepare(mib / 2); err != nil {
			t.Fatal(err)
		}
		free, _ := k.free(d.dir)
		if free < mib/2+2*mib {
			t.Errorf("write %d has room of %d bytes", i, free)
		}
		wantHeld(t, d, 5*mib) // what the first one did not use serves those after it
	}
	k.leave(5*mib + mib) // what was written, and what others took
	if err := d.prepare(mib / 2); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, d, 3*mib)
	k.leave(19 * mib)
	d.mustLook(t)
	if d.isLow() {
		t.Error("low with room for all")
	}
	wantHeld(t, d, 8*mib)
}

func TestSpentServerTakesWhatALeaderNeedsAndNothingThatDoesNotFit(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	d := k.room(t.TempDir())
	d.mustLook(t)
	k.leave(8 * mib)
	d.mustLook(t)
	if !d.isLow() || d.isSpent() {
		t.Errorf("with the whole reserve: low %v, spent %v", d.isLow(), d.isSpent())
	}
	if err := d.accepts(5 * mib); err != nil {
		t.Errorf("entries that fit: %v", err)
	}
	if err := d.prepare(6 * mib); err != nil { // to the last of it
		t.Fatal(err)
	}
	wantHeld(t, d, 0)
	k.leave(3*mib - 1)
	d.mustLook(t)
	if !d.isSpent() {
		t.Error("not spent with next to nothing")
	}
	var full *noRoomError
	if err := d.accepts(mib); !errors.As(err, &full) {
		t.Errorf("entries that do not fit: %v", err)
	}
	if err := d.accepts(1000); err != nil {
		t.Errorf("the entries of a new leader: %v", err)
	}
	k.leave(0)
	if err := d.accepts(1000); !errors.As(err, &full) {
		t.Errorf("on a disk without a byte: %v", err)
	}
	k.leave(500 * mib)
	d.mustLook(t)
	if d.isLow() || d.isSpent() || d.accepts(100*mib) != nil {
		t.Errorf("with room again: low %v, spent %v", d.isLow(), d.isSpent())
	}
}

// With a small reserve there can be room enough not to be low and still too little
// for what a follower is sent that has missed much.
func TestLargeEntriesHaveRoomOrAreLeftOut(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	d := k.room(t.TempDir())
	d.mustLook(t)
	k.leave(17 * mib)
	d.mustLook(t)
	if d.isLow() {
		t.Fatal("low with twice the reserve")
	}
	var full *noRoomError
	if err := d.accepts(16 * mib); !errors.As(err, &full) {
		t.Errorf("entries that fit nowhere: %v", err)
	}
	if err := d.accepts(12 * mib); err != nil {
		t.Errorf("entries that fit: %v", err)
	}
	if err := d.prepare(12 * mib); err != nil {
		t.Fatal(err)
	}
	if free, _ := k.free(d.dir); free < 12*mib {
		t.Errorf("%d bytes are free for what was taken", free)
	}
}

func TestSnapshotNeitherMakesAServerLowNorTakesTheRoomOfTheLog(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	d := k.room(t.TempDir())
	d.mustLook(t)
	k.leave(26 * mib) // 18 beside the reserve
	if err := d.admits(10 * mib); err != nil {
		t.Errorf("a snapshot that leaves as much as must be free: %v", err)
	}
	var full *noRoomError
	if err := d.admits(10*mib + 1); !errors.As(err, &full) {
		t.Errorf("one that would make the server low: %v", err)
	}
	k.leave(15 * mib) // low, 7 beside the reserve
	if err := d.admits(4 * mib); err != nil {
		t.Errorf("one with which the log can be cut: %v", err)
	}
	if err := d.admits(5 * mib); !errors.As(err, &full) {
		t.Errorf("one that takes the room of the log: %v", err)
	}
	if err := d.spares(); err != nil {
		t.Errorf("in the middle of one: %v", err)
	}
	k.leave(8*mib + 3*mib - 1)
	if err := d.spares(); !errors.As(err, &full) {
		t.Errorf("in the middle of one that has become too large: %v", err)
	}
	wantHeld(t, d, 8*mib)
}

func TestReserveOfTheLastStartIsUsedByThisOne(t *testing.T) {
	k := &testDisk{size: 1000 * mib}
	dir := t.TempDir()
	d := k.room(dir)
	d.mustLook(t)
	if err := os.WriteFile(filepath.Join(dir, stableFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	k.leave(8 * mib) // full, but for the reserve
	again := k.room(dir)
	if warning, err := again.begin(); warning != "" || err != nil {
		t.Fatal(warning, err)
	}
	if !again.isLow() {
		t.Error("not low")
	}
	wantHeld(t, again, 6*mib) // the stores can be opened with the rest
	lowered := newDiskRoom(dir, 5*mib, mib)
	lowered.free = k.free
	k.leave(1000 * mib)
	if _, err := lowered.begin(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, lowered, 5*mib)
	none := newDiskRoom(dir, 0, mib)
	if _, err := none.begin(); err != nil {
		t.Fatal(err)
	}
	wantHeld(t, none, 0)
}

func TestDiskThatCannotHoldTheReserveIsSaidAtTheStart(t *testing.T) {
	dir := t.TempDir()
	huge := newDiskRoom(dir, 1<<50, mib)
	_, err := huge.begin()
	if err == nil || !strings.Contains(err.Error(), "raft.disk_reserve") {
		t.Errorf("a new directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, stableFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	warning, err := huge.begin()
	if err != nil || !strings.Contains(warning, "raft.disk_reserve") || !huge.isLow() {
		t.Errorf("one with data: %q, %v, low %v", warning, err, huge.isLow())
	}
}

func TestStartOnAFullDiskSaysWhatToDo(t *testing.T) {
	k := &testDisk{size: 1000 * mib, other: 999 * mib}
	d := k.room(t.TempDir())
	err := d.explain(&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), d.dir) || !strings.Contains(err.Error(), "make room") {
		t.Errorf("%v", err)
	}
	if other := errors.New("other"); !errors.Is(d.explain(other), other) || d.explain(other).Error() != "other" {
		t.Errorf("%v", d.explain(other))
	}
}

func TestFileOfTheLogIsAFractionOfTheReserve(t *testing.T) {
	for _, c := range []struct{ log, reserve, want int64 }{
		{64 * mib, 64 * mib, 16 * mib},
		{64 * mib, -1, 16 * mib},
		{1024 * mib, 1024 * mib, 16 * mib},
		{mib, 64 * mib, mib},
		{64 * mib, 8 * mib, 2 * mib},
	} {
		if got := logSegmentBytes(c.log, c.reserve); got != c.want {
			t.Errorf("snapshots after %d, reserve of %d: files of %d, want %d", c.log, c.reserve, got, c.want)
		}
	}
	// The least reserve has room for one, and half of it is left.
	d := newDiskRoom("", minDiskReserve, logSegmentBytes(64*mib, minDiskReserve))
	if d.atOnce(mib) > minDiskReserve/2 || d.spentMark() > minDiskReserve/2+mib {
		t.Errorf("with the least reserve: %d at once, spent below %d", d.atOnce(mib), d.spentMark())
	}
}

func TestDataDirectoryIsMeasuredWithoutTheReserve(t *testing.T) {
	dir := t.TempDir()
	d := newDiskRoom(dir, 8*mib, mib)
	d.mustLook(t) // makes the reserve
	if err := d.measure(); err != nil || d.used.Load() != 0 {
		t.Errorf("%d bytes in a directory that has the reserve alone, %v", d.used.Load(), err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b", "c"), make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.measure(); err != nil || d.used.Load() < 100_000 || d.used.Load() > 200_000 {
		t.Errorf("%d bytes for 100000, %v", d.used.Load(), err)
	}
	d.dir = filepath.Join(dir, "none")
	if err := d.measure(); err != nil {
		t.Errorf("a directory that is gone: %v", err)
	}
}
