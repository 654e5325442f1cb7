package backupfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
)

// Writer writes one backup, aside, until Commit gives it its name.
type Writer struct {
	path  string
	force bool
	f     *os.File
	sum   hash.Hash // of the whole file
	state hash.Hash // of the state alone
	size  int64     // of the state
	link  func(old, name string) error
}

// Create begins a backup that will be at path. With force it may take the place
// of an older one; otherwise one that is there is ErrExists. Commit or Abort must
// follow.
func Create(path string, force bool, info *coordpb.BackupInfo) (*Writer, error) {
	if _, err := os.Lstat(path); err == nil && !force {
		return nil, fmt.Errorf("%s: %w", path, ErrExists)
	}
	head, err := proto.MarshalOptions{Deterministic: true}.Marshal(info)
	if err != nil {
		return nil, fmt.Errorf("describe backup: %w", err)
	}
	if len(head) > maxInfoBytes {
		return nil, fmt.Errorf("describe backup: %d bytes, at most %d are allowed", len(head), maxInfoBytes)
	}
	// In the same directory, so that it can be renamed; for the owner's eyes only.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	w := &Writer{path: path, force: force, f: f, sum: sha256.New(), state: sha256.New(), link: os.Link}
	b := binary.LittleEndian.AppendUint32(magic[:len(magic):len(magic)], version)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	if err := w.put(append(b, head...)); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// Write adds to the state. It implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	w.state.Write(b)
	w.size += int64(len(b))
	return len(b), w.put(b)
}

func (w *Writer) put(b []byte) error {
	w.sum.Write(b)
	if _, err := w.f.Write(b); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return nil
}

// StateSum is the SHA-256 of the state written so far.
func (w *Writer) StateSum() []byte { return w.state.Sum(nil) }

// Commit finishes the file, forces it to the disk, reads it back as a whole, and
// gives it its name. On an error there is no such file, or the older one, or, if it
// is only not certain that the name outlives a crash, the new one.
func (w *Writer) Commit() (*Summary, error) {
	defer w.Abort()
	if err := w.put(binary.LittleEndian.AppendUint64(nil, uint64(w.size))); err != nil {
		return nil, err
	}
	if err := w.put(w.sum.Sum(nil)); err != nil {
		return nil, err
	}
	if err := w.f.Sync(); err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	s, err := verify(w.f.Name())
	if err != nil {
		return nil, fmt.Errorf("read the backup back: %w", err)
	}
	if err := w.name(); err != nil {
		return nil, fmt.Errorf("write backup: %w", err)
	}
	return s, nil
}

// name gives the file its name, durably.
func (w *Writer) name() error {
	if err := w.place(); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(w.path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// place never puts the file in the place of another one that it may not replace,
// also not of one that was made while it was written.
func (w *Writer) place() error {
	if w.force {
		return os.Rename(w.f.Name(), w.path)
	}
	err := w.link(w.f.Name(), w.path)
	if err != nil && !errors.Is(err, fs.ErrExist) { // a file system without links: the name is taken first
		var f *os.File
		if f, err = os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			err = errors.Join(f.Close(), os.Rename(w.f.Name(), w.path))
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", w.path, ErrExists)
	}
	return err
}

// Abort removes what was written and has no name yet. It may be called after
// Commit, and twice.
func (w *Writer) Abort() {
	_ = w.f.Close()           // what has a name was synced before
	_ = os.Remove(w.f.Name()) // it is not there any more if it was renamed
}
