package cluster

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/metadb"

	"github.com/coordd/coord/internal/seed"
)

// harms are what disks, and people, do to a file beside flipping a bit of it. Each
// says what it did; nothing: it cannot be done to this file.
func (p *specimen) harms() map[string]func(t *testing.T, dice *rand.Rand, target string) string {
	return map[string]func(*testing.T, *rand.Rand, string) string{
		"two bytes": func(t *testing.T, dice *rand.Rand, target string) string {
			b, err := readFront(target)
			must(t, err)
			at, at2 := position(dice, b), position(dice, b)
			v, v2 := damaged(dice, b[at]), damaged(dice, b[at2])
			writeBytes(t, target, at, v)
			writeBytes(t, target, at2, v2)
			return fmt.Sprintf("%d: %#02x and %d: %#02x", at, v, at2, v2)
		},
		"lost sector":    sector(512, func(*rand.Rand) byte { return 0 }),
		"lost page":      sector(4096, func(*rand.Rand) byte { return 0 }),
		"foreign sector": sector(512, func(dice *rand.Rand) byte { return byte(dice.IntN(256)) }),
		"cut": func(t *testing.T, dice *rand.Rand, target string) string {
			b, err := readFront(target)
			must(t, err)
			n := dice.IntN(len(b) + 1)
			must(t, os.Truncate(target, int64(n)))
			return fmt.Sprintf("at %d", n)
		},
		"empty": func(t *testing.T, _ *rand.Rand, target string) string {
			must(t, os.Truncate(target, 0))
			return "to nothing"
		},
		"missing": func(t *testing.T, _ *rand.Rand, target string) string {
			must(t, os.Remove(target))
			return "removed"
		},
	}
}

// sector overwrites one aligned piece of a file, as far as the file goes.
func sector(size int, with func(dice *rand.Rand) byte) func(*testing.T, *rand.Rand, string) string {
	return func(t *testing.T, dice *rand.Rand, target string) string {
		b, err := readFront(target)
		must(t, err)
		at := position(dice, b) / size * size
		piece := make([]byte, size)
		for i := range piece {
			piece[i] = with(dice)
		}
		if st, err := os.Stat(target); err == nil && st.Size() < int64(at+size) {
			piece = piece[:st.Size()-int64(at)]
		}
		writeBytes(t, target, at, piece...)
		return fmt.Sprintf("%d bytes at %d", size, at)
	}
}

// What else happens to a file is found as one damaged byte is, or harmless: nothing
// that was acknowledged is missing, and no vote is forgotten, without a word.
func TestEveryHarmToAFileIsFoundOrHarmless(t *testing.T) {
	s := seed.New(t)
	times := max(1, damageTimes(t)/20)
	everySpecimen(t, func(t *testing.T, p *specimen) {
		p.eachTarget(t, func(t *testing.T, name string, files []string) {
			for harm, do := range p.harms() {
				dice := rand.New(rand.NewPCG(s, uint64(len(name)+len(harm))))
				found := 0
				for range times {
					file := files[dice.IntN(len(files))]
					what := filepath.Base(file) + ", " + harm
					if p.inCopy(t, file, what, func(target string) { what += " " + do(t, dice, target) }) {
						found++
					}
					if t.Failed() {
						t.Fatalf("it was %s", what)
					}
				}
				t.Logf("%s: %d of %d were found, the others harmless", harm, found, times)
			}
		})
	})
}

// A file that was put back from a copy, or whose last writes a disk has lost
// without a word, is found, or what counts is in another one as well.
func TestFileOfAnEarlierTimeIsFoundOrHarmless(t *testing.T) {
	everySpecimen(t, func(t *testing.T, p *specimen) {
		p.eachTarget(t, func(t *testing.T, _ string, files []string) {
			for _, file := range files {
				rel, _ := filepath.Rel(p.dir, file)
				older := filepath.Join(p.older, rel)
				if found, err := exists(older); err != nil || !found {
					continue // it is younger than that
				}
				found := p.inCopy(t, file, rel+" of an earlier time", func(target string) { must(t, copyFront(older, target)) })
				t.Logf("%s: found is %v", rel, found)
			}
		})
	})
}

// Of two snapshots one is put in the place of the other.
func TestSnapshotInThePlaceOfAnotherIsFoundOrHarmless(t *testing.T) {
	everySpecimen(t, func(t *testing.T, p *specimen) {
		dirs, _ := filepath.Glob(filepath.Join(p.dir, snapshotDir, "*-*"))
		if len(dirs) != 2 {
			t.Fatalf("snapshots: %v", dirs)
		}
		for _, name := range []string{"state.bin", metaFile, metaSum} {
			for i, dir := range dirs {
				other := filepath.Join(dirs[1-i], name)
				p.inCopy(t, filepath.Join(dir, name), fmt.Sprintf("%s of the snapshot %d for that of %d", name, 1-i, i),
					func(target string) { must(t, copyFront(other, target)) })
			}
		}
	})
}

// Who has damaged several files at once is promised less: what backed each other up
// may be gone in both. But nothing panics, hangs, or ends without a helpful message,
// and no entry is read as another one.
func TestDamageOfSeveralFilesNeitherPanicsNorHangs(t *testing.T) {
	s := seed.New(t)
	everySpecimen(t, func(t *testing.T, p *specimen) {
		dice := rand.New(rand.NewPCG(s, uint64(p.segment)))
		var all []string
		for _, pattern := range p.targets() {
			files, _ := filepath.Glob(filepath.Join(p.dir, pattern))
			all = append(all, files...)
		}
		slices.Sort(all)
		found, times := 0, damageTimes(t)/2
		for range times {
			dir, done := memoryDir(t)
			p.copyTo(t, dir)
			what := ""
			for range 2 + dice.IntN(3) {
				rel, _ := filepath.Rel(p.dir, all[dice.IntN(len(all))])
				what += rel + " " + p.harmSomehow(t, dice, filepath.Join(dir, rel)) + "; "
			}
			if judged(t, dir, what, func() error { return p.look(t, dir, what) }) {
				found++
			}
			done()
		}
		t.Logf("%d of %d were found", found, times)
	})
}

// harmSomehow does any harm to a file, unless another one has emptied it before.
func (p *specimen) harmSomehow(t *testing.T, dice *rand.Rand, target string) string {
	if b, err := readFront(target); err != nil || len(b) == 0 {
		return "is gone"
	}
	harms := p.harms()
	names := slices.Sorted(maps.Keys(harms))
	name := names[dice.IntN(len(names))]
	return name + " " + harms[name](t, dice, target)
}

// look opens a directory and reads all of it.
func (p *specimen) look(t *testing.T, dir, what string) error {
	return p.opened(t, dir, what, func(s *stores) error {
		list, err := s.snaps.List()
		if err != nil {
			return err
		}
		for _, m := range list {
			if _, r, err := s.snaps.Open(m.ID); err == nil {
				_, err = io.Copy(io.Discard, r)
				must(t, errors.Join(err, r.Close()))
			}
		}
		first, _ := s.log.FirstIndex() // both from memory: cannot fail
		last, _ := s.log.LastIndex()
		var l raft.Log
		for i := max(first, s.log.snapshot().index+1); i <= last; i++ {
			if err := s.log.GetLog(i, &l); err != nil {
				return err
			}
			p.compare(t, &l, i, what)
		}
		return nil
	})
}

// The library deletes the files of the log that are not on its list. A list that
// has gone back must not cost what was acknowledged since: a recovery may need it.
func TestListOfLogFilesThatHasGoneBackDeletesNothing(t *testing.T) {
	p := newSpecimenIn(t, logStoreWAL, 4<<10)
	list := filepath.Join(walDir, metadb.FileName)
	for what, harm := range map[string]func(target string){
		"an earlier list": func(target string) { must(t, copyFront(filepath.Join(p.older, list), target)) },
		"no list":         func(target string) { must(t, os.Remove(target)) },
	} {
		dir := t.TempDir()
		p.copyTo(t, dir)
		harm(filepath.Join(dir, list))
		before, _ := filepath.Glob(filepath.Join(dir, walDir, "*.wal"))
		err := p.outcome(t, dir, what)
		if !errors.Is(err, errListTooOld) || !strings.Contains(err.Error(), filepath.Join(dir, list)) {
			t.Fatalf("%s: %v", what, err)
		}
		_ = p.outcome(t, dir, what+", once more") // either may be: the list is brought up to date file by file
		if after, _ := filepath.Glob(filepath.Join(dir, walDir, "*.wal")); !slices.Equal(before, after) {
			t.Errorf("%s: of %v there are %v", what, before, after)
		}
	}
}

// Whatever keeps a directory from being opened, its message says where, and, if it
// is not the system that refuses something, what to do.
func TestEveryErrorOfOpeningIsExplained(t *testing.T) {
	const dir = "/var/lib/coord"
	path := func(errno syscall.Errno) error { return &os.PathError{Op: "open", Path: dir + "/x", Err: errno} }
	for _, c := range []struct {
		err    error
		advice bool
	}{
		{errors.New("nobody has thought of this"), true},
		{fmt.Errorf("%w: of votes", errDamaged), true},
		{path(syscall.EEXIST), true},
		{path(syscall.ENOENT), true},
		{asDamage(dir+"/stable.db", io.ErrUnexpectedEOF), true},
		{guarded(dir, func() error { panic("in a library") }), true},
		{path(syscall.ENOSPC), false},
		{path(syscall.EACCES), false},
		{fmt.Errorf("%w: boltdb", errWrongLogStore), false},
		{fmt.Errorf("stable.db: %w", errDiskNotWhole), false}, // says it by itself
	} {
		got := explained(dir, c.err)
		if !errors.Is(got, c.err) || !strings.Contains(got.Error(), dir) || strings.Count(got.Error(), whatToDo) != map[bool]int{true: 1}[c.advice] {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
