package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// testLog shows what a failed test logged, if V is set in the environment.
func testLog() *slog.Logger {
	if os.Getenv("V") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// listFSM is a state machine that is the list of its commands.
type listFSM struct {
	mu   sync.Mutex
	cmds []string
	term uint64 // of the last command
	hear func(*raft.Log)
}

func (f *listFSM) Apply(l *raft.Log) any {
	f.mu.Lock()
	f.cmds = append(f.cmds, fmt.Sprintf("%d:%s", l.Index, l.Data))
	f.term = l.Term
	hear := f.hear
	f.mu.Unlock()
	if hear != nil {
		hear(l)
	}
	return nil
}

func (f *listFSM) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.cmds...)
}

func (f *listFSM) Snapshot() (raft.FSMSnapshot, error) {
	return listSnapshot(strings.Join(f.list(), "\n")), nil
}

func (f *listFSM) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cmds = nil
	if len(b) > 0 {
		f.cmds = strings.Split(string(b), "\n")
	}
	return nil
}

type listSnapshot string

func (s listSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write([]byte(s)); err != nil {
		return err
	}
	return sink.Close()
}

func (listSnapshot) Release() {}

// memBackend is a log in memory whose appends can be made slow.
type memBackend struct {
	*raft.InmemStore
	slow func([]*raft.Log) // nil: at once
}

func (b *memBackend) StoreLogs(l []*raft.Log) error {
	if b.slow != nil {
		b.slow(l)
	}
	return b.InmemStore.StoreLogs(l)
}

func (b *memBackend) Close() error { return nil }

// testNode is a Raft server over a memory network.
type testNode struct {
	id    serverID
	host  string
	net   *peerNet
	tr    *transport
	back  *memBackend
	log   *logStore
	snaps *snapshotStore
	fsm   *listFSM
	raft  *raft.Raft
	fails chan error
}

type testCluster struct {
	t     *testing.T
	mem   *memNet
	id    string // cluster id
	nodes []*testNode
}

type testOptions struct {
	withoutClamp bool
	faults       func(n *testNode) transportFaults
	trailing     uint64
}

// newTestCluster starts n servers that have one configuration.
func newTestCluster(t *testing.T, n int, opt testOptions) *testCluster {
	t.Helper()
	c := &testCluster{t: t, mem: newMemNet(), id: newClusterID()}
	var conf raft.Configuration
	for i := range n {
		id, err := newServerID(fmt.Sprintf("n%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		c.nodes = append(c.nodes, &testNode{id: id, host: id.name()})
		conf.Servers = append(conf.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	for _, node := range c.nodes {
		c.start(node, conf, opt)
	}
	return c
}

func (c *testCluster) start(n *testNode, conf raft.Configuration, opt testOptions) {
	c.t.Helper()
	n.fails = make(chan error, 8)
	n.net = newPeerNet(peerNetConfig{
		self: n.id, cluster: func() string { return c.id }, listener: c.mem.listen(n.host), dial: c.mem.dialer(n.host),
		resolve: func(id serverID) (string, error) { return id.name(), nil }, log: testLog(),
	})
	n.back = &memBackend{InmemStore: raft.NewInmemStore()}
	var err error
	if n.log, err = newLogStore(n.back, newDiskWatch(0, func(err error) { n.fails <- err })); err != nil {
		c.t.Fatal(err)
	}
	tc := transportConfig{
		net: n.net, log: newRaftLogger(testLog().With("node", n.host)), store: n.log,
		fail: func(err error) { n.fails <- err }, withoutClamp: opt.withoutClamp,
	}
	if opt.faults != nil {
		tc.faults = opt.faults(n)
	}
	n.tr = newTransport(tc)
	if n.snaps, err = openSnapshots(c.t.TempDir(), tc.log); err != nil {
		c.t.Fatal(err)
	}
	n.snaps.logBegin, n.snaps.onNew = n.log.begin, n.log.setSnapshot
	n.fsm = &listFSM{}
	cfg, err := newRaftConfig(n.id, raftTimes{}, tc.log)
	if err != nil {
		c.t.Fatal(err)
	}
	if opt.trailing > 0 {
		cfg.TrailingLogs = opt.trailing
	}
	if err := raft.BootstrapCluster(cfg, n.log, n.back.InmemStore, n.snaps, n.tr, conf); err != nil {
		c.t.Fatal(err)
	}
	if n.raft, err = raft.NewRaft(cfg, n.fsm, n.log, n.back.InmemStore, n.snaps, n.tr); err != nil {
		c.t.Fatal(err)
	}
	n.tr.setRaft(n.raft)
}

func (c *testCluster) stop() {
	for _, n := range c.nodes {
		_ = n.raft.Shutdown().Error()
	}
	for _, n := range c.nodes {
		_ = n.net.close()
	}
}

// leader waits for a leader other than not.
func (c *testCluster) leader(not *testNode) *testNode {
	c.t.Helper()
	var found *testNode
	c.wait("a leader", func() bool {
		for _, n := range c.nodes {
			if n != not && n.raft.State() == raft.Leader {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

// wait polls in fake time until ok, for at most 30 s.
func (c *testCluster) wait(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (c *testCluster) others(n *testNode) []*testNode {
	var o []*testNode
	for _, m := range c.nodes {
		if m != n {
			o = append(o, m)
		}
	}
	return o
}

// isolate cuts n from all others.
func (c *testCluster) isolate(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.cut(n.host, m.host)
	}
}

func (c *testCluster) rejoin(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.heal(n.host, m.host)
	}
}

// unplug breaks the connections of n and lets it make no new ones; plug ends
// that. Unlike with isolate nothing is under way.
func (c *testCluster) unplug(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.refuse(n.host, m.host)
	}
}

func (c *testCluster) plug(n *testNode) {
	for _, m := range c.others(n) {
		c.mem.admit(n.host, m.host)
	}
}

func (c *testCluster) apply(n *testNode, cmd string) {
	c.t.Helper()
	if err := n.raft.Apply([]byte(cmd), 0).Error(); err != nil {
		c.t.Fatalf("apply %s: %v", cmd, err)
	}
}

// returningLeader plays the schedule that made a follower apply entries that
// were never committed: a leader is cut off with entries nobody else has, the
// first write of the new leader is slow, and the old one comes back while the
// new leader's replicator still has the last index from before that write. It
// says whether the old leader's state differs from the new one's in the end.
func returningLeader(t *testing.T, withoutClamp bool) (diverged bool) {
	c := newTestCluster(t, 3, testOptions{withoutClamp: withoutClamp})
	defer c.stop()
	old := c.leader(nil)
	for i := range 5 {
		c.apply(old, fmt.Sprintf("first%d", i))
	}
	c.wait("all to have the first entries", func() bool {
		for _, n := range c.nodes {
			if len(n.fsm.list()) != 5 {
				return false
			}
		}
		return true
	})
	for _, n := range c.others(old) {
		n.back.slow = slowFirstNoop(n)
	}
	c.unplug(old)
	for i := range 5 {
		old.raft.Apply([]byte(fmt.Sprintf("dead%d", i)), 0)
	}
	next := c.leader(old)
	for i := range 8 {
		c.apply(next, fmt.Sprintf("second%d", i))
	}
	c.plug(old)
	// The old leader's state can only grow; in the end it must be the new one's.
	want := next.fsm.list()
	c.wait("the old leader to catch up", func() bool {
		got := old.fsm.list()
		if len(got) > 5 && got[5] != want[5] {
			diverged = true
		}
		return diverged || len(got) == len(want)
	})
	return diverged
}

// slowFirstNoop holds the first entry of a leadership for 700 ms.
func slowFirstNoop(n *testNode) func([]*raft.Log) {
	var held atomic.Bool
	return func(logs []*raft.Log) {
		if logs[0].Type == raft.LogNoop && n.raft.State() == raft.Leader && held.CompareAndSwap(false, true) {
			time.Sleep(700 * time.Millisecond)
		}
	}
}

func TestReturningLeaderDoesNotApplyItsDeadEntries(t *testing.T) {
	for run := range 10 {
		synctest.Test(t, func(t *testing.T) {
			if returningLeader(t, false) {
				t.Errorf("run %d: the returning leader applied entries that were never committed", run)
			}
		})
	}
}

// The schedule above does break a transport without the clamp; otherwise it
// would prove nothing.
func TestWithoutTheClampTheReturningLeaderDiverges(t *testing.T) {
	for range 20 {
		diverged := false
		synctest.Test(t, func(t *testing.T) { diverged = returningLeader(t, true) })
		if diverged {
			return
		}
	}
	t.Error("20 runs without the clamp did not diverge: the schedule is not the one it should be")
}

func TestCommitIndexIsClampedToWhatTheMessageProves(t *testing.T) {
	entries := []*raft.Log{{Index: 8, Term: 2}, {Index: 9, Term: 2}}
	for _, tc := range []struct {
		name       string
		req        raft.AppendEntriesRequest
		wantCommit uint64
		wantKind   rpcKind
	}{
		{"heartbeat", raft.AppendEntriesRequest{Term: 2}, 0, rpcHeartbeat},
		{"no entries", raft.AppendEntriesRequest{PrevLogEntry: 7, LeaderCommitIndex: 12}, 7, rpcAppend},
		{"entries", raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: entries, LeaderCommitIndex: 12}, 9, rpcAppend},
		{"commit is behind", raft.AppendEntriesRequest{PrevLogEntry: 7, Entries: entries, LeaderCommitIndex: 3}, 3, rpcAppend},
		{"from the beginning", raft.AppendEntriesRequest{Entries: entries[:1], LeaderCommitIndex: 5}, 1, rpcAppend},
	} {
		kind := (&transport{}).prepare(&tc.req)
		if kind != tc.wantKind || tc.req.LeaderCommitIndex != tc.wantCommit {
			t.Errorf("%s: kind %d, commit %d; want %d, %d", tc.name, kind, tc.req.LeaderCommitIndex, tc.wantKind, tc.wantCommit)
		}
	}
}

func TestAMessageCarriesABoundedNumberOfBytes(t *testing.T) {
	big := &raft.Log{Data: make([]byte, 6<<20)}
	huge := &raft.Log{Data: make([]byte, maxAppendBytes+1)}
	for _, tc := range []struct {
		entries []*raft.Log
		want    int
	}{
		{nil, 0},
		{[]*raft.Log{big, big}, 2},
		{[]*raft.Log{big, big, big}, 2},
		{[]*raft.Log{huge, big}, 1},
		{[]*raft.Log{big, huge}, 1},
	} {
		req := raft.AppendEntriesRequest{PrevLogEntry: 1, Entries: tc.entries, LeaderCommitIndex: 100}
		(&transport{}).prepare(&req)
		if len(req.Entries) != tc.want || req.LeaderCommitIndex != uint64(1+tc.want) {
			t.Errorf("%d entries: %d sent with commit %d", len(tc.entries), len(req.Entries), req.LeaderCommitIndex)
		}
	}
}

// A follower that was away gets all entries although one message cannot carry
// them.
func TestFollowerCatchesUpOverManyBoundedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		defer c.stop()
		l := c.leader(nil)
		f := c.others(l)[0]
		c.isolate(f)
		for i := range 10 {
			c.apply(l, fmt.Sprintf("%d%s", i, strings.Repeat("x", 5<<20)))
		}
		c.rejoin(f)
		c.wait("the follower to catch up", func() bool { return len(f.fsm.list()) == 10 })
	})
}

func TestCutSilencesALeaderWhoseDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		l := c.leader(nil)
		c.apply(l, "a")
		release := make(chan struct{})
		l.back.slow = func([]*raft.Log) { <-release }
		l.raft.Apply([]byte("hangs"), 0)
		time.Sleep(time.Minute)
		if got := c.leader(nil); got != l {
			t.Fatal("the hanging leader lost its leadership by itself: then cut is not needed")
		}
		l.tr.cut()
		start := time.Now()
		next := c.leader(l)
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("the others took %v to elect", took)
		}
		c.apply(next, "b")
		err := l.tr.AppendEntries(raft.ServerID(next.id), raft.ServerAddress(next.id), &raft.AppendEntriesRequest{Term: 1}, &raft.AppendEntriesResponse{})
		if !errors.Is(err, errCut) {
			t.Errorf("a message after the cut: %v", err)
		}
		close(release)
		c.stop()
	})
}

func TestShutdownDoesNotWaitForFrozenFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		defer c.stop()
		l := c.leader(nil)
		c.apply(l, "a")
		c.isolate(l) // its connections stay, and nothing is answered
		l.raft.Apply([]byte("b"), 0)
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		if err := l.tr.shutdown(l.raft); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// lossy loses what its function says.
type lossy struct {
	before, after func(to raft.ServerID, kind rpcKind) error
}

func (l lossy) beforeSend(to raft.ServerID, k rpcKind) error  { return l.before(to, k) }
func (l lossy) afterAnswer(to raft.ServerID, k rpcKind) error { return l.after(to, k) }

func TestFaultsCanLoseMessagesOfOneKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost, votes atomic.Int64
		fault := lossy{
			before: func(_ raft.ServerID, k rpcKind) error {
				if k == rpcVote && votes.Add(1) <= 4 {
					lost.Add(1)
					return errRefused
				}
				return nil
			},
			after: func(raft.ServerID, rpcKind) error { return nil },
		}
		c := newTestCluster(t, 3, testOptions{faults: func(*testNode) transportFaults { return fault }})
		defer c.stop()
		c.leader(nil)
		if lost.Load() != 4 {
			t.Errorf("%d votes were lost, want 4", lost.Load())
		}
	})
}

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
	if s.holds(90, 3) {
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

func TestDialToAWrongIncarnationIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 1, testOptions{})
		defer c.stop()
		n := c.nodes[0]
		other, err := newServerID("n1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = n.net.raftStream().Dial(raft.ServerAddress(other), time.Second)
		var refused *refusedError
		if !errors.As(err, &refused) || !errors.Is(refused.meaning, errWrongPeer) {
			t.Errorf("dial to another incarnation: %v", err)
		}
		if _, err := n.net.dialRPC(context.Background(), string(n.id)); err != nil {
			t.Errorf("dial to the right one: %v", err)
		}
	})
}

// The library's replicator stops to take answers after one that is no success.
// Sending must then fail. It used to wait for ever, for somebody to take the
// answer before; with it the replicator hung, and raft.Shutdown.
func TestPipelineDoesNotHangAfterABadAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 2, testOptions{})
		from, to := c.nodes[0], c.nodes[1]
		for _, n := range c.nodes {
			_ = n.raft.Shutdown().Error()
			_ = n.net.close()
		}
		for _, n := range c.nodes { // the same two servers without Raft
			n.net = newPeerNet(peerNetConfig{
				self: n.id, cluster: func() string { return c.id }, listener: c.mem.listen(n.host), dial: c.mem.dialer(n.host),
				resolve: func(id serverID) (string, error) { return id.name(), nil }, log: testLog(),
			})
			n.tr = newTransport(transportConfig{net: n.net, log: newRaftLogger(testLog()), store: n.log})
		}
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case rpc := <-to.tr.Consumer():
					rpc.Respond(&raft.AppendEntriesResponse{Term: 1}, nil) // no success
				case <-stop:
					return
				}
			}
		}()
		p, err := from.tr.AppendEntriesPipeline(raft.ServerID(to.id), raft.ServerAddress(to.id))
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-p.Consumer() }()
		err = nil
		for i := 0; err == nil && i < 10; i++ {
			_, err = p.AppendEntries(&raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1}, new(raft.AppendEntriesResponse))
		}
		if err == nil {
			t.Error("ten messages were sent after a bad answer")
		}
		_ = p.Close()
		close(stop)
		for _, n := range c.nodes {
			_ = n.tr.Close()
			_ = n.net.close()
		}
	})
}
