package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// listing limits what each server's file lists: the servers of its first list,
// or all up to itself, as a server that was added later has.
func listing(first int) func(*Config) {
	return func(c *Config) {
		own := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == c.Name })
		c.Peers = c.Peers[:max(first, own+1)]
	}
}

// remove takes a server out through another one.
func (w *world) remove(at, name string) (MemberChange, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	return w.node(at).RemoveMember(ctx, name, false)
}

func (w *world) mustRemove(at, name string) {
	w.t.Helper()
	if _, err := w.remove(at, name); err != nil {
		w.t.Fatalf("remove %s: %v\n%s", name, err, w.describe())
	}
}

// ended waits until a server has ended by itself, and returns why.
func (w *world) ended(name string, within time.Duration) error {
	w.t.Helper()
	h := w.hosts[name]
	select {
	case err := <-h.done:
		h.node = nil
		return err
	case <-time.After(within):
		w.t.Fatalf("%s has not ended within %v\n%s", name, within, w.describe())
		return nil
	}
}

// wantRemoved waits until a server has ended because it was removed.
func (w *world) wantRemoved(name string, within time.Duration) {
	w.t.Helper()
	var removed *RemovedError
	if err := w.ended(name, within); !errors.Is(err, ErrRemoved) || !errors.As(err, &removed) || !strings.Contains(err.Error(), "wipe "+w.hosts[name].dir) {
		w.t.Fatalf("%s ended with %v", name, err)
	}
}

// votersAt are the names of the voters as a server knows them.
func (w *world) votersAt(name string) (out []string) {
	for _, v := range w.node(name).voters() {
		out = append(out, v.name())
	}
	slices.Sort(out)
	return out
}

func (w *world) awaitVoters(at string, within time.Duration, want ...string) {
	w.t.Helper()
	w.eventually(within, fmt.Sprint("the voters are ", want), func() bool { return slices.Equal(w.votersAt(at), want) })
}

// keepsOffice runs f and checks for a while after it that the leader has led the
// same term all the time.
func (w *world) keepsOffice(f func()) {
	w.t.Helper()
	leader := w.awaitLeader()
	term := w.node(leader).Status().Term
	f()
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		if got, ok := w.node(leader).leads(); !ok || got != term {
			w.t.Fatalf("%s led term %d, and now leads %v, term %d\n%s", leader, term, ok, got, w.describe())
		}
	}
}

func TestRemovedServerIsToldAndEnds(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.eventually(5*time.Second, "the leader knows all", func() bool { return w.leader() != "" })
		victim := w.followers()[1]
		w.keepsOffice(func() {
			w.mustRemove(w.followers()[0], victim)
			w.wantRemoved(victim, 10*time.Second)
			// Its data is of no use to anybody any more.
			if err := w.tryStart(victim); !errors.Is(err, ErrRemoved) {
				t.Errorf("the start with its data: %v", err)
			}
		})
		w.wipe(victim)
		w.start(victim)
		w.eventually(20*time.Second, "it is back as a new server, with a vote", func() bool { return w.node(victim).Status().Voter })
	})
}

// hashicorp/raft#524: a server that was removed while it was away came back and
// disturbed the leader for ever.
func TestServerRemovedWhileCutOffNeverDeposesTheLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		victim := w.followers()[0]
		other := w.followers()[1]
		cutAll := func(set func(a, b string)) {
			for _, p := range w.peers {
				if p.Name != victim {
					set(w.hosts[victim].peer.Address, p.Address)
				}
			}
		}
		w.keepsOffice(func() {
			cutAll(w.net.cut)
			time.Sleep(5 * time.Second)
			w.mustRemove(other, victim)
			time.Sleep(20 * time.Second)
			cutAll(w.net.heal)
			w.wantRemoved(victim, 15*time.Second)
		})
	})
}

// As before, with a term that is far ahead: the server may have stood in an
// election that others then had nothing of.
func TestServerRemovedWhileDownNeverDeposesTheLeaderWithAHigherTerm(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		victim := w.followers()[0]
		w.kill(victim)
		w.keepsOffice(func() {
			w.mustRemove(w.leader(), victim)
			w.raiseTerm(victim, 1000)
			w.start(victim)
			w.wantRemoved(victim, 15*time.Second)
		})
	})
}

// raiseTerm makes a server that is down believe in a later term.
func (w *world) raiseTerm(name string, by uint64) {
	w.t.Helper()
	bolt, err := openBolt(filepath.Join(w.hosts[name].dir, stableFile))
	if err != nil {
		w.t.Fatal(err)
	}
	defer bolt.Close()
	votes, err := openVotes(w.hosts[name].dir, bolt, newRaftLogger(testLog()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer votes.close()
	if _, err := votes.set(keyCurrentTerm, number(votes.now.term+by)); err != nil {
		w.t.Fatal(err)
	}
}

func TestPartitionedServerNeverDeposesTheLeader(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		alone := w.followers()[0]
		w.keepsOffice(func() {
			for range 3 {
				for _, p := range w.peers {
					w.net.cut(w.hosts[alone].peer.Address, p.Address)
				}
				time.Sleep(20 * time.Second)
				for _, p := range w.peers {
					w.net.heal(w.hosts[alone].peer.Address, p.Address)
				}
				time.Sleep(3 * time.Second)
			}
		})
	})
}

func TestRejoiningServerNeverDeposesTheLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.keepsOffice(func() {
			for _, victim := range w.followers() {
				w.kill(victim)
				time.Sleep(3 * time.Second)
				w.start(victim) // with its data
				w.eventually(10*time.Second, "it follows", func() bool { return w.node(victim).Status().Leader != "" })
				w.kill(victim)
				w.wipe(victim)
				time.Sleep(3 * time.Second)
				w.start(victim) // without
				w.eventually(20*time.Second, "it votes", func() bool { return w.node(victim).Status().Voter })
			}
		})
		w.eventually(20*time.Second, "the old ones are gone", func() bool { return len(w.node(w.leader()).members()) == 3 })
	})
}

func TestRemovalThatWouldLoseTheQuorumIsRefusedWithTheNumbers(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		leader := w.leader()
		alive, dead := w.followers()[0], w.followers()[1]
		w.kill(dead)
		w.eventually(5*time.Second, "the leader misses it", func() bool { return !w.node(leader).inContact(w.idOf(leader, dead)) })
		want := fmt.Sprintf("3 voters, 2 of them alive: without %s, 1 of 2 would be alive, and 2 are needed", alive)
		for _, at := range []string{leader, alive} {
			if _, err := w.remove(at, alive); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), want) {
				t.Errorf("at %s: %v", at, err)
			}
		}
		// The leader is no better: nothing is handed over for nothing.
		w.keepsOffice(func() {
			if _, err := w.remove(alive, leader); !errors.Is(err, ErrUnsafe) {
				t.Errorf("remove the leader: %v", err)
			}
		})
		plan, err := w.node(alive).RemoveMember(w.t.Context(), dead, true)
		if err != nil || plan.Effect != "2 of 2 voters alive, 2 needed: 1 more failure stops writes" || serverID(plan.ID).name() != dead {
			t.Errorf("dry run: %+v, %v", plan, err)
		}
		if len(w.votersAt(leader)) != 3 {
			t.Fatal("a dry run has removed a server")
		}
		w.mustRemove(alive, dead)
		w.mustRemove(alive, alive)
		w.wantRemoved(alive, 15*time.Second)
		if _, err := w.remove(leader, leader); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "the only voter") {
			t.Errorf("remove the last one: %v", err)
		}
		if _, err := w.create(leader, "/alone"); err != nil {
			t.Error(err)
		}
	})
}

// idOf is the id of the member called name as a server knows it.
func (w *world) idOf(at, name string) serverID {
	for _, s := range w.node(at).members() {
		if id := serverID(s.ID); id.name() == name {
			return id
		}
	}
	return ""
}

// A server that has just died still counts as alive, by its last report. A removal
// that needs it would hold from the moment it is in the leader's log, could never
// be committed, and the cluster would stand.
func TestRemovalRightAfterADeathIsWeighedWithTheDead(t *testing.T) {
	for _, promote := range []bool{false, true} {
		inFakeTime(t, 3, func(c *Config) {
			if promote {
				listing(1)(c)
				c.StableBeforeVote = time.Hour
			}
		}, func(w *world) {
			w.start("n1")
			if promote {
				w.awaitLeader()
				w.start("n2")
				w.eventually(10*time.Second, "n2 has joined", func() bool { return w.memberAt("n1", "n2").InContact })
				time.Sleep(2 * time.Second)
			} else {
				w.start("n2", "n3")
				w.awaitFormed()
				time.Sleep(2 * time.Second)
				_, _ = w.node("n1").Transfer(w.t.Context(), "n1")
			}
			w.awaitLeader()
			victim := map[bool]string{true: "n2", false: "n3"}[promote]
			for _, p := range w.peers { // it dies without a goodbye, and this is noticed later
				w.net.cut(w.hosts[victim].peer.Address, p.Address)
			}
			time.Sleep(100 * time.Millisecond)
			ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
			defer cancel()
			var err error
			if promote {
				_, err = w.node("n1").PromoteMember(ctx, "n2")
			} else {
				_, err = w.remove("n1", "n2")
			}
			if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "1 answer now, and 2 are needed") {
				t.Errorf("promote %v: %v", promote, err)
			}
			if _, err := w.create("n1", "/a"); err != nil {
				t.Errorf("promote %v: the cluster stands: %v", promote, err)
			}
			for _, p := range w.peers {
				w.net.heal(w.hosts[victim].peer.Address, p.Address)
			}
		})
	}
}

func TestLeaderThatIsRemovedHandsOverFirst(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		leader, at := w.leader(), w.followers()[0]
		clients := []*client{w.open(at, 30*time.Second), w.open(w.followers()[1], 30*time.Second)}
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			time.Sleep(300 * time.Millisecond)
			w.mustRemove(leader, leader) // asked at itself
			time.Sleep(time.Second)
		}()
		made := writeOn(t, clients, stop)
		w.wantRemoved(leader, 15*time.Second)
		w.checkAllMade(clients, made)
		if got := w.votersAt(at); len(got) != 2 || slices.Contains(got, leader) {
			t.Errorf("voters %v", got)
		}
	})
}

func TestRemovalOfWhoIsNoMemberSaysSo(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		at, victim := w.leader(), w.followers()[0]
		id := string(w.idOf(at, victim))
		w.mustRemove(at, id) // by its full id
		w.wantRemoved(victim, 15*time.Second)
		for _, name := range []string{victim, id, "n9", "", "n9~0123456789abcdef", strings.Repeat("x", 1000)} {
			if _, err := w.remove(at, name); !errors.Is(err, ErrNoMember) || len(err.Error()) > 400 {
				t.Errorf("remove %.20q: %v", name, err)
			}
			if _, err := w.node(at).PromoteMember(w.t.Context(), name); !errors.Is(err, ErrNoMember) {
				t.Errorf("promote %.20q: %v", name, err)
			}
		}
		if _, err := w.node(at).PromoteMember(w.t.Context(), at); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "has a vote") {
			t.Errorf("promote a voter: %v", err)
		}
	})
	two := []raft.Server{{ID: "n3~0000000000000001"}, {ID: "n3~0000000000000002"}}
	if _, err := findMember(two, "n3"); err == nil || !strings.Contains(err.Error(), "n3~0000000000000001 and n3~0000000000000002") {
		t.Errorf("two of one name: %v", err)
	}
	if s, err := findMember(two, "n3~0000000000000002"); err != nil || s.ID != two[1].ID {
		t.Errorf("the second of two: %v, %v", s, err)
	}
}

func TestChangeWithoutALeaderEndsWithItsContext(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.kill("n1")
		w.kill("n2")
		time.Sleep(2 * time.Second)
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.node("n3").RemoveMember(ctx, "n1", false); !errors.Is(err, ErrNotLeader) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("RemoveMember: %v", err)
		}
	})
}

// Of two removals that are safe alone and not together, one is refused, whoever
// asks for them and when.
func TestTwoRemovalsAreWeighedOneAfterTheOther(t *testing.T) {
	inFakeTime(t, 4, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		leader := w.leader()
		f := w.followers()
		w.kill(f[2])
		w.eventually(5*time.Second, "the leader misses it", func() bool { return !w.node(leader).inContact(w.idOf(leader, f[2])) })
		errs := make([]error, 2)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { _, errs[i] = w.remove(leader, f[i]) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), ErrUnsafe) {
			t.Errorf("4 voters, 3 alive, two removed at once: %v", errs)
		}
		if got := w.votersAt(leader); len(got) != 3 {
			t.Errorf("voters %v", got)
		}
		if _, err := w.create(leader, "/a"); err != nil {
			t.Error(err)
		}
	})
}

func TestTallyOfQuorums(t *testing.T) {
	for _, c := range []struct {
		have          tally
		quorum, spare int
		text          string
	}{
		{tally{1, 1}, 1, 0, "1 of 1 voters alive, 1 needed: 1 more failure stops writes"},
		{tally{2, 2}, 2, 0, "2 of 2 voters alive, 2 needed: 1 more failure stops writes"},
		{tally{3, 3}, 2, 1, "3 of 3 voters alive, 2 needed: 1 more may fail"},
		{tally{4, 3}, 3, 0, "3 of 4 voters alive, 3 needed: 1 more failure stops writes"},
		{tally{5, 5}, 3, 2, "5 of 5 voters alive, 3 needed: 2 more may fail"},
		{tally{5, 2}, 3, -1, "2 of 5 voters alive, 3 needed: no quorum"},
	} {
		if c.have.quorum() != c.quorum || c.have.spare() != c.spare || c.have.String() != c.text {
			t.Errorf("%+v: quorum %d, spare %d, %s", c.have, c.have.quorum(), c.have.spare(), c.have)
		}
	}
	// What the removal of a dead voter rests on: from an even number it leaves one
	// more spare, from an odd one the same.
	for voters := 2; voters <= 9; voters++ {
		for alive := voters/2 + 1; alive < voters; alive++ {
			before := tally{voters, alive}
			after := before.without(false)
			if gain := after.spare() - before.spare(); gain != (voters+1)%2 {
				t.Errorf("%v: the removal of a dead voter gains %d", before, gain)
			}
		}
	}
}
