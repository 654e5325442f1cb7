package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// damageFile flips a bit wherever text stands in a file below dir, and says in how
// many places that was.
func damageFile(t *testing.T, dir, text string) (found int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, name := range files {
		b, err := readFront(name)
		must(t, err)
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		must(t, err)
		for at := 0; ; found++ {
			i := bytes.Index(b[at:], []byte(text))
			if i < 0 {
				break
			}
			at += i + 1
			_, err := f.WriteAt([]byte{b[at] ^ 4}, int64(at))
			must(t, err)
		}
		must(t, f.Close())
	}
	return found
}

// A follower that was away asks for an entry that the disks of the others have
// damaged since: it gets the snapshot that holds it, not the damaged bytes, and
// nobody ends for it.
func TestDamagedOldEntryIsReplacedByASnapshot(t *testing.T) {
	for _, kind := range []string{"boltdb", "wal"} {
		t.Run(kind, func(t *testing.T) {
			inFakeTime(t, 3, func(c *Config) { c.LogStore = kind }, func(w *world) { replaceDamaged(t, w, kind) })
		})
	}
}

func replaceDamaged(t *testing.T, w *world, kind string) {
	w.start()
	w.awaitFormed()
	w.converged()
	away := w.followers()[0]
	w.kill(away)
	leader := w.awaitLeader()
	var damaged uint64
	for i := range 30 {
		if _, err := w.create(leader, fmt.Sprintf("/entry-number-%02d", i)); err != nil {
			t.Fatal(err)
		}
		if i == 15 {
			time.Sleep(time.Millisecond) // a write is answered before its entry is applied in whole
			damaged = w.node(leader).Machine().Index()
		}
	}
	w.converged()
	others := []string{leader, w.followers()[0]}
	for _, name := range others {
		if _, err := w.node(name).Snapshot(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range others { // a start empties what they keep in memory of the log
		w.kill(name)
		dir := filepath.Join(w.hosts[name].dir, map[string]string{"boltdb": boltDir, "wal": walDir}[kind])
		if damageFile(t, dir, "/entry-number-15") == 0 {
			t.Fatal("the entry is not in the log: nothing is damaged")
		}
	}
	w.start(others...)
	w.awaitLeader()
	for _, name := range others {
		log := w.node(name).stores.log
		var l raft.Log
		if err := log.read(damaged, &l); !errors.Is(err, errDamaged) {
			t.Fatalf("%s reads entry %d: %v", name, damaged, err)
		}
		if !log.has(damaged - 1) {
			t.Fatalf("%s has no log from %d on: nothing would be asked for", name, damaged-1)
		}
	}
	w.start(away)
	w.converged()
	w.hosts[away].hook.mu.Lock()
	restored := w.hosts[away].hook.restored
	w.hosts[away].hook.mu.Unlock()
	if restored == 0 {
		t.Error("it got no snapshot")
	}
	for _, name := range []string{"/entry-number-14", "/entry-number-15", "/entry-number-29"} {
		if !w.exists(away, name) {
			t.Errorf("%s is not there", name)
		}
	}
	if _, err := w.create(away, "/afterwards"); err != nil {
		t.Error(err)
	}
	w.converged()
	time.Sleep(time.Second)
	for name, h := range w.hosts {
		if err := h.fatal(); err != nil {
			t.Errorf("%s ended: %v", name, err)
		}
	}
}

// Every byte of an entry in the log, with every other value that it can have, is
// found when the entry is read, or harmless. What the entry holds is all that makes
// a reader of numbers run on.
func TestNoByteOfAnEntryIsServedWrong(t *testing.T) {
	bothStores(t, func(t *testing.T, kind logStoreKind) {
		dir := t.TempDir()
		s := testStores(t, dir, kind)
		data := bytes.Repeat([]byte{0xff}, 40)
		must(t, s.log.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1, Data: data}, {Index: 3, Term: 1}}))
		s.log.cache.remove(1, 3)
		name, at := find(t, filepath.Join(dir, map[logStoreKind]string{logStoreWAL: walDir, logStoreBoltDB: boltDir}[kind]), data)
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		must(t, err)
		defer f.Close()
		around := make([]byte, len(data)+48)
		from := int64(at - 16)
		_, err = f.ReadAt(around, from)
		must(t, err)
		step, found := 1, 0
		if testing.Short() {
			step = 0x55
		}
		for i, old := range around {
			for v := 0; v < 256; v += step {
				_, err := f.WriteAt([]byte{byte(v)}, from+int64(i))
				must(t, err)
				var l raft.Log
				switch err := s.log.read(2, &l); {
				case err == nil && (l.Term != 1 || l.Type != raft.LogCommand || !bytes.Equal(l.Data, data)):
					t.Fatalf("byte %d as %#02x: served %+v", i, v, l)
				case err != nil && !errors.Is(err, errDamaged):
					t.Fatalf("byte %d as %#02x: %v", i, v, err)
				case err != nil:
					found++
				}
			}
			_, err := f.WriteAt([]byte{old}, from+int64(i))
			must(t, err)
		}
		if found < 255/step*len(data) {
			t.Errorf("%d damages were found, at least those of the data have to be", found)
		}
	})
}

// What the log says of its files is damaged so that it is no list of files any more.
func TestDamagedListOfLogFilesIsFoundAtOnce(t *testing.T) {
	p := newSpecimen(t, logStoreWAL)
	if damageFile(t, filepath.Join(p.dir, walDir), `,"BaseIndex"`) == 0 { // the quotation mark
		t.Fatal("there is no such list: nothing is damaged")
	}
	if !p.judge(t, p.dir, "the list of files") {
		t.Error("it starts with it")
	}
}

// find returns the file below dir that has the bytes, and where.
func find(t *testing.T, dir string, what []byte) (name string, at int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, name := range files {
		b, err := os.ReadFile(name)
		must(t, err)
		if at := bytes.Index(b, what); at >= 0 {
			return name, at
		}
	}
	t.Fatalf("no file in %s has it", dir)
	return "", 0
}

// Whoever reads why a server does not start with what it has left has to find its
// directory in it, and what to do.
func TestWhatIsMissingOfSnapshotsIsNamed(t *testing.T) {
	for name, keep := range map[string]int{"none is left": 0, "one that is too old is left": 1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := openStores(testStoreConfig(t, dir, logStoreBoltDB))
			must(t, err)
			p := &specimen{kind: logStoreBoltDB}
			for i := uint64(1); i <= 60; i++ {
				must(t, s.log.StoreLogs([]*raft.Log{p.entry(i)}))
			}
			writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 10, Term: 1}, "old")
			writeSnapshot(t, s.snaps, &raft.SnapshotMeta{Index: 40, Term: 1}, "new")
			must(t, s.log.DeleteRange(1, 20))
			must(t, s.close())
			snapshots, err := filepath.Glob(filepath.Join(dir, snapshotDir, "*", "state.bin"))
			must(t, err)
			slices.Sort(snapshots)
			for _, path := range snapshots[keep:] {
				must(t, os.RemoveAll(filepath.Dir(path)))
			}
			s, err = openStores(testStoreConfig(t, dir, logStoreBoltDB))
			if err == nil {
				_ = s.close()
				t.Fatal("it starts")
			}
			if !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "rejoin as new") {
				t.Errorf("neither which directory nor what to do: %v", err)
			}
		})
	}
}
