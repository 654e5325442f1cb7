package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// A leader that is cut off has a new member in its log that nobody else will ever
// have. A server that was told that it is a member would keep the cluster's id, and
// later be taken for one that was removed.
func TestMembershipThatWasNeverCommittedMakesNobodyAMember(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		leader := w.leader()
		n := w.node(leader)
		r := n.reign.Load()
		for _, p := range w.peers {
			w.net.cut(w.hosts[leader].peer.Address, p.Address)
		}
		id := serverID("n4~0123456789abcdef")
		answers := make(chan error, 2)
		for range 2 { // the second one because the first had no answer yet
			go func() {
				answers <- n.admitMember(w.t.Context(), r, id, &peerpb.JoinRequest{Address: "n4:7421"})
			}()
			time.Sleep(time.Millisecond)
		}
		for range 2 {
			if err := <-answers; err == nil {
				t.Error("it was told that it is a member")
			}
		}
		if !contains(n.members(), id) {
			t.Fatal("the leader of before does not have it in its log: nothing was tried")
		}
		time.Sleep(5 * time.Second) // the others follow somebody else
		for _, p := range w.peers {
			w.net.heal(w.hosts[leader].peer.Address, p.Address)
		}
		w.eventually(10*time.Second, "nobody has it", func() bool { return !contains(n.members(), id) })
	})
}

// What was weighed in one leadership is not done in the next one, though the same
// server leads again.
func TestChangeOfAnEarlierLeadershipIsNotMade(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		leader, other := w.leader(), w.followers()[0]
		n := w.node(leader)
		old := n.reign.Load()
		n.changing <- struct{}{} // something else is being changed
		considered := false
		answer := make(chan error, 1)
		go func() {
			answer <- n.changeMembership(w.t.Context(), old, func([]raft.Server) (*change, error) {
				considered = true
				return nil, nil
			})
		}()
		for _, to := range []string{other, leader} {
			w.eventually(10*time.Second, to+" leads", func() bool {
				_, _ = w.node(w.awaitLeader()).Transfer(w.t.Context(), to)
				return w.leader() == to
			})
		}
		w.eventually(10*time.Second, "it reigns again", func() bool { r := n.reign.Load(); return r != nil && r != old })
		<-n.changing
		if err := <-answer; !errors.Is(err, errNotNow) || !errors.Is(err, errReignOver) || considered {
			t.Errorf("considered %v, %v", considered, err)
		}
	})
}

// Who has given up gets nothing done, also if his turn comes at that moment.
func TestChangeOfWhoHasGivenUpIsNotMade(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		n := w.node("n1")
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		for range 50 { // each of both may be seen first
			err := n.admitMember(ctx, n.reign.Load(), "n2~0123456789abcdef", &peerpb.JoinRequest{Address: "n2:7421"})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		if got := len(n.members()); got != 1 {
			t.Errorf("%d members", got)
		}
	})
}

// To Raft, a voter that has just died is as good a leader to come as any, as long
// as nothing is written.
func TestLeaderThatIsRemovedHandsOverToOneThatIsAlive(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		w.eventually(10*time.Second, "n5 leads", func() bool {
			_, _ = w.node(w.awaitLeader()).Transfer(w.t.Context(), "n5")
			return w.leader() == "n5"
		})
		time.Sleep(2 * time.Second)
		first := serverID(w.node("n5").members()[0].ID).name()
		w.kill(first)
		w.eventually(5*time.Second, "the leader misses it", func() bool { return !w.node("n5").inContact(w.idOf("n5", first)) })
		begun := time.Now()
		w.mustRemove("n5", "n5")
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		w.wantRemoved("n5", 15*time.Second)
	})
}

// The answer to a promotion may be lost: asked again, the leader says that the
// server has a vote already.
func TestPromotionWhoseAnswerWasLostSucceeds(t *testing.T) {
	slow := func(c *Config) {
		listing(1)(c)
		c.StableBeforeVote = time.Hour
	}
	inFakeTime(t, 2, slow, func(w *world) {
		w.start("n1")
		w.awaitLeader()
		w.start("n2")
		w.eventually(10*time.Second, "n2 keeps up", func() bool { return w.memberAt("n1", "n2").InContact })
		time.Sleep(2 * time.Second)
		plan, err := w.node("n1").changeMember(w.t.Context(), &peerpb.ChangeMemberRequest{Name: "n2", DryRun: true})
		if err != nil || len(w.votersAt("n1")) != 1 {
			t.Fatalf("dry run: %v, voters %v", err, w.votersAt("n1"))
		}
		for i, at := range []string{"n1", "n1", "n2"} {
			if got, err := w.node(at).promotePlanned(w.t.Context(), plan); err != nil || serverID(got.ID).name() != "n2" {
				t.Errorf("%d, at %s: %+v, %v", i, at, got, err)
			}
		}
		w.awaitVoters("n2", 5*time.Second, "n1", "n2")
		if _, err := w.node("n1").PromoteMember(w.t.Context(), "n2"); !errors.Is(err, ErrUnsafe) {
			t.Errorf("one that has long had a vote: %v", err)
		}
	})
}

func TestFullMembershipRefusesNewMembersOnly(t *testing.T) {
	var servers []raft.Server
	for i := range maxMembers {
		servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprintf("n%d~0123456789abcdef", i))})
	}
	n := &Node{}
	if err := n.mayJoin(nil, servers, "n5~0123456789abcdef"); err != nil {
		t.Errorf("one that was taken in, and asks again because the answer was lost: %v", err)
	}
	if err := n.mayJoin(nil, servers, "x~0123456789abcdef"); err == nil {
		t.Error("one more was taken in")
	}
	if err := n.mayJoin(nil, servers[1:], "x~0123456789abcdef"); err != nil {
		t.Error(err)
	}
}

// The keeper says what it has done only if it was done, and tries again after a
// while, not ten times a second.
func TestChangeThatFailsIsCalledSoAndLeftAloneForAWhile(t *testing.T) {
	var said logText
	logged := func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) }
	inFakeTime(t, 1, logged, func(w *world) {
		w.start()
		w.awaitFormed()
		n := w.node("n1")
		k := &keeper{node: n, reign: n.reign.Load()}
		tries := 0
		find := func([]raft.Server) *step {
			return &step{event: "member_removed", text: "removed a voter that was dead", server: raft.Server{ID: "n9"}, change: &change{
				begin: func(r *raft.Raft) raft.Future {
					tries++
					return r.RemoveServer("n9", 1<<40, time.Second) // from a membership that there is not
				},
			}}
		}
		for range 50 {
			k.makeFirst(w.t.Context(), find)
			time.Sleep(memberTick)
		}
		if tries < 4 || tries > 6 {
			t.Errorf("%d tries in 5 s", tries)
		}
		if got := said.String(); strings.Count(got, "event=member_change_failed") != tries || strings.Contains(got, "removed a voter") {
			t.Errorf("the log says\n%s", got)
		}
	})
}

// logText collects what is logged. It is safe for concurrent use.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
