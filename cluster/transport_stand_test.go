package cluster

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A leader goes on sending heartbeats to whom it has told to take over. If one of
// them came in while the new term is written, the candidate would know a leader for
// ever, and refuse its vote to all others.
func TestCandidateAfterATransferKnowsNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		defer c.stop()
		l := c.leader(nil)
		f := c.others(l)[0]
		c.apply(l, "a")
		c.wait("the follower to know its leader", func() bool {
			addr, _ := f.raft.LeaderWithID()
			return addr != "" && f.raft.State() == raft.Follower && len(f.fsm.list()) == 1
		})
		var writing atomic.Bool
		f.back.slowTerm = func() { // several heartbeats long
			writing.Store(true)
			time.Sleep(time.Second)
			writing.Store(false)
		}
		var resp raft.TimeoutNowResponse
		if err := l.tr.TimeoutNow(raft.ServerID(f.id), raft.ServerAddress(f.id), &raft.TimeoutNowRequest{RPCHeader: l.tr.inbox.ownHeader()}, &resp); err != nil {
			t.Fatal(err)
		}
		c.wait("the new term to be written", writing.Load)
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if addr, _ := f.raft.LeaderWithID(); addr != "" && f.raft.State() == raft.Candidate {
				t.Fatalf("a candidate takes %s for the leader", addr)
			}
		}
	})
}
