package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

func bigOp(path string, size int) znode.Op {
	op := createOp(path)
	op.Data = bytes.Repeat([]byte{7}, size)
	return op
}

// smallSnapshots makes snapshots frequent, and leaves little log behind them.
func smallSnapshots(c *Config) { c.SnapshotLogSize = 1 << 20 }

func TestSnapshotIsTakenByTheBytesOfTheLog(t *testing.T) {
	inFakeTime(t, 1, smallSnapshots, func(w *world) {
		w.start()
		w.awaitFormed()
		for i := range 200 { // many small entries are little log
			if _, err := w.create("n1", fmt.Sprintf("/small%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		if n := w.node("n1").Counters().Snapshots; n != 0 {
			t.Errorf("%d snapshots after 200 small writes", n)
		}
		for i := range 12 {
			if r := w.propose("n1", bigOp(fmt.Sprintf("/big%d", i), 100<<10)).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		w.eventually(5*time.Second, "a snapshot", func() bool { return w.node("n1").Counters().Snapshots > 0 })
		w.kill("n1")
		w.start("n1")
		w.awaitLeader()
		if !w.exists("n1", "/big11") || !w.exists("n1", "/small199") {
			t.Error("the state is lost")
		}
	})
}

func TestSnapshotOnDemandSaysHowFarItReaches(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		if _, err := w.create("n1", "/a"); err != nil {
			t.Fatal(err)
		}
		index, err := w.node("n1").Snapshot()
		if err != nil || index < w.node("n1").Machine().Index() {
			t.Errorf("Snapshot() = %d, %v; applied is %d", index, err, w.node("n1").Machine().Index())
		}
		again, err := w.node("n1").Snapshot()
		if err != nil || again < index {
			t.Errorf("a second one: %d, %v", again, err)
		}
		w.shutdown("n1")
	})
}

// F9: a follower that was cut off gets a snapshot while it serves. What entered
// there before is settled, whether it was applied in the part it never saw or
// not at all.
func TestSnapshotInstalledWhileServingSettlesWhatIsPending(t *testing.T) {
	inFakeTime(t, 3, smallSnapshots, func(w *world) {
		w.start()
		w.awaitFormed()
		f := w.followers()[0]
		c := w.open(f, time.Hour)
		gone := w.open(f, time.Hour)
		if r := c.send(createOp("/first")).wait(t, time.Second); r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, p := range w.peers {
			if p.Name != f {
				w.net.refuse(f+":7421", p.Address)
			}
		}
		lost := c.send(createOp("/never-arrived"))
		own := w.propose(f, createOp("/own"))
		orphan := gone.send(createOp("/orphan"))
		leader := w.awaitLeader()
		// Somebody else has the numbers applied in the meantime, as if the
		// follower's own copies had arrived.
		copyOf := fsm.AppendCommand(nil, &fsm.Command{
			Kind: fsm.CmdWrite, Line: c.line(), Seq: c.seq, Write: &fsm.Write{Ops: []znode.Op{createOp("/never-arrived")}},
		})
		if err := w.node(leader).reign.Load().batch.offer(w.t.Context(), [][]byte{copyOf}); err != nil {
			t.Fatal(err)
		}
		kill := newMailbox()
		w.node(leader).Propose(&fsm.Command{Kind: fsm.CmdKill, Kill: &fsm.Kill{Session: gone.id}}, kill)
		kill.wait(t, time.Second)
		for i := range 30 {
			if r := w.propose(leader, bigOp(fmt.Sprintf("/big%d", i), 100<<10)).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		w.eventually(10*time.Second, "a snapshot", func() bool { return w.node(leader).Counters().Snapshots > 0 })
		if _, err := w.node(leader).Snapshot(); err != nil {
			t.Fatal(err)
		}
		for _, p := range w.peers {
			if p.Name != f {
				w.net.admit(f+":7421", p.Address)
			}
		}
		if r := lost.wait(t, 20*time.Second); r.Err != nil || r.Status != fsm.StatusRepeat {
			t.Errorf("applied in the gap: %v %v, want the remembered result", r.Status, r.Err)
		}
		if r := own.wait(t, 20*time.Second); r.Err != nil || r.Status != fsm.StatusDone {
			t.Errorf("not applied in the gap: %v %v", r.Status, r.Err)
		}
		if r := orphan.wait(t, 20*time.Second); r.Status != fsm.StatusGone || r.Err == nil {
			t.Errorf("of a session that was killed: %v %v", r.Status, r.Err)
		}
		w.hosts[f].hook.mu.Lock()
		restored := w.hosts[f].hook.restored
		w.hosts[f].hook.mu.Unlock()
		if restored == 0 {
			t.Error("no snapshot was installed: nothing was tested")
		}
		w.converged()
	})
}

// deafTo loses the entries that go to one server, but not the heartbeats, so
// that it goes on knowing its leader and its offering goes on.
type deafTo struct{ to atomic.Value }

func (d *deafTo) beforeSend(to raft.ServerID, kind rpcKind) error {
	if kind == rpcAppend && d.to.Load() == string(to) {
		return errors.New("lost")
	}
	return nil
}

func (d *deafTo) afterAnswer(raft.ServerID, rpcKind) error { return nil }

// F9 without any broken connection: nothing but the snapshot itself tells that
// what is pending may have been done.
func TestSnapshotOverAnOpenOfferingSettlesWhatIsPending(t *testing.T) {
	deaf := &deafTo{}
	deaf.to.Store("")
	inFakeTime(t, 3, func(c *Config) {
		smallSnapshots(c)
		c.transport = deaf
	}, func(w *world) {
		w.start()
		w.awaitFormed()
		f, leader := w.followers()[0], w.leader()
		c := w.open(f, time.Hour)
		deaf.to.Store(w.node(f).ServerID())
		in := c.send(createOp("/done-in-the-gap"))
		w.eventually(time.Second, "the leader has applied it", func() bool { return w.exists(leader, "/done-in-the-gap") })
		for i := range 30 {
			if r := w.propose(leader, bigOp(fmt.Sprintf("/big%d", i), 100<<10)).wait(t, time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		w.eventually(10*time.Second, "a snapshot", func() bool { return w.node(leader).Counters().Snapshots > 0 })
		term := w.node(leader).Status().Term
		deaf.to.Store("")
		if r := in.wait(t, 20*time.Second); r.Err != nil || r.Status != fsm.StatusRepeat {
			t.Errorf("%v %v, want the remembered result", r.Status, r.Err)
		}
		if now := w.node(leader).Status().Term; now != term {
			t.Errorf("term %d after %d: there was an election", now, term)
		}
	})
}

// F15: one clock of three is a year ahead, and that server leads.
func TestClockAYearAheadDoesNotPoisonTime(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.hosts["n2"].skew = 365 * 24 * time.Hour
		w.start()
		w.awaitFormed()
		for _, leader := range []string{"n2", "n1", "n2", "n3"} {
			if _, err := w.node("n1").Transfer(w.t.Context(), leader); err != nil {
				t.Fatal(err)
			}
			w.eventually(5*time.Second, "the leader", func() bool { return w.leader() == leader })
			time.Sleep(time.Second)
			if _, err := w.create("n1", fmt.Sprintf("/at%d", time.Now().UnixNano())); err != nil {
				t.Fatal(err)
			}
			var clock int64
			w.node("n1").Machine().View(func(v *fsm.View) { clock = v.Clock })
			if off := time.Until(time.UnixMilli(clock)); off.Abs() > time.Second {
				t.Errorf("led by %s the cluster clock is %v off", leader, off)
			}
		}
	})
}

func TestClusterClockGoesOnDuringALeadership(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		clock := func() (ms int64) {
			if _, err := w.create("n1", fmt.Sprintf("/at%d", time.Now().UnixNano())); err != nil {
				t.Fatal(err)
			}
			w.node("n1").Machine().View(func(v *fsm.View) { ms = v.Clock })
			return ms
		}
		before := clock()
		time.Sleep(time.Minute)
		if d := clock() - before; d < 59_900 || d > 60_300 {
			t.Errorf("in a minute the cluster clock went on by %d ms", d)
		}
	})
}

func TestIdleSessionsAnswersAreTrimmed(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n2", time.Hour)
		for i := range 10 {
			c.send(createOp(fmt.Sprintf("/n%d", i))).wait(t, time.Second)
		}
		unacked := func() (n int) {
			w.node("n1").Machine().View(func(v *fsm.View) { n, _ = v.Sessions.Get(c.id).Line.Unacked() })
			return n
		}
		if unacked() != 10 {
			t.Fatalf("%d answers are kept, want 10", unacked())
		}
		w.node("n2").Acknowledge(c.id, c.seq)
		w.eventually(5*time.Second, "they are dropped", func() bool { return unacked() == 0 })
	})
}

// F23: a server whose disk fails is cut off, and the others elect.
func TestServerWhoseDiskFailsIsCutOff(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		bad := w.leader()
		w.node(bad).fatal(errors.New("the disk failed"))
		w.eventually(5*time.Second, "another leader", func() bool {
			for _, p := range w.peers {
				if n := w.node(p.Name); p.Name != bad && n.reign.Load() != nil {
					return true
				}
			}
			return false
		})
		h := w.hosts[bad]
		h.mu.Lock()
		fatals := len(h.fatals)
		h.mu.Unlock()
		if fatals != 1 {
			t.Errorf("Fatal was called %d times", fatals)
		}
		if h.node.Status().Ready {
			t.Error("it says that it is ready")
		}
		if err := <-h.done; err == nil {
			t.Error("Run ended without saying why")
		}
		h.node = nil
	})
}

// hangingBackend is a log whose appends hang while it is told so.
type hangingBackend struct {
	logBackend
	hang atomic.Bool
}

func (b *hangingBackend) StoreLogs(l []*raft.Log) error {
	for b.hang.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	return b.logBackend.StoreLogs(l)
}

// F23: a leader whose write hangs cannot step down, because the write holds
// Raft's only loop, and its heartbeats go on. Only a cut helps.
func TestLeaderWhoseDiskHangsIsCutOffAndReplaced(t *testing.T) {
	tune := func(c *Config) { c.WriteDeadline = 2 * time.Second }
	inFakeTime(t, 3, tune, func(w *world) {
		backends := map[string]*hangingBackend{}
		w.opened = func(h *host) {
			b := &hangingBackend{logBackend: h.node.stores.log.backend}
			h.node.stores.log.backend = b
			backends[h.peer.Name] = b
		}
		w.start()
		w.awaitFormed()
		old, other := w.leader(), w.followers()[0]
		c := w.open(other, time.Minute)
		backends[old].hang.Store(true)
		start := time.Now()
		in := c.send(createOp("/while-it-hangs"))
		r := in.wait(t, 10*time.Second)
		if r.Err != nil {
			t.Errorf("the write: %v", r.Err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 4*time.Second {
			t.Errorf("the write took %v, want the deadline of 2 s and an election", took)
		}
		h := w.hosts[old]
		h.mu.Lock()
		fatals := append([]error(nil), h.fatals...)
		h.mu.Unlock()
		if len(fatals) != 1 || !errors.Is(fatals[0], errDiskStalled) {
			t.Errorf("Fatal was called with %v", fatals)
		}
		if err := <-h.done; err == nil {
			t.Error("Run ended without saying why")
		}
		h.node = nil
		backends[old].hang.Store(false) // lets the goroutines of the test end
		time.Sleep(time.Second)
	})
}

func TestNodeThatNeverRanGivesItsDirectoryBack(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		h := w.hosts["n1"]
		n, err := Open(w.config(h))
		if err != nil {
			t.Fatal(err)
		}
		if s := n.Status(); s.Ready || s.Leader != "" {
			t.Errorf("before it runs: %+v", s)
		}
		if _, err := n.Snapshot(); !errors.Is(err, ErrStopped) {
			t.Errorf("Snapshot: %v", err)
		}
		if _, err := n.Transfer(w.t.Context(), ""); !errors.Is(err, ErrNotLeader) {
			t.Errorf("Transfer: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		w.start()
		w.awaitFormed()
	})
}
