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
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var (
	damageSeed  = flag.Uint64("damage-seed", 0, "seed of the tests of damaged files; 0: a new one")
	damageCount = flag.Int("damage", 200, "how many bytes of each file are damaged, one at a time")
)

// specimen is a data directory as a killed server leaves it: acknowledged
// entries, a snapshot in front of them, a vote.
type specimen struct {
	kind        logStoreKind
	dir         string
	first, last uint64
	state       string
}

func newSpecimen(t *testing.T, kind logStoreKind) *specimen {
	t.Helper()
	p := &specimen{kind: kind, dir: t.TempDir(), first: 21, last: 90, state: strings.Repeat("the state ", 400)}
	s, err := openStores(testStoreConfig(t, p.dir, kind))
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= p.last; i += 3 { // batches of three
		if err := s.log.StoreLogs([]*raft.Log{p.entry(i), p.entry(i + 1), p.entry(i + 2)}); err != nil {
			t.Fatal(err)
		}
	}
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 30, Term: 1}, "an older "+p.state)
	writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 40, Term: 1}, p.state)
	must(t, s.log.DeleteRange(1, p.first-1))
	must(t, s.stable.SetUint64(keyCurrentTerm, 7))
	must(t, s.stable.SetUint64(keyLastVoteTerm, 7))
	must(t, s.stable.Set(keyLastVoteCand, []byte("n2~0123456789abcdef")))
	must(t, s.close())
	return p
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
	var failed error
	cfg := testStoreConfig(t, dir, p.kind)
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
	if err := p.readAll(t, s, what); err != nil {
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
	seed := *damageSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-damage-seed %d", seed)
	count := *damageCount
	if testing.Short() {
		count = 5
	}
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		p := newSpecimen(t, kind)
		if err := p.outcome(t, p.undamaged(t), "undamaged"); err != nil {
			t.Fatalf("undamaged: %v", err)
		}
		for name, pattern := range p.targets() {
			t.Run(name, func(t *testing.T) {
				files, _ := filepath.Glob(filepath.Join(p.dir, pattern))
				if len(files) == 0 && name != "wal-meta" {
					t.Fatalf("no file %s", pattern)
				}
				dice := rand.New(rand.NewPCG(seed, uint64(len(name))))
				found := 0
				for i := 0; i < count && len(files) > 0; i++ {
					if p.damageOnce(t, dice, files[dice.IntN(len(files))]) {
						found++
					}
				}
				t.Logf("%d of %d were found, the others harmless", found, count)
			})
		}
	})
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
	dir, done := memoryDir(t)
	defer done()
	p.copyTo(t, dir)
	rel, _ := filepath.Rel(p.dir, file)
	target := filepath.Join(dir, rel)
	b, err := readFront(target)
	must(t, err)
	at := position(dice, b)
	old := b[at]
	switch dice.IntN(4) {
	case 0:
		b[at] ^= 1 << dice.IntN(8)
	case 1:
		b[at] = byte(dice.IntN(256))
	case 2:
		b[at] = 0
	default:
		b[at]++
	}
	what := fmt.Sprintf("%s at %d: %#02x for %#02x", rel, at, b[at], old)
	f, err := os.OpenFile(target, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(b[at:at+1], int64(at))
	must(t, errors.Join(err, f.Close()))
	return p.judge(t, dir, what)
}

// judge opens a damaged directory, in a time that a start may take.
func (p *specimen) judge(t *testing.T, dir, what string) (found bool) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- p.outcome(t, dir, what) }()
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
