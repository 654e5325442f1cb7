package backupfile

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/zxid"
)

// stateBytes is the backup of a machine that has just begun.
func stateBytes(t *testing.T) ([]byte, *coordpb.BackupInfo) {
	t.Helper()
	m := fsm.New(fsm.Options{})
	entry := fsm.AppendToBatch(fsm.NewBatch(nil, 1), fsm.AppendCommand(nil, &fsm.Command{
		Kind: fsm.CmdNewEpoch, Epoch: &fsm.NewEpoch{Term: 1, Clock: 1, MinEpoch: 9, ClusterID: "c"},
	}))
	if err := m.ApplyEntry(1, 1, entry); err != nil {
		t.Fatal(err)
	}
	image := m.Snapshot().ForBackup()
	var b bytes.Buffer
	if err := image.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), &coordpb.BackupInfo{
		ClusterName: "orders", ClusterId: "c", Zxid: uint64(zxid.Make(9, 0)), Index: 1, Znodes: int64(image.Znodes()),
	}
}

func write(t *testing.T, path string, force bool) (*Summary, error) {
	t.Helper()
	state, info := stateBytes(t)
	w, err := Create(path, force, info)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	for part := range slices.Chunk(state, 7) {
		if _, err := w.Write(part); err != nil {
			return nil, err
		}
	}
	return w.Commit()
}

// leftovers fails unless dir holds exactly the names.
func leftovers(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("the directory holds %q, not %q", got, names)
	}
}

func TestBackupReadsBackAsItWasWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.cbk")
	wrote, err := write(t, path, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	read, err := b.Verify()
	if err != nil {
		t.Fatal(err)
	}
	state, info := stateBytes(t)
	if !proto.Equal(read.Info, info) || read.SHA256 != wrote.SHA256 || read.StateBytes != int64(len(state)) {
		t.Errorf("wrote %+v, read %+v", wrote, read)
	}
	if got, err := io.ReadAll(b.State()); err != nil || !bytes.Equal(got, state) {
		t.Errorf("another state: %d bytes, %v", len(got), err)
	}
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("mode %v, %v: others may read it", st.Mode(), err)
	}
	leftovers(t, filepath.Dir(path), "a.cbk")
}

func TestBackupIsNotOverwrittenUnlessForced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.cbk")
	if _, err := write(t, path, false); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t, path, false); !errors.Is(err, ErrExists) {
		t.Errorf("a second one: %v", err)
	}
	if _, err := write(t, path, true); err != nil {
		t.Errorf("forced: %v", err)
	}
	leftovers(t, filepath.Dir(path), "a.cbk")
}

// noLinks is a file system that has none.
func noLinks(string, string) error { return syscall.EPERM }

func TestFileMadeWhileABackupIsWrittenStays(t *testing.T) {
	for name, link := range map[string]func(string, string) error{"links": os.Link, "no links": noLinks} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.cbk")
			state, info := stateBytes(t)
			w, err := Create(path, false, info)
			if err != nil {
				t.Fatal(err)
			}
			w.link = link
			if _, err := w.Write(state); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Commit(); !errors.Is(err, ErrExists) {
				t.Errorf("committed over it: %v", err)
			}
			if got, _ := os.ReadFile(path); string(got) != "mine" {
				t.Errorf("it holds %q", got)
			}
			leftovers(t, filepath.Dir(path), "a.cbk")
		})
	}
}

func TestBackupIsWrittenWhereThereAreNoLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.cbk")
	state, info := stateBytes(t)
	w, err := Create(path, false, info)
	if err != nil {
		t.Fatal(err)
	}
	w.link = noLinks
	if _, err := w.Write(state); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(path); err != nil {
		t.Error(err)
	}
	leftovers(t, filepath.Dir(path), "a.cbk")
}

func TestBackupGivenUpLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	_, info := stateBytes(t)
	w, err := Create(filepath.Join(dir, "a.cbk"), false, info)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); !errors.Is(err, ErrDamaged) { // there is no state in it
		t.Errorf("an empty one was committed: %v", err)
	}
	w.Abort()
	leftovers(t, dir)
}

// Each byte changed, and each length cut, is seen.
func TestEveryDamageIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.cbk")
	if _, err := write(t, path, false); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, at int, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := verify(path); !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotBackup) {
			t.Errorf("%s %d: %v", what, at, err)
		}
	}
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		try("byte", i, b)
		try("cut at", i, whole[:i])
	}
	try("added behind", len(whole), append(bytes.Clone(whole), 0))
}
