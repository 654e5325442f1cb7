package cluster

import (
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

func TestEmptyContainersAndOldTTLNodesAreReaped(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		container, child, ttl := createOp("/c"), createOp("/c/child"), createOp("/ttl")
		container.Node = znode.Container
		ttl.Node, ttl.TTL = znode.TTL, 2*time.Second
		for _, op := range []znode.Op{container, child, ttl, {Kind: znode.OpDelete, Path: "/c/child", Version: znode.AnyVersion}} {
			if r := w.propose("n1", op).wait(t, time.Second); r.Err != nil {
				t.Fatalf("%s: %v", op.Path, r.Err)
			}
		}
		w.eventually(10*time.Second, "both are gone everywhere", func() bool {
			for _, p := range w.peers {
				if w.exists(p.Name, "/c") || w.exists(p.Name, "/ttl") {
					return false
				}
			}
			return true
		})
	})
}

// gone waits for a node to go and returns how long after a moment that was.
func (w *world) gone(at, path string, since time.Time) time.Duration {
	w.t.Helper()
	for w.exists(at, path) {
		if time.Since(since) > time.Hour {
			w.t.Fatalf("%s is still there", path)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return time.Since(since)
}

// reaperSlack is how late the reaper may be in a cluster that works.
const reaperSlack = 250 * time.Millisecond

// TestNodesGoSoonAfterTheirTime, and never before it: somebody may wait for them.
func TestNodesGoSoonAfterTheirTime(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, ttl := range []time.Duration{time.Millisecond, 70 * time.Millisecond, time.Second, 10*time.Second + 30*time.Millisecond} {
			op := createOp("/ttl")
			op.Node, op.TTL = znode.TTL, ttl
			asked := time.Now()
			if r := w.propose("n2", op).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
			late := w.gone("n1", "/ttl", time.Now()) - ttl
			if took := time.Since(asked); took < ttl || late > reaperSlack {
				t.Errorf("TTL %v: gone after %v, %v late", ttl, took, late)
			}
		}
	})
}

// TestNodeLingersForItsTime behind a session that expired.
func TestNodeLingersForItsTime(t *testing.T) {
	const linger = 3 * time.Second
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n1", 4*time.Second)
		op := ephemeralOp("/held")
		op.Linger = linger
		if r := c.send(op).wait(t, time.Second); r.Err != nil {
			t.Fatal(r.Err)
		}
		stat := func() (s znode.Stat) {
			w.node("n1").Machine().View(func(v *fsm.View) { s, _ = v.Tree.Exists("/held") })
			return s
		}
		w.eventually(time.Minute, "the session expires", func() bool { return stat().Kind == znode.TTL })
		left := time.Now()
		if took := w.gone("n1", "/held", left); took < linger-reapTick || took > linger+reaperSlack {
			t.Errorf("it stayed for %v, want %v", took, linger)
		}
	})
}

// TestReaperWithNothingToDoWritesNothing, although there are nodes whose time
// will come.
func TestReaperWithNothingToDoWritesNothing(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		container, child, ttl := createOp("/c"), createOp("/c/child"), createOp("/ttl")
		container.Node = znode.Container
		ttl.Node, ttl.TTL = znode.TTL, time.Hour
		for _, op := range []znode.Op{container, child, ttl} {
			if r := w.propose("n1", op).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		index := func() (i uint64) {
			w.node("n1").Machine().View(func(v *fsm.View) { i = v.Index })
			return i
		}
		before := index()
		time.Sleep(5 * time.Minute)
		if n := index() - before; n != 0 {
			t.Errorf("%d entries in five minutes of rest", n)
		}
	})
}
