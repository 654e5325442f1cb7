package smalldisk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnsupported is returned where no file system can be made.
var ErrUnsupported = errors.New("no file systems for tests here")

// privateEnv tells the program that it runs in a mount namespace of its own.
const privateEnv = "COORD_TEST_PRIVATE_MOUNTS"

// Private puts this program into a mount namespace of its own, by running it
// again from its beginning. It returns when that is done, and at once for others
// than root, who can mount nothing anyway. It must be called before anything else
// has begun.
func Private() error {
	if os.Geteuid() != 0 || os.Getenv(privateEnv) != "" {
		return nil
	}
	runtime.LockOSThread() // the thread that leaves the namespace is the one that runs the program again
	defer runtime.UnlockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec(self, os.Args, append(os.Environ(), privateEnv+"=1"))
}

// Disk is one file system. One goroutine at a time may use it.
type Disk struct {
	image, dir string
	frozen     bool
	mounted    bool
}

// New makes a file system of size bytes below dir, and mounts it. Close takes it
// away. The image takes only the room that was written to.
func New(dir string, size int64) (*Disk, error) {
	d := &Disk{image: filepath.Join(dir, "image"), dir: filepath.Join(dir, "mount")}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: it needs root", ErrUnsupported)
	}
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: mkfs.ext4: %w\n%s", ErrUnsupported, err, out)
	}
	if err := d.mount(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return d, nil
}

// Dir is where the file system is mounted.
func (d *Disk) Dir() string { return d.dir }

func (d *Disk) mount() error {
	if out, err := exec.Command("mount", "-t", "ext4", "-o", "loop,noatime", d.image, d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w\n%s", d.dir, err, out)
	}
	d.mounted = true
	return nil
}

// unmount waits a little for processes that were killed to let go.
func (d *Disk) unmount() error {
	if !d.mounted {
		return nil
	}
	var err error
	for range 200 {
		if err = unix.Unmount(d.dir, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", d.dir, err)
	}
	d.mounted = false
	return nil
}

// onRoot does an ioctl on the root of the file system.
func (d *Disk) onRoot(request uint, arg int) error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.IoctlSetPointerInt(int(f.Fd()), request, arg)
}

// Requests of linux/fs.h and ext4's.
const (
	fiFreeze     = 0xc0045877
	fiThaw       = 0xc0045878
	ext4Shutdown = 0x8004587d
	noLogFlush   = 2
)

// Freeze makes every write wait until Thaw, as a disk does that does not answer.
// A process that waits in one cannot even be killed before.
func (d *Disk) Freeze() error {
	if d.frozen {
		return nil
	}
	if err := d.onRoot(fiFreeze, 0); err != nil {
		return fmt.Errorf("freeze %s: %w", d.dir, err)
	}
	d.frozen = true
	return nil
}

// Thaw ends Freeze. It may be called at any time.
func (d *Disk) Thaw() error {
	if !d.frozen {
		return nil
	}
	if err := d.onRoot(fiThaw, 0); err != nil {
		return fmt.Errorf("thaw %s: %w", d.dir, err)
	}
	d.frozen = false
	return nil
}

// filler is the file that takes all the room.
const filler = "somebody-elses-file"

// Fill takes all but left bytes of the room that is free.
func (d *Disk) Fill(left int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.dir, filler), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Others write meanwhile, and a file needs blocks for its own map: take what
	// there is, bit by bit.
	const bit = 1 << 20
	for take := int64(st.Bavail)*st.Bsize - left; take > 0; take -= bit {
		at := info.Size()
		if err := unix.Fallocate(int(f.Fd()), 0, at, min(bit, take)); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return fmt.Errorf("fill %s: %w", d.dir, err)
		}
		if info, err = f.Stat(); err != nil {
			return err
		}
	}
	return nil
}

// Free gives the room back that Fill took, for good: a loss of power does not
// bring the file back.
func (d *Disk) Free() error {
	if err := os.Remove(filepath.Join(d.dir, filler)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// ReadOnly makes every write fail from now on, as the kernel does by itself when
// a disk has reported an error. Repair ends it.
func (d *Disk) ReadOnly() error {
	if out, err := exec.Command("mount", "-o", "remount,abort", d.dir).CombinedOutput(); err != nil {
		return fmt.Errorf("abort %s: %w\n%s", d.dir, err, out)
	}
	return nil
}

// PowerOff makes the disk fail at once, and forget what was not synced. The
// processes that use it should have been stopped before, as a loss of power stops
// them too, and killed afterwards; then Repair brings it back.
func (d *Disk) PowerOff() error {
	f, err := os.Open(d.dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), ext4Shutdown, noLogFlush); err != nil {
		return fmt.Errorf("shut %s down: %w", d.dir, err)
	}
	return nil
}

// Repair mounts the file system again after ReadOnly or PowerOff; nobody may use
// it meanwhile. What the journal holds is replayed.
func (d *Disk) Repair() error {
	if err := d.Thaw(); err != nil {
		return err
	}
	if err := d.unmount(); err != nil {
		return err
	}
	return d.mount()
}

// Close unmounts the file system. It may be called twice.
func (d *Disk) Close() error {
	return errors.Join(d.Thaw(), d.unmount())
}
