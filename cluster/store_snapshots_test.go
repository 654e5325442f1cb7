package cluster

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// writeSnapshot stores a snapshot as raft does.
func writeSnapshot(t *testing.T, s *snapshotStore, meta *raft.SnapshotMeta, state string) string {
	t.Helper()
	sink, err := s.Create(1, meta.Index, meta.Term, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(sink, state); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	return sink.ID()
}

func testSnapshots(t *testing.T, dir string) *snapshotStore {
	t.Helper()
	s, err := openSnapshots(dir, newRaftLogger(testLog()))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func indexes(t *testing.T, s *snapshotStore) (all []uint64) {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		all = append(all, m.Index)
	}
	return all
}

func TestTwoSnapshotsStay(t *testing.T) {
	s := testSnapshots(t, t.TempDir())
	for i := uint64(1); i <= 5; i++ {
		writeSnapshot(t, s, &raft.SnapshotMeta{Index: i * 10, Term: 1}, "state")
	}
	if got := indexes(t, s); len(got) != 2 || got[0] != 50 || got[1] != 40 {
		t.Errorf("snapshots %v stay, want 50 and 40", got)
	}
	if ids, _ := s.names(); len(ids) != 2 {
		t.Errorf("directories %v stay", ids)
	}
}

// With the library's own store the failed removal of an old snapshot made the
// new one fail, and every later one too.
func TestOldSnapshotThatCannotBeRemovedDoesNotStopLaterOnes(t *testing.T) {
	s := testSnapshots(t, t.TempDir())
	first := writeSnapshot(t, s, &raft.SnapshotMeta{Index: 10, Term: 1}, "state")
	// A name that is taken by a directory with content cannot be renamed to.
	hidden := filepath.Join(s.path, first+tmpSuffix, "x")
	if err := os.MkdirAll(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	var heard []logPosition
	s.onNew = func(p logPosition) { heard = append(heard, p) }
	for i := uint64(2); i <= 5; i++ {
		writeSnapshot(t, s, &raft.SnapshotMeta{Index: i * 10, Term: 1}, "state")
	}
	if got := indexes(t, s); len(got) != 3 || got[0] != 50 || got[1] != 40 || got[2] != 10 {
		t.Errorf("snapshots %v, want 50, 40 and the one that cannot go", got)
	}
	if len(heard) != 4 || heard[3] != (logPosition{50, 1}) {
		t.Errorf("heard of %v", heard)
	}
	if err := os.RemoveAll(filepath.Dir(hidden)); err != nil {
		t.Fatal(err)
	}
	writeSnapshot(t, s, &raft.SnapshotMeta{Index: 60, Term: 1}, "state")
	if got := indexes(t, s); len(got) != 2 {
		t.Errorf("snapshots %v: the old one is still there", got)
	}
}

// One that is left out of all lists would take its room for ever.
func TestSnapshotThatCannotBeReadGoesWithTheOldOnes(t *testing.T) {
	s := testSnapshots(t, t.TempDir())
	foreign := filepath.Join(s.path, "lost+found")
	must(t, os.Mkdir(foreign, 0o700))
	damaged := writeSnapshot(t, s, &raft.SnapshotMeta{Index: 10, Term: 1}, "state")
	writeBytes(t, filepath.Join(s.path, damaged, metaSum), 0, '!')
	writeSnapshot(t, s, &raft.SnapshotMeta{Index: 20, Term: 1}, "state")
	if found, _ := exists(filepath.Join(s.path, damaged)); !found {
		t.Error("it has gone while there is one other only")
	}
	writeSnapshot(t, s, &raft.SnapshotMeta{Index: 30, Term: 1}, "state")
	if got := indexes(t, s); len(got) != 2 || got[0] != 30 || got[1] != 20 {
		t.Errorf("snapshots %v, want 30 and 20", got)
	}
	if ids, _ := s.names(); len(ids) != 3 {
		t.Errorf("directories %v, want two and the foreign one", ids)
	}
}

func TestUnfinishedSnapshotsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	s := testSnapshots(t, dir)
	sink, err := s.Create(1, 10, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(sink, "half"); err != nil {
		t.Fatal(err)
	}
	if err := sink.Cancel(); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Create(1, 20, 1, raft.Configuration{}, 1, nil); err != nil { // and never closed: a crash
		t.Fatal(err)
	}
	s = testSnapshots(t, dir)
	entries, err := os.ReadDir(s.path)
	if err != nil || len(entries) != 0 {
		t.Errorf("%v stay, %v", entries, err)
	}
}

func TestSnapshotThatFailsToCloseIsNotThere(t *testing.T) {
	s := testSnapshots(t, t.TempDir())
	sink, err := s.Create(1, 10, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(s.path, sink.ID()+tmpSuffix)); err != nil {
		t.Fatal(err)
	}
	s.onNew = func(p logPosition) { t.Errorf("heard of %v", p) }
	if err := sink.Close(); err == nil {
		t.Error("it closed")
	}
	if got := indexes(t, s); len(got) != 0 {
		t.Errorf("snapshots %v", got)
	}
}

// A snapshot whose checksum cannot be written is whole and in its place by then:
// if it stayed, each attempt on a full disk would leave one.
func TestSnapshotWithoutChecksumDoesNotStay(t *testing.T) {
	s := testSnapshots(t, t.TempDir())
	writeSnapshot(t, s, &raft.SnapshotMeta{Index: 5, Term: 1}, "state")
	s.onNew = func(p logPosition) { t.Errorf("heard of %v", p) }
	sink, err := s.Create(1, 10, 1, raft.Configuration{}, 1, nil)
	must(t, err)
	must(t, os.Mkdir(filepath.Join(s.path, sink.ID()+tmpSuffix, metaSum+tmpSuffix), dirMode)) // where it is written first
	if err := sink.Close(); err == nil {
		t.Error("it closed")
	}
	if ids, _ := s.names(); len(ids) != 1 {
		t.Errorf("%v stay, want the older one", ids)
	}
	if got := indexes(t, s); len(got) != 1 || got[0] != 5 {
		t.Errorf("snapshots %v, want the older one", got)
	}
}

// Crash points of the installation of a snapshot: it is durable, and the log not
// yet cleared.
func TestLogIsClearedBehindASnapshotThatWasBeingInstalled(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		for _, tc := range []struct {
			name        string
			logTo       uint64
			snap        raft.SnapshotMeta
			first, last uint64 // afterwards
		}{
			{"the log stops before it", 50, raft.SnapshotMeta{Index: 90, Term: 2}, 0, 0},
			{"the log has another entry there", 100, raft.SnapshotMeta{Index: 90, Term: 2}, 0, 0},
			{"the log has its end", 100, raft.SnapshotMeta{Index: 90, Term: 1}, 1, 100},
			{"the log ends with it", 90, raft.SnapshotMeta{Index: 90, Term: 1}, 1, 90},
		} {
			dir := t.TempDir()
			s := testStores(t, dir, kind)
			put(t, s.log, 1, upTo(1, tc.logTo)...)
			writeSnapshot(t, s.snaps, &tc.snap, "state")
			s = reopen(t, s, dir, kind)
			expect(t, s.log, tc.first, tc.last, term(1))
			if got := s.log.snapshot(); got != (logPosition{90, tc.snap.Term}) {
				t.Errorf("%s: the newest snapshot ends at %v", tc.name, got)
			}
			put(t, s.log, 3, max(tc.last, 90)+1)
			_ = s.close()
		}
	})
}

func TestUnreadableNewestSnapshotDoesNotClearTheLog(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreWAL)
	put(t, s.log, 1, upTo(1, 50)...)
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 30, Term: 1}, "good")
	bad := writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 90, Term: 2}, "bad")
	if err := os.WriteFile(filepath.Join(s.snaps.path, bad, "state.bin"), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, dir, logStoreWAL)
	expect(t, s.log, 1, 50, term(1))
}

func TestHoleBetweenSnapshotAndLogIsRefused(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		put(t, s.log, 1, upTo(1, 50)...)
		old := writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 20, Term: 1}, "old")
		id := writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 40, Term: 1}, "state")
		if err := s.log.DeleteRange(1, 40); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.snaps.Open(old); !errors.Is(err, errDiskNotWhole) {
			t.Errorf("a snapshot that ends before the log begins can be restored: %v", err)
		}
		if _, r, err := s.snaps.Open(id); err != nil {
			t.Errorf("the newest snapshot: %v", err)
		} else {
			_ = r.Close()
		}
		for i, lost := range []string{id, old} {
			if err := os.RemoveAll(filepath.Join(s.snaps.path, lost)); err != nil {
				t.Fatal(err)
			}
			_ = s.close()
			if _, err := openStores(testStoreConfig(t, dir, kind)); !errors.Is(err, errLogBroken) || !strings.Contains(err.Error(), "wipe it all") {
				t.Errorf("opened with %d snapshots lost: %v", i+1, err)
			}
		}
	})
}
