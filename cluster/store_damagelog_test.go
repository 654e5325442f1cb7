package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
		b, err := os.ReadFile(name)
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
