package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/internal/seed"
)

var (
	damageAll   = flag.Bool("damage-all", false, "damage every byte of each file, in three ways (an hour)")
	damageCount = flag.Int("damage", 200, "how many bytes of each file are damaged, one at a time")
)

// specimen is a data directory as a killed server leaves it: acknowledged
// entries, a snapshot in front of them, a vote.
type specimen struct {
	kind        logStoreKind
	segment     int // bytes of one file of the log
	dir         string
	older       string // what it was before the last entries and the last vote
	first, last uint64
	state       string
}

func newSpecimen(t *testing.T, kind logStoreKind) *specimen {
	t.Helper()
	return newSpecimenIn(t, kind, 1<<20)
}

func newSpecimenIn(t *testing.T, kind logStoreKind, segment int) *specimen {
	t.Helper()
	p := &specimen{
		kind: kind, segment: segment, dir: t.TempDir(), older: t.TempDir(), first: 21, last: 90,
		state: strings.Repeat("the state ", 400),
	}
	s := p.open(t)
	p.append(t, s, 1, 60)
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 30, Term: 1}, "an older "+p.state)
	p.vote(t, s, 6, "n3~fedcba9876543210")
	must(t, s.close())
	p.copyTo(t, p.older)
	s = p.open(t)
	p.append(t, s, 61, p.last)
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 40, Term: 1}, p.state)
	must(t, s.log.DeleteRange(1, p.first-1))
	p.vote(t, s, 7, "n2~0123456789abcdef")
	must(t, s.close())
	return p
}

func (p *specimen) config(t *testing.T, dir string) storeConfig {
	cfg := testStoreConfig(t, dir, p.kind)
	cfg.segment = p.segment
	return cfg
}

func (p *specimen) open(t *testing.T) *stores {
	t.Helper()
	s, err := openStores(p.config(t, p.dir))
	must(t, err)
	return s
}

// append stores entries in batches of three.
func (p *specimen) append(t *testing.T, s *stores, first, last uint64) {
	t.Helper()
	for i := first; i <= last; i += 3 {
		must(t, s.log.StoreLogs([]*raft.Log{p.entry(i), p.entry(i + 1), p.entry(i + 2)}))
	}
}

func (p *specimen) vote(t *testing.T, s *stores, term uint64, candidate string) {
	t.Helper()
	must(t, s.stable.SetUint64(keyCurrentTerm, term))
	must(t, s.stable.SetUint64(keyLastVoteTerm, term))
	must(t, s.stable.Set(keyLastVoteCand, []byte(candidate)))
}

// everySpecimen runs a test with each log store, and with a log in many files.
func everySpecimen(t *testing.T, test func(t *testing.T, p *specimen)) {
	bothStores(t, func(t *testing.T, kind logStoreKind) { test(t, newSpecimen(t, kind)) })
	t.Run("wal in many files", func(t *testing.T) {
		p := newSpecimenIn(t, logStoreWAL, 4<<10)
		if files, _ := filepath.Glob(filepath.Join(p.dir, walDir, "*.wal")); len(files) < 3 {
			t.Fatalf("the log has %d files", len(files))
		}
		test(t, p)
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (p *specimen) entry(i uint64) *raft.Log {
	return &raft.Log{Index: i, Term: 1 + i/50, Data: bytes.Repeat([]byte{byte(i)}, 50+int(i))}
}

// copyTo makes a copy of the directory. Files are mostly room for later writes,
// which is not copied but made again.
func (p *specimen) copyTo(t *testing.T, to string) {
	t.Helper()
	must(t, filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(p.dir, path)
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, dirMode)
		}
		return copyFront(path, target)
	}))
}

func copyFront(from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	b, err := readFront(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(to, b, fileMode); err != nil {
		return err
	}
	return os.Truncate(to, st.Size())
}

// readFront reads the part of a file that is in use.
func readFront(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return bytes.TrimRight(b, "\x00"), err
}

// position is any byte of b, and every other time one that is not 0: databases
// are mostly empty.
func position(dice *rand.Rand, b []byte) int {
	at := dice.IntN(len(b))
	if dice.IntN(2) == 0 {
		return at
	}
	for b[at] == 0 { // the last one is not
		at++
	}
	return at
}

// outcome opens a directory and looks at all of it: nil if everything that was
// acknowledged is there, and else why the server does not start. Anything else
// fails the test.
func (p *specimen) outcome(t *testing.T, dir, what string) error {
	t.Helper()
	return p.opened(t, dir, what, func(s *stores) error { return p.readAll(t, s, what) })
}

// opened reads a directory, if it opens. The error is the first that there was.
func (p *specimen) opened(t *testing.T, dir, what string, read func(s *stores) error) error {
	t.Helper()
	var failed error
	cfg := p.config(t, dir)
	cfg.fail = func(err error) { failed = errors.Join(failed, err) }
	var s *stores
	err := guarded("panic", func() (err error) {
		s, err = openStores(cfg)
		return err
	})
	if err != nil {
		if strings.HasPrefix(err.Error(), "panic") {
			t.Errorf("%s: %v", what, err)
		}
		return err
	}
	defer func() { _ = s.close() }()
	if err := read(s); err != nil {
		return err
	}
	return failed
}

// readAll reads what a start reads, and then what followers may ask for.
func (p *specimen) readAll(t *testing.T, s *stores, what string) error {
	t.Helper()
	end, err := p.restore(t, s, what)
	if err != nil {
		return err
	}
	if last, _ := s.log.LastIndex(); last < p.last {
		t.Errorf("%s: the log ends at %d without a word, %d was acknowledged", what, last, p.last)
	}
	var l raft.Log
	for i := end + 1; i <= p.last; i++ {
		if err := s.log.GetLog(i, &l); err != nil {
			return err
		}
		p.compare(t, &l, i, what)
	}
	for i := p.first; i <= end; i++ {
		if err := s.log.GetLog(i, &l); err == nil && l.Data != nil {
			p.compare(t, &l, i, what)
		}
	}
	term, err := s.stable.GetUint64(keyCurrentTerm)
	voteTerm, err2 := s.stable.GetUint64(keyLastVoteTerm)
	cand, err3 := s.stable.Get(keyLastVoteCand)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	if term != 7 || voteTerm != 7 || string(cand) != "n2~0123456789abcdef" {
		t.Errorf("%s: served term %d and vote %d for %q", what, term, voteTerm, cand)
	}
	return nil
}

func (p *specimen) compare(t *testing.T, l *raft.Log, i uint64, what string) {
	t.Helper()
	want := p.entry(i)
	if l.Index != i || l.Term != want.Term || l.Type != want.Type || !bytes.Equal(l.Data, want.Data) {
		t.Errorf("%s: served entry %d as %d of term %d with %d bytes", what, i, l.Index, l.Term, len(l.Data))
	}
}

// restore does what raft does at a start: it takes the newest snapshot that it
// can read. It returns where that ends.
func (p *specimen) restore(t *testing.T, s *stores, what string) (uint64, error) {
	t.Helper()
	list, err := s.snaps.List()
	if err != nil {
		return 0, err
	}
	var why error
	for _, m := range list {
		meta, r, err := s.snaps.Open(m.ID)
		if err != nil {
			why = err
			continue
		}
		b, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil {
			why = err
			continue
		}
		want := map[uint64]string{30: "an older " + p.state, 40: p.state}[meta.Index]
		if meta.Index != m.Index || meta.Term != 1 || string(b) != want || len(meta.Configuration.Servers) != 0 {
			t.Errorf("%s: served a snapshot of index %d with %d bytes", what, meta.Index, len(b))
		}
		return meta.Index, nil
	}
	if why == nil {
		return 0, fmt.Errorf("%w: no snapshot", errDamaged)
	}
	return 0, why
}

// targets are the files of each kind and how much of them is in use.
func (p *specimen) targets() map[string]string {
	log := filepath.Join(boltDir, boltLogFile)
	if p.kind == logStoreWAL {
		log = filepath.Join(walDir, "*.wal")
	}
	return map[string]string{
		"log":      log,
		"snapshot": filepath.Join(snapshotDir, "*", "state.bin"),
		"snapmeta": filepath.Join(snapshotDir, "*", "meta.json"),
		"snapsum":  filepath.Join(snapshotDir, "*", metaSum),
		"stable":   stableFile,
		"votes":    votesFile,
		"tail":     tailFile,
		"identity": filepath.Join(snapshotDir, identityFile),
		"wal-meta": filepath.Join(walDir, "wal-meta.db"),
	}
}

// Each byte of each file, damaged in one of several ways: the server starts with
// all that it has acknowledged, or says which file is damaged, what was expected
// and what to do.
func TestDamagedByteIsFoundOrHarmless(t *testing.T) {
	s := seed.New(t)
	everySpecimen(t, func(t *testing.T, p *specimen) {
		if err := p.outcome(t, p.undamaged(t), "undamaged"); err != nil {
			t.Fatalf("undamaged: %v", err)
		}
		p.eachTarget(t, func(t *testing.T, name string, files []string) {
			if *damageAll {
				p.damageAllOf(t, files)
				return
			}
			dice := rand.New(rand.NewPCG(s, uint64(len(name))))
			found, count := 0, damageTimes(t)
			for range count {
				if p.damageOnce(t, dice, files[dice.IntN(len(files))]) {
					found++
				}
			}
			t.Logf("%d of %d were found, the others harmless", found, count)
		})
	})
}

func damageTimes(t *testing.T) int {
	if testing.Short() {
		return 5
	}
	return *damageCount
}

// eachTarget runs a test with each kind of file that the directory has.
func (p *specimen) eachTarget(t *testing.T, test func(t *testing.T, name string, files []string)) {
	for name, pattern := range p.targets() {
		files, _ := filepath.Glob(filepath.Join(p.dir, pattern))
		files = slices.DeleteFunc(files, func(path string) bool { // the next file of the log may be empty
			b, err := readFront(path)
			must(t, err)
			return len(b) == 0
		})
		if len(files) == 0 && name == "wal-meta" && p.kind == logStoreBoltDB {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if len(files) == 0 {
				t.Fatalf("no file %s", pattern)
			}
			test(t, name, files)
		})
	}
}

// damageAllOf damages every byte of the files that is in use, in three ways each.
func (p *specimen) damageAllOf(t *testing.T, files []string) {
	for _, file := range files {
		b, err := readFront(file)
		must(t, err)
		found := 0
		for at, old := range b {
			for _, v := range []byte{old ^ 1<<(at%8), ^old, 0} {
				if v != old && p.damageByte(t, file, at, v) {
					found++
				}
			}
		}
		t.Logf("%s: %d bytes, %d damages were found, the others harmless", filepath.Base(file), len(b), found)
	}
}

// memoryDir is a directory in memory, where that is possible: fsync is not what is
// tested.
func memoryDir(t *testing.T) (dir string, done func()) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "coord-damage-test-")
	if err != nil {
		dir, err = os.MkdirTemp("", "coord-damage-test-")
	}
	must(t, err)
	return dir, func() { _ = os.RemoveAll(dir) }
}

func (p *specimen) undamaged(t *testing.T) string {
	dir := t.TempDir()
	p.copyTo(t, dir)
	return dir
}

// damageOnce changes one byte of one file of a copy and says whether it was found.
func (p *specimen) damageOnce(t *testing.T, dice *rand.Rand, file string) (found bool) {
	t.Helper()
	b, err := readFront(file)
	must(t, err)
	at := position(dice, b)
	return p.damageByte(t, file, at, damaged(dice, b[at]))
}

func damaged(dice *rand.Rand, old byte) byte {
	switch dice.IntN(4) {
	case 0:
		return old ^ 1<<dice.IntN(8)
	case 1:
		return byte(dice.IntN(256))
	case 2:
		return 0
	default:
		return old + 1
	}
}

func (p *specimen) damageByte(t *testing.T, file string, at int, v byte) (found bool) {
	t.Helper()
	what := fmt.Sprintf("%s at %d: %#02x", filepath.Base(file), at, v)
	return p.inCopy(t, file, what, func(target string) { writeBytes(t, target, at, v) })
}

// inCopy does something to a file of a copy of the directory and says whether it
// was found.
func (p *specimen) inCopy(t *testing.T, file, what string, harm func(target string)) (found bool) {
	t.Helper()
	dir, done := memoryDir(t)
	defer done()
	p.copyTo(t, dir)
	rel, _ := filepath.Rel(p.dir, file)
	harm(filepath.Join(dir, rel))
	return p.judge(t, dir, what)
}

func writeBytes(t *testing.T, path string, at int, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(b, int64(at))
	must(t, errors.Join(err, f.Close()))
}

// judge opens a damaged directory, in a time that a start may take.
func (p *specimen) judge(t *testing.T, dir, what string) (found bool) {
	t.Helper()
	return judged(t, dir, what, func() error { return p.outcome(t, dir, what) })
}

// judged says whether look has found something, in time and with a message that
// helps.
func judged(t *testing.T, dir, what string, look func() error) (found bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- look() }()
	select {
	case err := <-done:
		if err == nil {
			return false
		}
		if text := err.Error(); !strings.Contains(text, dir) || !strings.Contains(text, "rejoin as new") {
			t.Errorf("%s: the message does not say which file and what to do: %v", what, err)
		}
		return true
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: it hangs", what)
	}
	return false
}
