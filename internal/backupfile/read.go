package backupfile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
)

// File is an open backup. Close it at the end.
type File struct {
	f     *os.File
	info  *coordpb.BackupInfo
	begin int64 // of the state
	size  int64 // of the state
	all   int64 // of the file
}

// Summary is what a whole look at a backup has found.
type Summary struct {
	Info   *coordpb.BackupInfo
	Bytes  int64    // of the file
	SHA256 [32]byte // of the file
	// State is the SHA-256 of the state alone, and StateBytes its length: what a
	// restore announces.
	State      [32]byte
	StateBytes int64
	Znodes     int64
}

// Open reads the description. Nothing is checked but that the file has the form
// of a backup and its full length: see Verify.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b := &File{f: f}
	if err := b.readEnds(); err != nil {
		_ = f.Close() // the first error says more
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// readEnds reads what stands before and behind the state.
func (b *File) readEnds() error {
	st, err := b.f.Stat()
	if err != nil {
		return err
	}
	if b.all = st.Size(); st.IsDir() {
		return fmt.Errorf("%w: it is a directory", ErrNotBackup)
	}
	var head [headBytes]byte
	if err := b.readAt(head[:], 0); err != nil || [8]byte(head[:]) != magic {
		return fmt.Errorf("%w: it does not begin as one", ErrNotBackup)
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v != version {
		return fmt.Errorf("%w that can be read: it has format version %d, this program knows %d", ErrNotBackup, v, version)
	}
	n := int64(binary.LittleEndian.Uint32(head[12:]))
	b.begin = headBytes + n
	b.size = b.all - b.begin - tailBytes
	if n > maxInfoBytes || b.size < 0 {
		return fmt.Errorf("%w: it has %d bytes and a description of %d", ErrDamaged, b.all, n)
	}
	text := make([]byte, n)
	if err := b.readAt(text, headBytes); err != nil {
		return err
	}
	b.info = &coordpb.BackupInfo{}
	if err := proto.Unmarshal(text, b.info); err != nil {
		return fmt.Errorf("%w: its description: %w", ErrDamaged, err)
	}
	var length [8]byte
	if err := b.readAt(length[:], b.begin+b.size); err != nil {
		return err
	}
	if want := binary.LittleEndian.Uint64(length[:]); want != uint64(b.size) {
		return fmt.Errorf("%w: it was cut short, or something was added (%d bytes)", ErrDamaged, b.all)
	}
	return nil
}

func (b *File) readAt(p []byte, at int64) error {
	_, err := b.f.ReadAt(p, at)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends too early", ErrDamaged)
	}
	return err
}

// Info is the description. It stands under the sum that Verify checks.
func (b *File) Info() *coordpb.BackupInfo { return b.info }

// StateBytes is the length of the state.
func (b *File) StateBytes() int64 { return b.size }

// State reads the state from its beginning.
func (b *File) State() io.Reader { return io.NewSectionReader(b.f, b.begin, b.size) }

// View makes a tree of the state.
func (b *File) View() (*fsm.View, error) {
	v, err := fsm.ReadBackup(b.State())
	if errors.Is(err, fsm.ErrBadSnapshot) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return v, err
}

// Close closes the file.
func (b *File) Close() error { return b.f.Close() }

// Verify reads all of it: the sums must be right, and the state must be one that
// a server can take, and the one that is described.
func (b *File) Verify() (*Summary, error) {
	s := &Summary{Info: b.info, Bytes: b.all, StateBytes: b.size}
	if err := b.sums(s); err != nil {
		return nil, err
	}
	v, err := b.View()
	if err != nil {
		return nil, err
	}
	s.Znodes = int64(v.Tree.Counts().Nodes)
	if uint64(v.Zxid) != b.info.GetZxid() || s.Znodes != b.info.GetZnodes() {
		return nil, fmt.Errorf("%w: it describes %d znodes at zxid 0x%x, and holds %d at %s",
			ErrDamaged, b.info.GetZnodes(), b.info.GetZxid(), s.Znodes, v.Zxid)
	}
	return s, nil
}

// sums adds up the file, and the state in it.
func (b *File) sums(s *Summary) error {
	all, state := sha256.New(), sha256.New()
	whole := io.NewSectionReader(b.f, 0, b.all-sha256.Size)
	buf := make([]byte, 1<<20)
	_, err := io.CopyBuffer(all, io.LimitReader(whole, b.begin), buf)
	if err == nil {
		_, err = io.CopyBuffer(io.MultiWriter(all, state), io.LimitReader(whole, b.size), buf)
	}
	if err == nil {
		_, err = io.CopyBuffer(all, whole, buf)
	}
	if err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if err := b.readAt(want, b.all-sha256.Size); err != nil {
		return err
	}
	all.Sum(s.SHA256[:0])
	if state.Sum(s.State[:0]); !bytes.Equal(want, s.SHA256[:]) {
		return fmt.Errorf("%w: its SHA-256 is %x, it says %x", ErrDamaged, s.SHA256, want)
	}
	return nil
}

// verify looks at the whole file at path.
func verify(path string) (*Summary, error) {
	b, err := Open(path)
	if err != nil {
		return nil, err
	}
	s, err := b.Verify()
	if err := errors.Join(err, b.Close()); err != nil {
		return nil, err
	}
	return s, nil
}
