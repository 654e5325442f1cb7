package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

var errCrash = errors.New("crash")

// crashedCreation leaves what a crash leaves that comes after n of the writes of
// the identity. It returns the id that the first of them has, if any.
func crashedCreation(t *testing.T, dir string, kind logStoreKind, n int) serverID {
	t.Helper()
	cfg := testStoreConfig(t, dir, kind)
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &stores{dir: dir, lock: lock, watch: newDiskWatch(0, cfg.fail), writing: newDiskTurn()}
	defer s.close()
	if err := s.openParts(cfg); err != nil {
		t.Fatal(err)
	}
	places := identityPlaces(dir, s.stable, s.backend, "the log")
	for i := n; i < len(places); i++ {
		places[i].set = func([]byte) error { return errCrash }
	}
	_, err = settleIdentity(places, "n1", true)
	if n < len(places) && !errors.Is(err, errCrash) || n == len(places) && err != nil {
		t.Fatalf("creation with a crash after %d writes: %v", n, err)
	}
	found, err := readIdentities(places)
	if err != nil || found[0] == nil {
		return ""
	}
	return found[0].Server
}

func TestFirstStartThatCrashedIsFinished(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		for n := 0; n <= 3; n++ {
			dir := t.TempDir()
			id := crashedCreation(t, dir, kind, n)
			s := testStores(t, dir, kind)
			if n > 0 && s.server() != id {
				t.Errorf("after a crash behind %d writes the server is %s, it was %s", n, s.server(), id)
			}
			if s.cluster() != "" {
				t.Errorf("a new server is in cluster %s", s.cluster())
			}
			id = s.server()
			s = reopen(t, s, dir, kind)
			if s.server() != id {
				t.Errorf("after a restart the server is %s, it was %s", s.server(), id)
			}
		}
	})
}

// A crash before the identity is written leaves files of any kind.
func TestFirstStartThatCrashedInItsFilesIsFinished(t *testing.T) {
	garbage := []byte("half a page")
	for _, left := range [][]string{
		{lockFile},
		{stableFile + tmpSuffix},
		{walDir + "/wal-meta.db.tmp"},
		{snapshotDir + "/" + identityFile + tmpSuffix},
		{stableFile + tmpSuffix, walDir + "/wal-meta.db.tmp", snapshotDir + "/x" + tmpSuffix + "/state.bin"},
	} {
		dir := t.TempDir()
		for _, f := range left {
			path := filepath.Join(dir, f)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, garbage, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s, err := openStores(testStoreConfig(t, dir, logStoreWAL))
		if err != nil {
			t.Errorf("with %v left: %v", left, err)
			continue
		}
		_ = s.close()
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, boltDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, boltDir, boltLogFile+tmpSuffix), garbage, 0o600); err != nil {
		t.Fatal(err)
	}
	testStores(t, dir, logStoreBoltDB)
}

// liveDir makes the data directory of a server that has voted, stored entries
// and taken a snapshot in cluster id.
func liveDir(t *testing.T, kind logStoreKind, id string) string {
	t.Helper()
	dir := t.TempDir()
	s := testStores(t, dir, kind)
	if err := s.adoptCluster(id); err != nil {
		t.Fatal(err)
	}
	if err := s.stable.SetUint64(keyCurrentTerm, 5); err != nil {
		t.Fatal(err)
	}
	put(t, s.log, 1, upTo(1, 10)...)
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 5, Term: 1}, "state")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// parts are what a data directory consists of.
func parts(kind logStoreKind) map[string]string {
	log := walDir
	if kind == logStoreBoltDB {
		log = boltDir
	}
	return map[string]string{stableFile: stableFile, log: log, snapshotDir: snapshotDir, "identity file": snapshotDir + "/" + identityFile}
}

func TestHalfADiskIsRefused(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		id := newClusterID()
		for name, part := range parts(kind) {
			t.Run("lost "+name, func(t *testing.T) {
				dir := liveDir(t, kind, id)
				if err := os.RemoveAll(filepath.Join(dir, part)); err != nil {
					t.Fatal(err)
				}
				for range 2 { // the refusal must not make it whole
					refused(t, dir, kind, part)
				}
			})
			t.Run("another server's "+name, func(t *testing.T) {
				dir, other := liveDir(t, kind, id), liveDir(t, kind, id)
				transplant(t, other, dir, part)
				refused(t, dir, kind, "")
			})
			t.Run("all but "+name+" lost", func(t *testing.T) {
				dir, kept := t.TempDir(), liveDir(t, kind, id)
				if err := os.MkdirAll(filepath.Join(dir, snapshotDir), 0o700); err != nil {
					t.Fatal(err)
				}
				transplant(t, kept, dir, part)
				refused(t, dir, kind, "")
			})
		}
	})
}

// Raft state without any identity was not made by this program, or all three
// copies are lost.
func TestStateOfNobodyIsRefused(t *testing.T) {
	for name, make := range map[string]func(s *stores) error{
		"term":    func(s *stores) error { return s.stable.SetUint64(keyCurrentTerm, 1) },
		"entries": func(s *stores) error { return s.log.StoreLogs(entriesOf(1, 1)) },
		"snapshot": func(s *stores) error {
			writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 1, Term: 1}, "x")
			return nil
		},
		"unreadable snapshot": func(s *stores) error { return os.Mkdir(filepath.Join(s.snaps.path, "1-1-1"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := testStoreConfig(t, dir, logStoreWAL)
			lock, err := lockDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := &stores{dir: dir, lock: lock, watch: newDiskWatch(0, cfg.fail), writing: newDiskTurn()}
			if err := errors.Join(s.openParts(cfg), make(s), s.close()); err != nil {
				t.Fatal(err)
			}
			refused(t, dir, logStoreWAL, stableFile)
			if _, err := openStores(cfg); err == nil || !strings.Contains(err.Error(), "but there is Raft state") {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

// refused opens dir, which must fail with a message that tells what to do and,
// if part is not empty, names it.
func refused(t *testing.T, dir string, kind logStoreKind, part string) {
	t.Helper()
	s, err := openStores(testStoreConfig(t, dir, kind))
	if err == nil {
		_ = s.close()
		t.Error("it opened")
		return
	}
	if !errors.Is(err, errDiskNotWhole) || !strings.Contains(err.Error(), "wipe it all, it will rejoin as new") {
		t.Errorf("refused with %v", err)
	}
	if !strings.Contains(err.Error(), filepath.Join(dir, part)) {
		t.Errorf("the message does not name %s: %v", filepath.Join(dir, part), err)
	}
}

func transplant(t *testing.T, from, to, part string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(to, part)); err != nil {
		t.Fatal(err)
	}
	src, dst := filepath.Join(from, part), filepath.Join(to, part)
	st, err := os.Stat(src)
	if err != nil {
		t.Fatal(err)
	}
	if st.IsDir() {
		copyTree(t, src, dst)
		return
	}
	b, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dst, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWholeDiskIsAcceptedAfterAMove(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		id := newClusterID()
		dir := copyDir(t, liveDir(t, kind, id))
		s := testStores(t, dir, kind)
		if s.cluster() != id {
			t.Errorf("cluster %s, want %s", s.cluster(), id)
		}
		expect(t, s.log, 1, 10, term(1))
	})
}

func TestWipedDiskIsANewServer(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreWAL)
	was := s.server()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if now := testStores(t, dir, logStoreWAL).server(); now == was || now.name() != was.name() {
		t.Errorf("it is %s again as %s", now, was)
	}
}

func TestClusterIDIsSetOnceAndSurvivesACrashInBetween(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		id, other := newClusterID(), newClusterID()
		for n := 0; n <= 3; n++ {
			dir := t.TempDir()
			s := testStores(t, dir, kind)
			if err := s.stable.SetUint64(keyCurrentTerm, 1); err != nil {
				t.Fatal(err)
			}
			for i := n; i < len(s.places); i++ {
				s.places[i].set = func([]byte) error { return errCrash }
			}
			if err := s.adoptCluster(id); n < 3 && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			s = reopen(t, s, dir, kind)
			want := id
			if n == 0 {
				want = ""
			}
			if s.cluster() != want {
				t.Errorf("after a crash behind %d writes the cluster is %q, want %q", n, s.cluster(), want)
			}
			if err := s.adoptCluster(id); err != nil {
				t.Errorf("the same cluster again: %v", err)
			}
			if err := s.adoptCluster(other); !errors.Is(err, errOtherCluster) {
				t.Errorf("another cluster: %v", err)
			}
			if err := s.adoptCluster("x"); err == nil {
				t.Error("nonsense was taken")
			}
			if err := s.replaceCluster(other); err != nil || s.cluster() != other {
				t.Errorf("replace: %v, now %s", err, s.cluster())
			}
			s = reopen(t, s, dir, kind)
			if s.cluster() != other {
				t.Errorf("after a restart the cluster is %s, want %s", s.cluster(), other)
			}
		}
	})
}

func TestDirectoryOfAnotherServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	_ = testStores(t, dir, logStoreWAL).close()
	cfg := testStoreConfig(t, dir, logStoreWAL)
	cfg.name = "n2"
	if _, err := openStores(cfg); err == nil || !strings.Contains(err.Error(), `belongs to server "n1"`) {
		t.Errorf("opened as n2: %v", err)
	}
	cfg.name = "n 2"
	if _, err := openStores(cfg); err == nil {
		t.Error("opened with a bad name")
	}
}

func TestOtherLogStoreIsRefused(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := liveDir(t, kind, newClusterID())
		other := map[logStoreKind]logStoreKind{logStoreWAL: logStoreBoltDB, logStoreBoltDB: logStoreWAL}[kind]
		if _, err := openStores(testStoreConfig(t, dir, other)); !errors.Is(err, errWrongLogStore) {
			t.Errorf("opened as %s: %v", other, err)
		}
		testStores(t, dir, kind) // and it was not harmed
	})
	if _, err := openStores(testStoreConfig(t, t.TempDir(), "leveldb")); err == nil {
		t.Error("an unknown store was opened")
	}
}

func TestTwoProcessesNeverShareADirectory(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreWAL)
	if _, err := openStores(testStoreConfig(t, dir, logStoreWAL)); !errors.Is(err, errDirInUse) || !strings.Contains(err.Error(), "pid ") {
		t.Errorf("opened twice: %v", err)
	}
	_ = s.close()
	_ = s.close() // twice is fine
	testStores(t, dir, logStoreWAL)
}

func TestDataDirectoryIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	_ = testStores(t, dir, logStoreWAL).close()
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_ = testStores(t, dir, logStoreWAL).close()
	if st, _ := os.Stat(dir); st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v stays", st.Mode())
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openStores(testStoreConfig(t, file, logStoreWAL)); err == nil {
		t.Error("a file was opened as a directory")
	}
}

// raft.BootstrapCluster writes the term before the first entry.
func TestBootstrapThatCrashedCanBeDoneAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(s *stores) error
		term    uint64
	}{
		"nothing yet": {func(*stores) error { return nil }, 0},
		"term only":   {func(s *stores) error { return s.stable.SetUint64(keyCurrentTerm, 1) }, 0},
		"later term":  {func(s *stores) error { return s.stable.SetUint64(keyCurrentTerm, 2) }, 2},
		"with entries": {func(s *stores) error {
			return errors.Join(s.stable.SetUint64(keyCurrentTerm, 1), s.log.StoreLogs(entriesOf(1, 1)))
		}, 1},
		"with a vote": {func(s *stores) error {
			return errors.Join(s.stable.SetUint64(keyCurrentTerm, 1), s.stable.SetUint64(keyLastVoteTerm, 1),
				s.stable.Set(keyLastVoteCand, []byte("n1~1")))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := testStores(t, t.TempDir(), logStoreWAL)
			if err := tc.prepare(s); err != nil {
				t.Fatal(err)
			}
			if err := s.forgetUnfinishedBootstrap(); err != nil {
				t.Fatal(err)
			}
			if got, err := s.stable.GetUint64(keyCurrentTerm); got != tc.term || err != nil && tc.term != 0 {
				t.Errorf("term %d, %v; want %d", got, err, tc.term)
			}
			existing, err := raft.HasExistingState(s.log, s.stable, s.snaps)
			if err != nil || existing != (tc.term != 0) {
				t.Errorf("raft finds existing state: %v, %v", existing, err)
			}
		})
	}
}

// The pins of go.mod: raft-wal v0.4.0, which "latest" gives, loses nodes, and
// raft v1.8.0 does not build with this raft-boltdb.
func TestStoresArePinned(t *testing.T) {
	b, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	mod := string(b)
	for _, want := range []string{
		"github.com/hashicorp/raft v1.7.3", "github.com/hashicorp/raft-wal v0.4.2", "github.com/hashicorp/raft-boltdb/v2 v2.3.1",
	} {
		if !strings.Contains(mod, "\t"+want+"\n") && !strings.Contains(mod, "\t"+want+" // indirect\n") {
			t.Errorf("go.mod does not require %s", want)
		}
	}
	for line := range strings.Lines(mod) {
		if strings.HasPrefix(strings.TrimSpace(line), "replace") || strings.Contains(line, "=>") {
			t.Errorf("go.mod replaces a module: %s", line)
		}
	}
}
