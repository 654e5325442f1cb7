package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// testStores opens a data directory, and fails the test when its disk does.
func testStores(t *testing.T, dir string, kind logStoreKind) *stores {
	t.Helper()
	s, err := openStores(testStoreConfig(t, dir, kind))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s
}

func testStoreConfig(t *testing.T, dir string, kind logStoreKind) storeConfig {
	return storeConfig{
		dir: dir, name: "n1", kind: kind, writeDeadline: time.Minute, log: newRaftLogger(testLog()),
		fail: func(err error) { t.Errorf("the disk was given up: %v", err) },
	}
}

// isNotFound is how raft finds out that an entry is not there: it unwraps nothing.
func isNotFound(err error) bool { return err == raft.ErrLogNotFound } //nolint:errorlint // that is the point

// bothStores runs a test with either log store.
func bothStores(t *testing.T, test func(t *testing.T, kind logStoreKind)) {
	for _, kind := range []logStoreKind{logStoreWAL, logStoreBoltDB} {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

func put(t *testing.T, s *logStore, term uint64, indexes ...uint64) {
	t.Helper()
	var logs []*raft.Log
	for _, i := range indexes {
		logs = append(logs, &raft.Log{Index: i, Term: term, Data: fmt.Appendf(nil, "%d/%d", term, i)})
	}
	if err := s.StoreLogs(logs); err != nil {
		t.Fatal(err)
	}
}

// expect checks that the log has exactly the entries first to last, in both the
// store and, if warm, the cache.
func expect(t *testing.T, s *logStore, first, last uint64, termOf func(uint64) uint64) {
	t.Helper()
	if f, _ := s.FirstIndex(); f != first {
		t.Errorf("the log begins at %d, want %d", f, first)
	}
	if l, _ := s.LastIndex(); l != last {
		t.Errorf("the log ends at %d, want %d", l, last)
	}
	var l raft.Log
	if first > 1 {
		if err := s.entry(first-1, &l); !isNotFound(err) {
			t.Errorf("entry %d before the log: %v", first-1, err)
		}
	}
	if err := s.GetLog(last+1, &l); !isNotFound(err) {
		t.Errorf("entry %d behind the log: %v", last+1, err)
	}
	if last == 0 {
		return
	}
	for i := first; i <= last; i++ {
		err := s.GetLog(i, &l)
		if want := fmt.Sprintf("%d/%d", termOf(i), i); err != nil || l.Index != i || l.Term != termOf(i) || string(l.Data) != want {
			t.Errorf("entry %d is %d/%d %q, %v; want %q", i, l.Term, l.Index, l.Data, err, want)
		}
	}
}

func term(n uint64) func(uint64) uint64 { return func(uint64) uint64 { return n } }

func TestLogSurvivesReopening(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		expect(t, s.log, 0, 0, nil)
		put(t, s.log, 1, upTo(1, 10)...)
		put(t, s.log, 1, upTo(11, 30)...)
		expect(t, s.log, 1, 30, term(1))
		reopened := reopen(t, s, dir, kind)
		expect(t, reopened.log, 1, 30, term(1))
	})
}

func reopen(t *testing.T, s *stores, dir string, kind logStoreKind) *stores {
	t.Helper()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return testStores(t, dir, kind)
}

func TestLogIsCutAtEitherEndAndGoesOn(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		put(t, s.log, 1, upTo(1, 3000)...)
		if err := s.log.DeleteRange(2991, 3000); err != nil { // a conflict
			t.Fatal(err)
		}
		put(t, s.log, 2, upTo(2991, 2995)...)
		if err := s.log.DeleteRange(1, 2980); err != nil { // behind a snapshot, in several steps for boltdb
			t.Fatal(err)
		}
		s.log.setSnapshot(logPosition{2985, 1})
		terms := func(i uint64) uint64 {
			if i > 2990 {
				return 2
			}
			return 1
		}
		expect(t, s.log, 2981, 2995, terms)
		meta := &raft.SnapshotMeta{Index: 2985, Term: 1}
		writeSnapshot(t, s.snaps, meta, "state")
		s = reopen(t, s, dir, kind)
		expect(t, s.log, 2981, 2995, terms)
		put(t, s.log, 2, upTo(2996, 3000)...)
		expect(t, s.log, 2981, 3000, terms)
	})
}

func TestClearedLogMayBeginAnywhere(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		put(t, s.log, 1, upTo(1, 20)...)
		writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 500, Term: 3}, "state")
		if err := s.log.DeleteRange(1, 20); err != nil {
			t.Fatal(err)
		}
		expect(t, s.log, 0, 0, nil)
		put(t, s.log, 3, upTo(501, 505)...)
		expect(t, s.log, 501, 505, term(3))
		s = reopen(t, s, dir, kind)
		expect(t, s.log, 501, 505, term(3))
		var l raft.Log
		if err := s.log.GetLog(500, &l); err != nil || l.Term != 3 {
			t.Errorf("the end of the snapshot before the log is %+v, %v", l, err)
		}
	})
}

func TestRangesOutsideOfTheLogAreNothingToDelete(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		s := testStores(t, t.TempDir(), kind)
		for range 2 {
			for _, r := range [][2]uint64{{1, 5}, {30, 40}, {0, 0}, {9, 3}} {
				if last, _ := s.log.LastIndex(); last != 0 && r[0] == 1 {
					continue
				}
				if err := s.log.DeleteRange(r[0], r[1]); err != nil {
					t.Errorf("delete %v: %v", r, err)
				}
			}
			if last, _ := s.log.LastIndex(); last == 0 {
				put(t, s.log, 1, upTo(1, 10)...)
			}
		}
		expect(t, s.log, 1, 10, term(1))
	})
}

// gapped is a request that Raft never makes.
func TestAppendWithAGapIsRefusedAndGivesTheDiskUp(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		cfg := testStoreConfig(t, t.TempDir(), kind)
		var fails []error
		cfg.fail = func(err error) { fails = append(fails, err) }
		s, err := openStores(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer s.close()
		put(t, s.log, 1, 1, 2, 3)
		if err := s.log.StoreLogs(entriesOf(1, 5)); !errors.Is(err, errLogGap) {
			t.Errorf("append behind a gap: %v", err)
		}
		if len(fails) != 1 || !errors.Is(fails[0], errLogGap) {
			t.Errorf("reported %v", fails)
		}
		if err := s.log.StoreLogs(entriesOf(1, 4)); !errors.Is(err, errDiskFailed) {
			t.Errorf("the next append: %v", err)
		}
		expect(t, s.log, 1, 3, term(1))
	})
}

// A server is killed right after it truncated a conflict; the library's older
// versions could not open that log again.
func TestLogOpensAfterACrashBehindATruncation(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		for _, after := range []string{"truncate", "truncate and append"} {
			dir := t.TempDir()
			s := testStores(t, dir, kind)
			put(t, s.log, 1, upTo(1, 50)...)
			if err := s.log.DeleteRange(31, 50); err != nil {
				t.Fatal(err)
			}
			want := uint64(30)
			if after != "truncate" {
				put(t, s.log, 2, upTo(31, 35)...)
				want = 35
			}
			crashed := copyDir(t, dir) // what a kill leaves on the disk
			r := testStores(t, crashed, kind)
			terms := func(i uint64) uint64 {
				if i > 30 {
					return 2
				}
				return 1
			}
			expect(t, r.log, 1, want, terms)
			put(t, r.log, 2, want+1)
			r = reopen(t, r, crashed, kind)
			expect(t, r.log, 1, want+1, terms)
		}
	})
}

// copyDir copies the files of dir as they are, while they are open. The zeros
// at the end of a preallocated file become a hole.
func copyDir(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	copyTree(t, dir, to)
	return to
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dst := filepath.Join(to, rel)
		if err := os.WriteFile(dst, bytes.TrimRight(b, "\x00"), 0o600); err != nil {
			return err
		}
		return os.Truncate(dst, int64(len(b)))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A write that was torn by the crash was never acknowledged, and never noted. The
// log opens with what was. The same bytes are damage once it was noted.
func TestTornAppendIsNotThere(t *testing.T) {
	dir := t.TempDir()
	s := testStores(t, dir, logStoreWAL)
	put(t, s.log, 1, upTo(1, 5)...)
	size := writtenBytes(t, dir)
	noted, err := os.ReadFile(filepath.Join(dir, tailFile))
	must(t, err)
	put(t, s.log, 1, 6)
	crashed := copyDir(t, dir)
	f, err := os.OpenFile(segment(t, crashed), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, writtenBytes(t, crashed)-size-5) // only the first bytes of the last append reached the disk
	if _, err := f.WriteAt(zeros, int64(size+5)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := copyDir(t, crashed)
	if _, err := openStores(testStoreConfig(t, damaged, logStoreWAL)); !errors.Is(err, errDamaged) {
		t.Errorf("an acknowledged entry is gone, and the log is opened: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(crashed, tailFile), noted, fileMode))
	r := testStores(t, crashed, logStoreWAL)
	expect(t, r.log, 1, 5, term(1))
	put(t, r.log, 2, 6)
	r = reopen(t, r, crashed, logStoreWAL)
	if held, err := r.log.holds(6, 2); !held || err != nil {
		t.Error("what was appended after the crash is not there")
	}
}

func segment(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
	if err != nil || len(found) != 1 {
		t.Fatalf("segments %v, %v", found, err)
	}
	return found[0]
}

func writtenBytes(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(segment(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return len(bytes.TrimRight(b, "\x00"))
}

func TestLogReportsHowLongAnAppendTook(t *testing.T) {
	cfg := testStoreConfig(t, t.TempDir(), logStoreWAL)
	calls, entries, size := 0, 0, 0
	cfg.onSync = func(took time.Duration, n, b int) {
		if took <= 0 {
			t.Errorf("an append took %v", took)
		}
		calls, entries, size = calls+1, entries+n, size+b
	}
	s, err := openStores(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.log.StoreLogs(entriesOf(100, 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	if calls != 1 || entries != 3 || size != 3*(100+logEntryOverhead) {
		t.Errorf("%d calls, %d entries, %d bytes", calls, entries, size)
	}
}

func TestPreviousEntryIsReadFromTheCache(t *testing.T) {
	b := &countingBackend{memBackend: &memBackend{InmemStore: raft.NewInmemStore()}}
	s, err := newLogStore(b, newDiskWatch(0, nil))
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 20; i++ {
		if err := s.StoreLogs(entriesOf(4<<20, i)); err != nil {
			t.Fatal(err)
		}
		var l raft.Log
		for _, j := range []uint64{i, i - 1} {
			if j > 0 {
				if err := s.GetLog(j, &l); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if b.reads != 0 {
		t.Errorf("%d reads went to the disk", b.reads)
	}
}

type countingBackend struct {
	*memBackend
	reads int
}

func (b *countingBackend) GetLog(i uint64, l *raft.Log) error {
	b.reads++
	return b.memBackend.GetLog(i, l)
}

func TestLogBytesAreCounted(t *testing.T) {
	b := &memBackend{InmemStore: raft.NewInmemStore()}
	s, err := newLogStore(b, newDiskWatch(0, nil))
	if err != nil {
		t.Fatal(err)
	}
	const each = 10_000
	for i := uint64(1); i <= 10_000; i++ {
		if err := s.StoreLogs(entriesOf(each-logEntryOverhead, i)); err != nil {
			t.Fatal(err)
		}
	}
	near := func(what string, got, want, slack uint64) {
		t.Helper()
		if got+slack < want || got > want+slack {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	near("bytes behind 0", s.bytesAfter(0), 100_000_000, sizeMarkBytes)
	near("bytes behind 9000", s.bytesAfter(9000), 10_000_000, sizeMarkBytes)
	near("entries in 64 MiB", s.entriesWithin(64<<20), 6710, 30)
	near("entries in 1 GiB", s.entriesWithin(1<<30), 10_000, 0)
	if s.bytesAfter(10_000) != 0 || s.entriesWithin(0) != 1 {
		t.Errorf("behind the end %d bytes; in no bytes %d entries", s.bytesAfter(10_000), s.entriesWithin(0))
	}
	if err := s.DeleteRange(1, 5000); err != nil {
		t.Fatal(err)
	}
	near("after a cut in front", s.bytesAfter(9000), 10_000_000, sizeMarkBytes)
	near("entries after a cut in front", s.entriesWithin(1<<30), 5000, 0)
	if err := s.DeleteRange(9501, 10_000); err != nil {
		t.Fatal(err)
	}
	near("after a cut at the end", s.bytesAfter(9000), 5_000_000, 2*sizeMarkBytes)
	near("entries after a cut at the end", s.entriesWithin(10_000_000), 1000, 60)
	if n := len(s.sizes.marks); n > 1000 {
		t.Errorf("%d marks", n)
	}

	// A restart: raft reads the log once from the snapshot on.
	again, err := newLogStore(b, newDiskWatch(0, nil))
	if err != nil {
		t.Fatal(err)
	}
	again.sizes.start(8000)
	var l raft.Log
	for i := uint64(8001); i <= 9500; i++ {
		if err := again.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.GetLog(8500, &l); err != nil { // once more is not counted
		t.Fatal(err)
	}
	near("after a restart", again.bytesAfter(8000), 15_000_000, sizeMarkBytes)
	near("entries after a restart, most of them not read", again.entriesWithin(40_000_000), 4000, 30)
}

func TestBytesAfterAnUnreadLogAreZeroNotNegative(t *testing.T) {
	var z logSizes
	if z.after(5) != 0 {
		t.Error("an empty count has bytes")
	}
	z.removed(1, 5)
	z.seen(3, 100)
	z.appended(10, 100)
	if got := z.after(9); got != 100 {
		t.Errorf("%d bytes", got)
	}
	if got := z.after(10); got != 0 {
		t.Errorf("%d bytes behind the end", got)
	}
	z.removed(10, 10)
	z.appended(10, 50)
	if got := z.after(0); got != 50 {
		t.Errorf("%d bytes after a replacement", got)
	}
}

func TestHangingAppendIsReportedWhileItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := make(chan error, 1)
		release := make(chan struct{})
		b := &memBackend{InmemStore: raft.NewInmemStore(), slow: func([]*raft.Log) { <-release }}
		s, err := newLogStore(b, newDiskWatch(5*time.Second, func(err error) { fails <- err }))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.StoreLogs(entriesOf(1, 1)) }()
		start := time.Now()
		if err := <-fails; !errors.Is(err, errDiskStalled) {
			t.Errorf("reported %v", err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("reported after %v", took)
		}
		var l raft.Log
		if err := s.GetLog(1, &l); !isNotFound(err) { // readers do not hang
			t.Errorf("read during a hang: %v", err)
		}
		close(release)
		<-done
	})
}

func TestFailedDeleteAndVoteAreReported(t *testing.T) {
	cfg := testStoreConfig(t, t.TempDir(), logStoreWAL)
	for _, what := range []string{"delete", "vote", "term"} {
		var fails []error
		cfg.dir = t.TempDir()
		cfg.fail = func(err error) { fails = append(fails, err) }
		s, err := openStores(cfg)
		if err != nil {
			t.Fatal(err)
		}
		put(t, s.log, 1, 1, 2, 3)
		_ = s.backend.Close() // as good as a dead disk
		_ = s.stable.Close()
		switch what {
		case "delete":
			err = s.log.DeleteRange(1, 2)
		case "vote":
			err = s.stable.Set([]byte("LastVoteCand"), []byte("n1"))
		case "term":
			err = s.stable.SetUint64(keyCurrentTerm, 3)
		}
		if len(fails) != 1 || !strings.Contains(fails[0].Error(), what) {
			t.Errorf("%s: reported %v", what, fails)
		}
		// Raft panics over a term or vote that is not stored; the server is cut
		// off by then, and the reason stands in the report.
		if (err != nil) != (what == "delete") {
			t.Errorf("%s: Raft was told %v", what, err)
		}
		_ = s.close()
	}
}
