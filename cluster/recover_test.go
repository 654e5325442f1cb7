package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
	"github.com/coordd/coord/zxid"
)

// lostQuorum is a world whose n1 and n2 have gone for good, with a session, its
// ephemeral and a znode in what n3 has.
func lostQuorum(w *world) (last zxid.ID, holder session.ID) {
	w.t.Helper()
	w.start()
	w.awaitFormed()
	c := w.open("n3", 10*time.Second)
	for _, in := range []mailbox{c.send(createOp("/a")), c.send(ephemeralOp("/lock"))} {
		if r := in.wait(w.t, 10*time.Second); r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
	w.converged()
	last = w.node("n3").Machine().Zxid()
	w.shutdown("n1", "n2", "n3")
	return last, c.id
}

func (w *world) recover(name string) *Recovered {
	w.t.Helper()
	r, err := Recover(w.config(w.hosts[name]))
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func TestRecoveredServerServesAloneAndTheOthersJoinAsNew(t *testing.T) {
	for _, kind := range []string{"wal", "boltdb"} {
		t.Run(kind, func(t *testing.T) {
			inFakeTime(t, 3, func(c *Config) { c.LogStore = kind }, func(w *world) {
				last, holder := lostQuorum(w)
				old := clusterOf(t, w.hosts["n3"].dir)
				done := w.recover("n3")
				if done.ClusterID == old || done.Zxid.Epoch() <= last.Epoch() || done.Sessions != 1 || len(done.Members) != 3 {
					t.Errorf("recovered from %s, cluster %s, as %+v", last, old, done)
				}
				w.start("n3")
				w.eventually(20*time.Second, "n3 leads alone", func() bool {
					st := w.node("n3").Status()
					return st.Leading && st.Formed && st.ClusterID == done.ClusterID
				})
				if r, err := w.create("n3", "/after"); err != nil || r.Zxid <= done.Zxid || r.Zxid.Epoch() <= last.Epoch() {
					t.Errorf("the first write: %+v, %v", r, err)
				}
				if !w.exists("n3", "/a") || w.exists("n3", "/lock") {
					t.Error("a write is lost, or the lock of a session that ended is held")
				}
				w.node("n3").Machine().View(func(v *fsm.View) {
					if v.ClusterID != done.ClusterID {
						t.Errorf("the state is of cluster %s", v.ClusterID)
					}
					if e, ok := v.Sessions.EndedSession(holder); !ok || e.Reason != session.Restored {
						t.Errorf("the session ended as %+v, %v", e, ok)
					}
				})

				w.start("n1") // with its old data: it has no say, and gets none
				time.Sleep(30 * time.Second)
				if st := w.node("n3").Status(); !st.Leading || w.node("n1").ClusterID() != old {
					t.Errorf("n3 leads: %v, n1 is of cluster %s", st.Leading, w.node("n1").ClusterID())
				}
				w.shutdown("n1")
				w.wipe("n1")
				w.wipe("n2")
				w.start("n1", "n2")
				w.eventually(time.Minute, "all vote", func() bool { return len(w.node("n3").voters()) == 3 })
				w.converged()
				if !w.exists("n1", "/after") {
					t.Error("n1 has not what was written before it joined")
				}
			})
		})
	}
}

// clusterOf reads the id of the cluster that a directory belongs to.
func clusterOf(t *testing.T, dir string) string {
	t.Helper()
	id, err := identityOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	return id.Cluster
}

// A recovery that ends behind any of its steps, or in the middle of the change of
// the cluster's id, keeps the server from starting and can be run again.
func TestRecoveryCutShortIsFinishedByTheNextOne(t *testing.T) {
	steps := len((&recoveryRun{}).steps())
	for _, kind := range []logStoreKind{logStoreWAL, logStoreBoltDB} {
		inFakeTime(t, 1, func(c *Config) { c.LogStore = string(kind) }, func(w *world) {
			w.start()
			w.awaitFormed()
			for _, p := range []string{"/a", "/b"} {
				if _, err := w.create("n1", p); err != nil {
					t.Fatal(err)
				}
			}
			last := w.node("n1").Machine().Zxid()
			w.shutdown("n1")
			dir := w.hosts["n1"].dir
			saved := copyDir(t, dir)
			for n := range steps { // the last one is the end
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
				copyTree(t, saved, dir)
				c := w.config(w.hosts["n1"])
				half(t, &c, n)
				if _, err := Open(c); !errors.Is(err, errRecovering) {
					t.Fatalf("%s, after %d steps: the server opens its data: %v", kind, n, err)
				}
				done := w.recover("n1")
				w.start("n1")
				w.eventually(20*time.Second, "n1 leads", func() bool { return w.node("n1").Status().Leading })
				if r, err := w.create("n1", "/after"); err != nil || r.Zxid <= done.Zxid || r.Zxid.Epoch() <= last.Epoch() {
					t.Errorf("%s, after %d steps: the first write: %+v, %v", kind, n, r, err)
				}
				if !w.exists("n1", "/a") || !w.exists("n1", "/b") {
					t.Errorf("%s, after %d steps: a write is lost", kind, n)
				}
				w.shutdown("n1")
			}
		})
	}
}

// half does the first n steps of a recovery.
func half(t *testing.T, c *Config, n int) {
	t.Helper()
	s, err := openStores(storeConfig{
		dir: c.DataDir, name: c.Name, kind: logStoreKind(c.LogStore), recovering: true, fail: func(error) {}, log: newRaftLogger(testLog()),
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRecoveryRun(s, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range r.steps()[:n] {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

func TestRunningServerIsNotRecovered(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.config(w.hosts["n1"])
		if _, err := Recover(c); !errors.Is(err, errDirInUse) {
			t.Errorf("recover: %v", err)
		}
		if _, err := OpenDisk(context.Background(), c.DataDir, ""); !errors.Is(err, errDirInUse) {
			t.Errorf("look into it: %v", err)
		}
	})
}

// Looking into a directory shows all there is and changes no byte of it.
func TestLookingIntoADirectoryChangesNothing(t *testing.T) {
	for _, kind := range []string{"wal", "boltdb"} {
		inFakeTime(t, 1, func(c *Config) { c.LogStore = kind }, func(w *world) {
			w.start()
			w.awaitFormed()
			if _, err := w.create("n1", "/a"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.node("n1").Snapshot(); err != nil {
				t.Fatal(err)
			}
			r, err := w.create("n1", "/b")
			if err != nil {
				t.Fatal(err)
			}
			digest, _, _ := w.node("n1").Machine().Digest()
			w.shutdown("n1")
			dir := w.hosts["n1"].dir
			before := contentOf(t, dir)

			d, err := OpenDisk(context.Background(), dir, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			s, err := d.Summary()
			if err != nil {
				t.Fatal(err)
			}
			if s.Zxid < r.Zxid || s.Znodes != 6 || len(s.Snapshots) == 0 || len(s.Members) != 1 || s.Term == 0 || s.LogStore != kind {
				t.Errorf("%s: %+v", kind, s)
			}
			if s.Zxid == r.Zxid && s.Digest != digest {
				t.Errorf("%s: digest %016x, the server had %016x", kind, s.Digest, digest)
			}
			var commands, entries int
			err = d.Entries(s.First, s.Last, func(e *DiskEntry) error {
				entries++
				commands += len(e.Commands)
				return nil
			})
			if err != nil || entries != int(s.Last-s.First+1) || commands == 0 {
				t.Errorf("%s: %d entries with %d commands, %v", kind, entries, commands, err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
			if after := contentOf(t, dir); !sameContent(before, after) {
				t.Errorf("%s: the directory was changed", kind)
			}
		})
	}
}

func contentOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameContent(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for path, text := range a {
		if other, ok := b[path]; !ok || other != text {
			return false
		}
	}
	return true
}

func TestEpochAtIsSecondsSince2024(t *testing.T) {
	for at, want := range map[time.Time]uint32{
		epochZero.Add(-time.Hour): 1, epochZero.Add(5 * time.Second): 5, epochZero.Add(1 << 31 * time.Second): 1<<31 - 1,
	} {
		if got := EpochAt(at); got != want {
			t.Errorf("%s: %d, want %d", at, got, want)
		}
	}
}
