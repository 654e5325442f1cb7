package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// rawLog opens the log of a directory below everything that looks after it.
func rawLog(t *testing.T, c *Config, f func(b logBackend, last uint64)) {
	t.Helper()
	s, err := openStores(storeConfig{
		dir: c.DataDir, name: c.Name, kind: logStoreKind(c.LogStore), recovering: true, fail: func(error) {}, log: newRaftLogger(testLog()),
	})
	must(t, err)
	last, err := s.log.LastIndex()
	must(t, err)
	f(s.backend, last)
	must(t, s.close())
}

// spoil makes the entry at index one whose checksum is wrong, with those behind it
// as they were.
func spoil(t *testing.T, b logBackend, index, last uint64) {
	t.Helper()
	var logs []*raft.Log
	for i := index; i <= last; i++ {
		l := &raft.Log{}
		must(t, b.GetLog(i, l))
		if i == index {
			l.Data = append([]byte{}, l.Data...)
			l.Data[len(l.Data)-1]++
		}
		logs = append(logs, l)
	}
	must(t, b.DeleteRange(index, last))
	must(t, b.StoreLogs(logs))
}

// written is a world of one server that has made the znodes /a-0 to /a-9 and has
// been stopped. at is the index behind which there are all but /a-0.
func written(w *world, snapshot bool) (c Config, at uint64) {
	w.t.Helper()
	w.start()
	w.awaitFormed()
	for i := range 10 {
		if _, err := w.create("n1", fmt.Sprintf("/a-%d", i)); err != nil {
			w.t.Fatal(err)
		}
		if i == 0 {
			time.Sleep(time.Millisecond) // a write is answered before its entry is applied in whole
			at = w.node("n1").Machine().Index()
		}
		if i == 0 && snapshot {
			if _, err := w.node("n1").Snapshot(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.shutdown("n1")
	return w.config(w.hosts["n1"]), at
}

// summary looks into a directory.
func summary(t *testing.T, dir string) *DiskSummary {
	t.Helper()
	d, err := OpenDisk(context.Background(), dir, t.TempDir())
	must(t, err)
	s, err := d.Summary()
	must(t, errors.Join(err, d.Close()))
	return s
}

func isMarked(t *testing.T, dir string) bool {
	t.Helper()
	found, err := exists(filepath.Join(dir, recoveryFile))
	must(t, err)
	return found
}

// The messages about damaged files name recovery as the way out when there is no
// other: it takes what is before the damage, says what it does not have, and can be
// cut short there, too.
func TestRecoveryGoesOnWithWhatCanBeRead(t *testing.T) {
	for _, kind := range []logStoreKind{logStoreWAL, logStoreBoltDB} {
		for _, damage := range []string{"an entry", "the end"} {
			for _, cut := range []int{0, 2, 3} { // steps before the one that ends it
				t.Run(fmt.Sprintf("%s, %s, cut at %d", kind, damage, cut), func(t *testing.T) {
					inFakeTime(t, 1, func(c *Config) { c.LogStore = string(kind) }, func(w *world) {
						recoverDamaged(w, damage, cut)
					})
				})
			}
		}
	}
}

func recoverDamaged(w *world, damage string, cut int) {
	t := w.t
	c, at := written(w, false)
	old := uint64(0)
	rawLog(t, &c, func(b logBackend, last uint64) {
		old = last
		if damage == "an entry" {
			spoil(t, b, at+1, last)
		} else {
			must(t, b.DeleteRange(at+1, last))
		}
	})
	// To have looked into it, also as recovery does, makes no server start with it.
	if s := summary(t, c.DataDir); !errors.Is(s.Lost, errDamaged) || s.Index != at {
		t.Errorf("the state ends at %d, not %d: %v", s.Index, at, s.Lost)
	}
	rawLog(t, &c, func(logBackend, uint64) {})
	if damage == "the end" {
		if _, err := Open(c); !errors.Is(err, errDamaged) {
			t.Fatalf("it starts: %v", err)
		}
	}
	half(t, &c, cut)
	if _, err := Open(c); !errors.Is(err, errRecovering) {
		t.Errorf("cut short, it starts: %v", err)
	}
	done := w.recover("n1")
	if cut < 2 && (!errors.Is(done.Lost, errDamaged) || damage == "an entry" && done.Index <= old) {
		t.Errorf("recovered as %+v, the log ended at %d", done, old)
	}
	w.start("n1")
	w.eventually(20*time.Second, "n1 leads", func() bool { return w.node("n1").Status().Leading })
	if r, err := w.create("n1", "/after"); err != nil || r.Zxid <= done.Zxid {
		t.Errorf("the first write: %+v, %v", r, err)
	}
	if !w.exists("n1", "/a-0") || w.exists("n1", "/a-9") {
		t.Errorf("it is not what was before the damage, up to index %d: %+v; /a-0 is there: %v, /a-9: %v", at, done, w.exists("n1", "/a-0"), w.exists("n1", "/a-9"))
	}
}

// A start goes back to the snapshot before the newest, and so does this.
func TestRecoveryGoesBackToASnapshotThatCanBeRead(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, _ := written(w, true)
		list := summary(t, c.DataDir).Snapshots
		if len(list) != 1 {
			t.Fatalf("%+v", list)
		}
		path := filepath.Join(c.DataDir, snapshotDir, list[0].ID, "state.bin")
		b, err := os.ReadFile(path)
		must(t, err)
		b[len(b)/2]++
		must(t, os.WriteFile(path, b, fileMode))
		s := summary(t, c.DataDir)
		if s.SnapshotApplied != 0 || !errors.Is(s.Lost, errDamaged) {
			t.Errorf("%+v", s)
		}
		if done := w.recover("n1"); !errors.Is(done.Lost, errDamaged) {
			t.Errorf("recovered as %+v", done)
		}
		w.start("n1")
		w.eventually(20*time.Second, "n1 leads", func() bool { return w.node("n1").Status().Leading })
		if !w.exists("n1", "/a-0") || !w.exists("n1", "/a-9") {
			t.Error("the log has all, and all is not there")
		}
	})
}

// What cannot be recovered at all is not marked as half recovered either.
func TestRecoveryThatCannotBeginLeavesTheDirectoryAsItWas(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, at := written(w, true)
		rawLog(t, &c, func(b logBackend, _ uint64) { must(t, b.DeleteRange(1, at-1)) })
		must(t, os.RemoveAll(filepath.Join(c.DataDir, snapshotDir, summary(t, c.DataDir).Snapshots[0].ID)))
		if _, err := Recover(c); !errors.Is(err, errDiskNotWhole) {
			t.Errorf("recover: %v", err)
		}
		if isMarked(t, c.DataDir) {
			t.Error("it is marked")
		}
	})
}

// Nothing of the old cluster stays that a start could fall back to, and who has to
// be wiped is known until the end.
func TestRecoveryLeavesNoSnapshotOfTheOldClusterAndForgetsNoMember(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		if _, err := w.node("n3").Snapshot(); err != nil {
			t.Fatal(err)
		}
		w.converged()
		w.shutdown("n1", "n2", "n3")
		c := w.config(w.hosts["n3"])
		half(t, &c, len((&recoveryRun{}).steps())-1)
		if s := summary(t, c.DataDir); len(s.Members) != 3 || !s.Recovering {
			t.Errorf("half-way the members are %v, recovering %v", s.Members, s.Recovering)
		}
		done := w.recover("n3")
		if len(done.Members) != 3 {
			t.Errorf("the members were %v", done.Members)
		}
		s := summary(t, c.DataDir)
		if len(s.Snapshots) != 1 || s.Snapshots[0].Index != done.Index || len(s.Members) != 1 {
			t.Errorf("%+v, recovered as %+v", s, done)
		}
	})
}

// The data of a server that was taken out may be all that is left. Recovered, it
// starts: a start that asked for a wipe would be the end of it.
func TestRemovedServerCanBeRecovered(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, _ := written(w, false)
		must(t, os.WriteFile(filepath.Join(c.DataDir, removedFile), []byte(`{"server":"n1"}`), fileMode))
		if s := summary(t, c.DataDir); !errors.Is(s.Removed, ErrRemoved) {
			t.Errorf("it is not shown: %+v", s)
		}
		w.recover("n1")
		w.start("n1")
		w.eventually(20*time.Second, "n1 leads", func() bool { return w.node("n1").Status().Leading })
		if !w.exists("n1", "/a-9") {
			t.Error("a write is lost")
		}
	})
}

// A state that is wrong is looked into for the report of the fault, and no cluster
// is made of it.
func TestDirectoryWithAWrongStateIsLookedIntoAndNotRecovered(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, _ := written(w, false)
		must(t, markDiffers(c.DataDir, errStateDiffers))
		if s := summary(t, c.DataDir); !errors.Is(s.Differs, errStateDiffers) || s.Znodes == 0 {
			t.Errorf("%+v", s)
		}
		if _, err := Recover(c); !errors.Is(err, errStateDiffers) || isMarked(t, c.DataDir) {
			t.Errorf("recover: %v", err)
		}
		if _, err := os.Stat(filepath.Join(c.DataDir, differsFile)); errors.Is(err, fs.ErrNotExist) {
			t.Error("the mark is gone")
		}
	})
}

// An entry that cannot be read is shown as such, with all others.
func TestDamagedEntryIsShownAmongTheOthers(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, at := written(w, false)
		rawLog(t, &c, func(b logBackend, last uint64) { spoil(t, b, at+1, last) })
		d, err := OpenDisk(context.Background(), c.DataDir, t.TempDir())
		must(t, err)
		defer d.Close()
		var damaged, whole []uint64
		must(t, d.Entries(0, 1<<62, func(e *DiskEntry) error {
			if e.Damage != nil {
				damaged = append(damaged, e.Index)
			} else {
				whole = append(whole, e.Index)
			}
			return nil
		}))
		if len(damaged) != 1 || damaged[0] != at+1 || len(whole) < 10 || whole[len(whole)-1] <= at+1 {
			t.Errorf("damaged: %v, whole: %v", damaged, whole)
		}
	})
}

func TestLookIntoADirectoryThatIsInterruptedLeavesNothing(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, _ := written(w, false)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		temp := t.TempDir()
		if _, err := OpenDisk(ctx, c.DataDir, temp); !errors.Is(err, context.Canceled) {
			t.Errorf("it was not given up: %v", err)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
			t.Errorf("it leaves %v, %v", left, err)
		}
		nowhere := filepath.Join(temp, "none")
		if _, err := OpenDisk(context.Background(), c.DataDir, nowhere); err == nil || !strings.Contains(err.Error(), "room in "+nowhere) {
			t.Errorf("it does not say where it wants to write: %v", err)
		}
	})
}

// All of the log is gone, and there is a snapshot: the server that is recovered
// from that is not told of the end that it had.
func TestRecoveryWithoutAnyLogStarts(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		c, _ := written(w, true)
		rawLog(t, &c, func(b logBackend, last uint64) {
			first, err := b.FirstIndex()
			must(t, err)
			must(t, b.DeleteRange(first, last))
		})
		if done := w.recover("n1"); !errors.Is(done.Lost, errDamaged) {
			t.Errorf("recovered as %+v", done)
		}
		w.start("n1")
		w.eventually(20*time.Second, "n1 leads", func() bool { return w.node("n1").Status().Leading })
		if !w.exists("n1", "/a-0") {
			t.Error("what the snapshot has is not there")
		}
	})
}
