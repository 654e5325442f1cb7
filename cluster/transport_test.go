package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

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
