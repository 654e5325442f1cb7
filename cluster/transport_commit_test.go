package cluster

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// leadersCommits makes each server report what it applies to a notifier, as the
// owner of the notifier does for entries it proposed.
func leadersCommits(c *testCluster, l *testNode) *commitNotifier {
	n := newCommitNotifier(l.tr, l.id)
	var followers []raft.Server
	for _, f := range c.others(l) {
		followers = append(followers, raft.Server{ID: raft.ServerID(f.id), Address: raft.ServerAddress(f.id)})
	}
	l.fsm.mu.Lock()
	defer l.fsm.mu.Unlock()
	l.fsm.hear = func(e *raft.Log) { n.committed(e.Index, e.Term, followers) }
	return n
}

// loneWrite applies one command at the leader and returns how long it takes
// until every follower has it.
func (c *testCluster) loneWrite(l *testNode, i int) time.Duration {
	c.t.Helper()
	start := time.Now()
	c.apply(l, fmt.Sprint(i))
	c.wait("the followers", func() bool {
		for _, f := range c.others(l) {
			if len(f.fsm.list()) < i+1 {
				return false
			}
		}
		return true
	})
	return time.Since(start)
}

func TestFollowersHearOfALoneCommitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		l := c.leader(nil)
		// Without the message it takes CommitTimeout: otherwise this proves nothing.
		var slow time.Duration
		i := 0
		for range 10 {
			slow += c.loneWrite(l, i)
			time.Sleep(time.Second)
			i++
		}
		if slow < 10*20*time.Millisecond {
			t.Errorf("without the message ten writes took only %v", slow)
		}
		n := leadersCommits(c, l)
		for range 50 {
			if took := c.loneWrite(l, i); took > 10*time.Millisecond {
				t.Errorf("write %d was at the followers after %v", i, took)
			}
			time.Sleep(time.Second)
			i++
		}
		c.stop()
		n.close()
		n.close() // twice is fine
	})
}

// recordingSender answers from a script and notes what was sent.
type recordingSender struct {
	mu     sync.Mutex
	sent   []raft.AppendEntriesRequest
	answer func(n int, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error
}

func (s *recordingSender) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	s.mu.Lock()
	s.sent = append(s.sent, *req)
	n := len(s.sent)
	s.mu.Unlock()
	return s.answer(n, req, resp)
}

func (s *recordingSender) EncodePeer(_ raft.ServerID, a raft.ServerAddress) []byte { return []byte(a) }

func (s *recordingSender) indexes() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []uint64
	for _, r := range s.sent {
		all = append(all, r.LeaderCommitIndex)
	}
	return all
}

var oneFollower = []raft.Server{{ID: "n2~0000000000000002", Address: "n2~0000000000000002"}}

func TestCommitMessageHasTheTermOfItsEntryAndAFullHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &recordingSender{answer: func(_ int, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
			resp.Success, resp.LastLog, resp.Term = true, req.PrevLogEntry, req.Term
			return nil
		}}
		n := newCommitNotifier(s, "n1~0000000000000001")
		n.committed(42, 7, oneFollower)
		synctest.Wait()
		n.close()
		if len(s.sent) != 1 {
			t.Fatalf("%d messages were sent", len(s.sent))
		}
		m := s.sent[0]
		if m.Term != 7 || m.PrevLogTerm != 7 || m.PrevLogEntry != 42 || m.LeaderCommitIndex != 42 || len(m.Entries) != 0 {
			t.Errorf("message %+v", m)
		}
		if m.ProtocolVersion != 3 || string(m.ID) != "n1~0000000000000001" || string(m.Addr) != "n1~0000000000000001" {
			t.Errorf("header %+v", m.RPCHeader)
		}
	})
}

func TestCommitMessageIsRepeatedOnlyWhileTheEntryIsMissing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer func(n int, resp *raft.AppendEntriesResponse) error
		want   int
		took   time.Duration
	}{
		{"there at once", func(_ int, r *raft.AppendEntriesResponse) error { r.Success = true; return nil }, 1, 0},
		{"there at the third", func(n int, r *raft.AppendEntriesResponse) error { r.Success = n == 3; return nil }, 3, 3 * time.Millisecond},
		{"never there", func(int, *raft.AppendEntriesResponse) error { return nil }, 4, 7 * time.Millisecond},
		{"higher term", func(_ int, r *raft.AppendEntriesResponse) error { r.Term = 8; return nil }, 1, 0},
		{"refused though its log is long enough", func(_ int, r *raft.AppendEntriesResponse) error { r.LastLog = 42; return nil }, 1, 0},
		{"not reached", func(int, *raft.AppendEntriesResponse) error { return errors.New("no") }, 1, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &recordingSender{answer: func(n int, _ *raft.AppendEntriesRequest, r *raft.AppendEntriesResponse) error {
					return tc.answer(n, r)
				}}
				n := newCommitNotifier(s, "n1~0000000000000001")
				start := time.Now()
				n.committed(42, 7, oneFollower)
				n.wg.Wait()
				if len(s.sent) != tc.want || time.Since(start) != tc.took {
					t.Errorf("%d messages in %v, want %d in %v", len(s.sent), time.Since(start), tc.want, tc.took)
				}
				n.close()
			})
		})
	}
}

func TestASlowFollowerHearsOnlyOfTheNewestCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &recordingSender{answer: func(_ int, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
			<-release
			resp.Success = true
			return nil
		}}
		n := newCommitNotifier(s, "n1~0000000000000001")
		start := time.Now()
		for i := uint64(1); i <= 1000; i++ {
			n.committed(i, 7, oneFollower)
			if i == 1 {
				synctest.Wait()
			}
		}
		n.committed(999, 7, oneFollower) // late
		if time.Since(start) != 0 {
			t.Error("committed blocked")
		}
		close(release)
		n.wg.Wait()
		if got := s.indexes(); !slices.Equal(got, []uint64{1, 1000}) {
			t.Errorf("the follower heard of %v", got)
		}
		n.close()
		n.committed(2000, 7, oneFollower)
		if len(s.indexes()) != 2 {
			t.Error("something was sent after close")
		}
	})
}

// An old leader that has already heard of the next term tells of its last
// commit. The true leader of that term must not mind.
func TestCommitMessageOfAnOldLeaderDoesNotDeposeTheNewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3, testOptions{})
		defer c.stop()
		old := c.leader(nil)
		c.apply(old, "a")
		index, term := old.raft.AppliedIndex(), old.raft.CurrentTerm()
		if err := old.raft.LeadershipTransfer().Error(); err != nil {
			t.Fatal(err)
		}
		next := c.leader(old)
		c.wait("the old leader to hear of the new term", func() bool { return old.raft.CurrentTerm() > term })
		n := newCommitNotifier(old.tr, old.id)
		n.committed(index, term, []raft.Server{{ID: raft.ServerID(next.id), Address: raft.ServerAddress(next.id)}})
		n.wg.Wait()
		time.Sleep(time.Second)
		if next.raft.State() != raft.Leader || next.raft.CurrentTerm() != old.raft.CurrentTerm() {
			t.Errorf("the new leader is %v in term %d", next.raft.State(), next.raft.CurrentTerm())
		}
		// The same with the current term does depose it: this is what the rule is for.
		n.committed(index+1, old.raft.CurrentTerm(), []raft.Server{{ID: raft.ServerID(next.id), Address: raft.ServerAddress(next.id)}})
		n.wg.Wait()
		if next.raft.State() == raft.Leader {
			t.Error("a message with the term of the true leader did nothing: the test shows nothing")
		}
		n.close()
	})
}
