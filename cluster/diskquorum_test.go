package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// testDisks gives each server of a world a disk of its own.
type testDisks struct {
	mu sync.Mutex
	by map[string]*testDisk // by the name of the server
}

func newTestDisks() *testDisks { return &testDisks{by: map[string]*testDisk{}} }

func (k *testDisks) of(name string) *testDisk {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by[name] == nil {
		k.by[name] = &testDisk{size: 1000 * mib}
	}
	return k.by[name]
}

// tune gives a server its disk, with a reserve of 8 MiB and files of the log of 1 MiB.
func (k *testDisks) tune(c *Config) {
	c.DiskReserve, c.SnapshotLogSize = 8*mib, mib
	c.Faults.FreeBytes = func(dir string) (int64, error) { return k.of(filepath.Base(dir)).free(dir) }
}

// low leaves a server the whole reserve, and more than it needs for small writes.
func (k *testDisk) low() { k.leave(14 * mib) }

// full leaves a server nothing, so that its reserve is gone as well.
func (k *testDisk) full() { k.leave(0) }

func TestWritesAreRefusedWhenNoMajorityHasRoom(t *testing.T) {
	disks := newTestDisks()
	inFakeTime(t, 3, disks.tune, func(w *world) {
		w.start()
		w.awaitFormed()
		disks.of("n1").low()
		time.Sleep(2 * time.Second)
		if err := w.node("n2").Overloaded(); err != nil {
			t.Errorf("one server is short of room: %v", err)
		}
		if use := w.node("n1").DiskUse(); !use.Low || use.Spent || !w.node("n1").Status().Ready {
			t.Errorf("the server that is short of room: %+v, %v", use, w.node("n1").Status().Checks)
		}
		disks.of("n3").low()
		var full *DiskFullError
		w.eventually(4*time.Second, "all refuse", func() bool {
			return errors.Is(w.node("n1").Overloaded(), ErrDiskFull) && errors.As(w.node("n2").Overloaded(), &full)
		})
		if !strings.Contains(full.Why, "n1: 6.0 MiB free") || !strings.Contains(full.Why, "n3: ") || strings.Contains(full.Why, "n2") || full.Spent {
			t.Errorf("the reason: %q, spent %v", full.Why, full.Spent)
		}
		if _, err := w.create("n2", "/still"); err != nil {
			t.Errorf("what is submitted all the same, such as a release: %v", err)
		}
		time.Sleep(5 * time.Second)
		if errors.As(w.node("n2").Overloaded(), &full); full.For < 5*time.Second {
			t.Errorf("it has been so for %v", full.For)
		}
		disks.of("n1").leave(500 * mib)
		w.eventually(4*time.Second, "all take writes again", func() bool {
			return w.node("n1").Overloaded() == nil && w.node("n3").Overloaded() == nil
		})
	})
}

// A server that is silent does not help the one that is low: what is written while
// it is away stays for ever, if it does not come back.
func TestSilentServersAreNoRoom(t *testing.T) {
	disks := newTestDisks()
	inFakeTime(t, 3, disks.tune, func(w *world) {
		w.start()
		w.awaitFormed()
		w.kill("n3")
		time.Sleep(3 * time.Second)
		if err := w.node("n2").Overloaded(); err != nil {
			t.Errorf("nobody is short of room: %v", err)
		}
		disks.of("n1").low()
		var full *DiskFullError
		w.eventually(4*time.Second, "writes are refused", func() bool { return errors.As(w.node("n2").Overloaded(), &full) })
		if !strings.Contains(full.Why, "n3: not in contact") {
			t.Errorf("the reason: %q", full.Why)
		}
		w.start("n3")
		w.eventually(20*time.Second, "writes are taken", func() bool { return w.node("n2").Overloaded() == nil })
	})
}

func TestLeaderThatIsShortOfRoomHandsOverToOneThatIsNot(t *testing.T) {
	disks := newTestDisks()
	inFakeTime(t, 3, disks.tune, func(w *world) {
		w.start()
		w.awaitFormed()
		old := w.leader()
		other := w.followers()[0]
		disks.of(other).leave(100 * mib)
		roomiest := w.followers()[1]
		time.Sleep(2 * time.Second) // until the leader has heard of it
		disks.of(old).low()
		w.eventually(10*time.Second, "another leader", func() bool { return w.leader() == roomiest })
		for i := range 5 {
			if _, err := w.create(old, fmt.Sprintf("/a%d", i)); err != nil {
				t.Error(err)
			}
		}
		// Without anybody to hand over to it stays.
		disks.of(other).low()
		disks.of(roomiest).low()
		w.eventually(4*time.Second, "writes are refused", func() bool { return w.node(old).Overloaded() != nil })
		time.Sleep(20 * time.Second)
		if got := w.leader(); got != roomiest {
			t.Errorf("%s leads, and nobody has room", got)
		}
	})
}

// The others have room, so writes go on. The follower that has none leaves them
// out, stays, and catches up when there is room.
func TestFollowerWithoutRoomLeavesEntriesOutAndCatchesUp(t *testing.T) {
	for _, store := range []string{"wal", "boltdb"} {
		t.Run(store, func(t *testing.T) {
			disks := newTestDisks()
			tune := func(c *Config) { disks.tune(c); c.LogStore = store }
			inFakeTime(t, 3, tune, func(w *world) {
				w.start()
				w.awaitFormed()
				f := w.followers()[0]
				c := w.open(f, 4*time.Second)
				disks.of(f).full()
				w.fill(w.leader(), "/more", 40) // takes the reserve, and then there is nothing
				w.eventually(5*time.Second, "the follower is spent", func() bool { return w.node(f).DiskUse().Spent })
				w.fill(w.leader(), "/much-more", 40)
				behind := w.node(f).Machine().Index()
				if w.node(w.leader()).Machine().Index() <= behind {
					t.Error("the follower has everything: the test shows nothing")
				}
				if w.node(f).Status().Ready {
					t.Error("a server that takes no entries says it is ready")
				}
				// Its sessions live: signs of life need no room.
				for range 10 {
					time.Sleep(time.Second)
					w.node(f).Heard(c.id, c.generation)
				}
				if ended := w.hosts[w.leader()].hook.endOf(c.id); !ended.IsZero() {
					t.Error("a session at the server without room has ended")
				}
				disks.of(f).leave(500 * mib)
				w.eventually(30*time.Second, "it has caught up", func() bool {
					return w.node(f).Machine().Index() >= w.node(w.leader()).Machine().Index() && w.exists(f, "/much-more39")
				})
				for name, h := range w.hosts {
					if len(h.fatals) != 0 {
						t.Errorf("%s was cut off: %v", name, h.fatals)
					}
				}
			})
		})
	}
}

// fill makes so many znodes of 100 KiB.
func (w *world) fill(server, path string, n int) {
	w.t.Helper()
	for i := range n {
		if r := w.propose(server, bigOp(fmt.Sprint(path, i), 100<<10)).wait(w.t, 10*time.Second); r.Err != nil {
			w.t.Fatal(r.Err)
		}
	}
}

func (r *recorder) endOf(id any) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s, at := range r.ended {
		if any(s) == id {
			return at
		}
	}
	return time.Time{}
}

// Without any room nothing is written, but a new leader can still begin, signs of
// life are counted and reads answered; what waits is done when there is room.
func TestNothingIsWrittenWhileNoMajorityHasAnyRoom(t *testing.T) {
	disks := newTestDisks()
	inFakeTime(t, 3, disks.tune, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n2", 4*time.Second)
		for _, name := range []string{"n1", "n2", "n3"} {
			disks.of(name).leave(8 * mib)
		}
		w.eventually(4*time.Second, "writes are refused", func() bool { return w.node("n2").Overloaded() != nil })
		w.spend(disks, "n1", "n2", "n3")
		var full *DiskFullError
		w.eventually(5*time.Second, "nothing is written", func() bool {
			return errors.As(w.node("n2").Overloaded(), &full) && full.Spent && !w.node(w.leader()).mayPropose()
		})
		waits := w.propose("n2", createOp("/waits"))
		w.stays(c, 6*time.Second)
		select {
		case r := <-waits:
			t.Fatalf("it was written: %+v", r)
		default:
		}
		old := w.leader()
		w.kill(old)
		w.eventually(10*time.Second, "another leader", func() bool { l := w.leader(); return l != "" && l != old })
		w.start(old)
		w.awaitFormed()
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
		defer cancel()
		for _, name := range []string{"n1", "n2", "n3"} {
			if err := w.node(name).Linearize(ctx); err != nil {
				t.Errorf("a read at %s: %v", name, err)
			}
		}
		disks.of("n1").leave(500 * mib)
		disks.of("n3").leave(500 * mib)
		if old != "n2" { // else what it had taken in went with it
			if r := waits.wait(t, 10*time.Second); r.Err != nil {
				t.Errorf("what waited for room: %v", r.Err)
			}
		}
		if _, err := w.create("n3", "/goes-on"); err != nil {
			t.Error(err)
		}
	})
}

// spend takes what the reserves of servers hold, but for what a leader needs.
func (w *world) spend(disks *testDisks, names ...string) {
	w.t.Helper()
	for _, name := range names {
		d := w.node(name).disk
		d.mu.Lock()
		err := d.release(d.held.Load())
		d.mu.Unlock()
		if err != nil {
			w.t.Fatal(err)
		}
		disks.of(name).leave(d.spentMark() - 1)
	}
}

// stays keeps a session alive for d.
func (w *world) stays(c *client, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		c.host.node.Heard(c.id, c.generation)
	}
	for name, h := range w.hosts {
		if !h.hook.endOf(c.id).IsZero() {
			w.t.Errorf("%s has ended the session", name)
		}
	}
}
