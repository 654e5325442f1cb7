package cluster

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// snapshotOf takes a snapshot at n and returns it as a request and its bytes.
func (c *testCluster) snapshotOf(n *testNode) (raft.InstallSnapshotRequest, []byte) {
	c.t.Helper()
	if err := n.raft.Snapshot().Error(); err != nil {
		c.t.Fatal(err)
	}
	list, err := n.snaps.List()
	if err != nil {
		c.t.Fatal(err)
	}
	meta, r, err := n.snaps.Open(list[0].ID)
	if err != nil {
		c.t.Fatal(err)
	}
	body, err := io.ReadAll(r)
	if err != nil {
		c.t.Fatal(err)
	}
	return raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: 3, ID: []byte(n.id), Addr: []byte(n.id)},
		SnapshotVersion: meta.Version, Term: n.raft.CurrentTerm(),
		LastLogIndex: meta.Index, LastLogTerm: meta.Term, Size: int64(len(body)),
		Configuration: raft.EncodeConfiguration(meta.Configuration), ConfigurationIndex: meta.ConfigurationIndex,
	}, body
}

// A duplicate of an earlier snapshot of the same leader comes late: after the
// follower has acknowledged entries behind it.
func TestLateSnapshotDoesNotDeleteAcknowledgedEntries(t *testing.T) {
	for _, installed := range []bool{false, true} { // false: the log still has the snapshot's end; true: it begins behind it
		t.Run(fmt.Sprintf("installed=%v", installed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lateSnapshot(t, installed) })
		})
	}
}

func lateSnapshot(t *testing.T, installed bool) {
	c := newTestCluster(t, 3, testOptions{trailing: 1})
	defer c.stop()
	l := c.leader(nil)
	f, third := c.others(l)[0], c.others(l)[1]
	if installed {
		c.unplug(f)
	}
	for i := range 10 {
		c.apply(l, fmt.Sprintf("a%d", i))
	}
	req, body := c.snapshotOf(l)
	if installed {
		c.plug(f)
	}
	c.wait("the follower to have ten commands", func() bool { return len(f.fsm.list()) == 10 })
	if first, _ := f.log.FirstIndex(); installed && first != 0 {
		t.Fatalf("the follower's log begins at %d: it got entries, not the snapshot", first)
	}
	c.isolate(third)
	for i := range 10 {
		c.apply(l, fmt.Sprintf("acked%d", i))
	}
	c.wait("the follower to apply", func() bool { return len(f.fsm.list()) == 20 })
	last, _ := f.log.LastIndex()

	var resp raft.InstallSnapshotResponse
	err := l.tr.InstallSnapshot(raft.ServerID(f.id), raft.ServerAddress(f.id), &req, &resp, bytes.NewReader(body))
	if err != nil || !resp.Success {
		t.Errorf("the late snapshot was answered %+v, %v; want success without effect", resp, err)
	}
	if now, _ := f.log.LastIndex(); now != last || len(f.fsm.list()) != 20 {
		t.Errorf("the follower had log up to %d and 20 commands, and now %d and %d", last, now, len(f.fsm.list()))
	}
	// A leader that has lost count sends entries from before the snapshot.
	early := raft.AppendEntriesRequest{
		RPCHeader: req.RPCHeader, Term: req.Term, PrevLogEntry: 5, PrevLogTerm: req.LastLogTerm,
		Entries: []*raft.Log{{Index: 6, Term: req.LastLogTerm, Data: []byte("a3")}},
	}
	var appended raft.AppendEntriesResponse
	err = l.tr.AppendEntries(raft.ServerID(f.id), raft.ServerAddress(f.id), &early, &appended)
	if err != nil || !appended.Success {
		t.Errorf("entries from before the snapshot were answered %+v, %v; want success", appended, err)
	}
	old := req
	old.Term--
	err = l.tr.InstallSnapshot(raft.ServerID(f.id), raft.ServerAddress(f.id), &old, &resp, bytes.NewReader(body))
	if err != nil || resp.Success || resp.Term != req.Term {
		t.Errorf("a late snapshot of an older term was answered %+v, %v; want no success and term %d", resp, err, req.Term)
	}
}

// The look at the log when a snapshot comes in is not enough: the entries may be
// stored while it waits for Raft. The look at its first byte is the one that
// counts.
func TestSnapshotIsRefusedAtItsFirstByteToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hold atomic.Pointer[testNode] // gets no entries
		fault := lossy{
			before: func(to raft.ServerID, k rpcKind) error {
				if n := hold.Load(); n != nil && k == rpcAppend && to == raft.ServerID(n.id) {
					return errRefused
				}
				return nil
			},
			after: func(raft.ServerID, rpcKind) error { return nil },
		}
		c := newTestCluster(t, 3, testOptions{faults: func(*testNode) transportFaults { return fault }})
		defer c.stop()
		l := c.leader(nil)
		f, third := c.others(l)[0], c.others(l)[1]
		hold.Store(f)
		for i := range 10 {
			c.apply(l, fmt.Sprintf("a%d", i))
		}
		req, body := c.snapshotOf(l)
		release := make(chan struct{})
		f.back.slow = func([]*raft.Log) { <-release } // holds Raft's loop at f in an append of all of them
		time.Sleep(10 * time.Second)                  // until the leader's replicator has in view what it will send
		hold.Store(nil)                               // and all entries come in one message
		time.Sleep(10 * time.Second)
		c.isolate(third)
		answered := make(chan error, 1)
		go func() {
			var resp raft.InstallSnapshotResponse
			err := l.tr.InstallSnapshot(raft.ServerID(f.id), raft.ServerAddress(f.id), &req, &resp, bytes.NewReader(body))
			if err == nil && resp.Success {
				err = fmt.Errorf("it was installed: %+v", resp)
			}
			answered <- err
		}()
		time.Sleep(time.Second) // it has passed the first look and waits for Raft
		close(release)
		if err := <-answered; err == nil || !strings.Contains(err.Error(), errSnapshotCovered.Error()) {
			t.Errorf("snapshot that was overtaken by its entries: %v", err)
		}
		if last, _ := f.log.LastIndex(); last < req.LastLogIndex {
			t.Errorf("the follower's log ends at %d, it had %d", last, req.LastLogIndex)
		}
		c.apply(l, "after")
		c.wait("the follower to go on", func() bool { return len(f.fsm.list()) == 11 })
	})
}

// A sender that stops in the middle of a snapshot must not hold up votes.
func TestFrozenSnapshotSenderDoesNotHoldUpTheFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		defer c.stop()
		l := c.leader(nil)
		f := c.others(l)[0]
		c.apply(l, "a")
		c.wait("the follower to apply", func() bool { return len(f.fsm.list()) == 1 })
		req, _ := c.snapshotOf(l)
		req.LastLogIndex, req.Size = 1000, 1<<20
		never, w := io.Pipe()
		sent := make(chan error, 1)
		go func() {
			var resp raft.InstallSnapshotResponse
			sent <- l.tr.InstallSnapshot(raft.ServerID(f.id), raft.ServerAddress(f.id), &req, &resp, never)
		}()
		time.Sleep(100 * time.Millisecond)
		c.isolate(l) // and now there is nobody but f and the third to elect
		start := time.Now()
		c.leader(l)
		if took := time.Since(start); took > snapshotStall+2*time.Second {
			t.Errorf("it took %v to elect", took)
		}
		_ = w.Close()
		<-sent
	})
}

// The first entry behind an installed snapshot turns out to be dead. Without the
// snapshot's end at hand the follower would refuse the leader for ever.
func TestFollowerGoesOnWhenTheEntryBehindItsSnapshotIsReplaced(t *testing.T) {
	snap := logPosition{90, 3}
	b := &memBackend{InmemStore: raft.NewInmemStore()}
	s, err := newLogStore(b, newDiskWatch(0, nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.StoreLogs([]*raft.Log{{Index: 91, Term: 4}}); err != nil {
		t.Fatal(err)
	}
	s.setSnapshot(snap)
	var l raft.Log
	if err := s.GetLog(90, &l); err != nil || l.Term != 3 || l.Index != 90 {
		t.Errorf("the entry before the log is %+v, %v; want the end of the snapshot", l, err)
	}
	if err := s.GetLog(89, &l); !isNotFound(err) {
		t.Errorf("an entry inside of the snapshot: %v", err)
	}
	if held, err := s.holds(90, 3); held || err != nil {
		t.Error("the log claims to hold an entry of the snapshot")
	}
	for _, tc := range []struct {
		prev, term uint64
		entries    int
		wantPrev   uint64
		wantCount  int
	}{
		{80, 1, 5, 90, 0},  // all in the snapshot
		{80, 1, 15, 90, 5}, // half of them
		{90, 3, 5, 90, 5},
		{95, 5, 5, 95, 5},
		{0, 0, 100, 90, 10},
	} {
		req := raft.AppendEntriesRequest{PrevLogEntry: tc.prev, PrevLogTerm: tc.term, LeaderCommitIndex: 1}
		for i := range tc.entries {
			req.Entries = append(req.Entries, &raft.Log{Index: tc.prev + 1 + uint64(i)})
		}
		skipCovered(&req, snap)
		if req.PrevLogEntry != tc.wantPrev || len(req.Entries) != tc.wantCount {
			t.Errorf("%+v: begins behind %d with %d entries", tc, req.PrevLogEntry, len(req.Entries))
		}
		if tc.prev < 90 && req.PrevLogTerm != 3 {
			t.Errorf("%+v: previous term %d, want that of the snapshot", tc, req.PrevLogTerm)
		}
	}
}

// The same with servers: f has a snapshot and one entry behind it, which only
// the old leader has too.
func TestFollowerGivesUpADeadEntryBehindItsSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 5, testOptions{trailing: 1})
		defer c.stop()
		l := c.leader(nil)
		f, rest := c.others(l)[0], c.others(l)[1:]
		c.unplug(f)
		for i := range 10 {
			c.apply(l, fmt.Sprintf("a%d", i))
		}
		c.snapshotOf(l)
		c.plug(f)
		c.wait("the follower to install the snapshot", func() bool { return len(f.fsm.list()) == 10 })
		time.Sleep(time.Second)
		for _, r := range rest {
			c.mem.refuse(l.host, r.host)
			c.mem.refuse(f.host, r.host)
		}
		l.raft.Apply([]byte("dead"), 0)
		c.wait("the dead entry to reach the follower", func() bool { last, _ := f.log.LastIndex(); return last == 13 })
		c.mem.refuse(l.host, f.host)
		if first, _ := f.log.FirstIndex(); first != 13 {
			t.Fatalf("the follower's log begins at %d: not the schedule", first)
		}
		var next *testNode
		c.wait("the rest to elect", func() bool {
			for _, r := range rest {
				if r.raft.State() == raft.Leader {
					next = r
				}
			}
			return next != nil
		})
		c.apply(next, "alive")
		for _, r := range rest {
			c.mem.admit(f.host, r.host)
		}
		c.wait("the follower to catch up", func() bool { return slices.Equal(f.fsm.list(), next.fsm.list()) })
	})
}

// A server whose log has a longer dead end than the snapshot it gets cannot go
// on without a restart, and says so.
func TestSnapshotOverALongerDeadLogAsksForARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{trailing: 1})
		defer c.stop()
		old := c.leader(nil)
		c.apply(old, "a")
		c.isolate(old)
		for i := range 40 { // more than the others will have
			old.raft.Apply([]byte(fmt.Sprintf("dead%d", i)), 0)
			if i == 0 {
				synctest.Wait()
			}
		}
		next := c.leader(old)
		for i := range 5 {
			c.apply(next, fmt.Sprintf("b%d", i))
		}
		dead, _ := old.log.LastIndex()
		if last, _ := next.log.LastIndex(); dead <= last {
			t.Fatalf("the dead log ends at %d, the true one at %d: not the schedule", dead, last)
		}
		c.snapshotOf(next)
		c.rejoin(old)
		select {
		case err := <-old.fails:
			if !strings.Contains(err.Error(), errLogReplaced.Error()) {
				t.Errorf("failed with %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("nothing was said")
		}
	})
}
