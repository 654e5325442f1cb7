package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	walsegment "github.com/hashicorp/raft-wal/segment"
)

// sealTail seals the last file of a closed log as the write does that fills it,
// without the note of it: so a kill leaves the log that comes in between. It
// returns the path of the file.
func sealTail(t *testing.T, dir string) (path string) {
	t.Helper()
	meta := &metadb.BoltMetaDB{}
	state, err := meta.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	tail := state.Segments[len(state.Segments)-1]
	w, err := walsegment.NewFiler(dir, fs.New()).RecoverTail(tail)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ForceSeal(); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := meta.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, walsegment.FileName(tail))
}

func appendTo(t *testing.T, dir string, first, last uint64) {
	t.Helper()
	w, err := openWAL(dir, storeConfig{segment: 1 << 20, log: newRaftLogger(testLog())})
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last; i++ {
		if err := w.StoreLogs([]*raft.Log{{Index: i, Term: 1, Data: fmt.Appendf(nil, "entry %d", i)}}); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	for i := uint64(1); i <= last; i++ {
		var l raft.Log
		if err := w.GetLog(i, &l); err != nil || string(l.Data) != fmt.Sprintf("entry %d", i) {
			t.Fatalf("entry %d is %q, %v", i, l.Data, err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// A kill may come when a file of the log is full and sealed, and the next one is
// not there yet. The log must go on at the next start, with all it has.
func TestLogGoesOnAfterAKillBetweenTwoOfItsFiles(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, dir, 1, 20)
	for n := uint64(1); n <= 3; n++ {
		sealTail(t, dir)
		appendTo(t, dir, 20*n+1, 20*n+20)
	}
}

// Where the write that sealed the file was torn, the seal is no seal.
func TestLogGoesOnAfterATornSeal(t *testing.T) {
	dir := t.TempDir()
	appendTo(t, dir, 1, 20)
	path := sealTail(t, dir)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(content)
	for end > 0 && content[end-1] == 0 {
		end--
	}
	clear(content[end-60 : end]) // the commit, and a part of the index
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	appendTo(t, dir, 21, 40)
}
