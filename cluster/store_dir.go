package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Layout of a data directory. Everything in it is private to the server.
const (
	lockFile     = "LOCK"
	stableFile   = "stable.db"  // votes and terms, bbolt
	walDir       = "log-wal"    // the log, if raft.log_store is wal
	boltDir      = "log-boltdb" // the log, if raft.log_store is boltdb
	boltLogFile  = "log.db"     // in boltDir
	snapshotDir  = "snapshots"  // named by hashicorp/raft's FileSnapshotStore
	identityFile = "identity"   // in snapshotDir
	tmpSuffix    = ".tmp"       // unfinished; removed at the next start
	dirMode      = fs.FileMode(0o700)
	fileMode     = fs.FileMode(0o600)
)

// errDirInUse is returned when another process has the data directory.
var errDirInUse = errors.New("the data directory is in use by another process")

// dirLock is the right to use a data directory. It ends with the process even
// if that is killed.
type dirLock struct{ f *os.File }

// lockDir makes dir if it is missing, closes it to other users, and locks it.
func lockDir(dir string) (*dirLock, error) {
	if err := makePrivateDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w (%s)", dir, errDirInUse, holderOf(f))
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l := &dirLock{f}
	if err := l.writeHolder(); err != nil {
		l.release()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return l, nil
}

// writeHolder overwrites the pid of the one before, and cuts it then: in this
// order it needs no room on a disk that is full.
func (l *dirLock) writeHolder() error {
	n, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	if err != nil {
		return err
	}
	return l.f.Truncate(int64(n))
}

func (l *dirLock) release() { _ = l.f.Close() }

// holderOf names the process in the lock file, for the error message only.
func holderOf(f *os.File) string {
	b := make([]byte, 20)
	n, _ := f.ReadAt(b, 0)
	if pid := strings.TrimSpace(string(b[:n])); pid != "" {
		return "pid " + pid
	}
	return "its pid is not known"
}

// makePrivateDir makes dir, and takes away what group and others may do in it.
func makePrivateDir(dir string) error {
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if !st.IsDir() {
		return fmt.Errorf("data directory %s is not a directory", dir)
	}
	if st.Mode().Perm()&0o077 == 0 {
		return nil
	}
	if err := os.Chmod(dir, dirMode); err != nil {
		return fmt.Errorf("data directory %s is open to other users: %w", dir, err)
	}
	return nil
}

// writeFileDurably replaces path by data in one step that survives a crash:
// afterwards it has its old content or the new one.
func writeFileDurably(path string, data []byte) error {
	tmp := path + tmpSuffix
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// exists says whether path is there; an error that is not "no such file" is
// returned, because a disk that cannot be read is not an empty one.
func exists(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
