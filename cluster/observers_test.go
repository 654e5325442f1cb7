package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// observing makes the last servers of a world observers in everybody's list.
func observing(names ...string) func(*Config) {
	return func(c *Config) {
		var peers []Peer
		for _, p := range c.Peers {
			if slices.Contains(names, p.Name) {
				c.Observers = append(c.Observers, p)
			} else {
				peers = append(peers, p)
			}
		}
		c.Peers = peers
	}
}

func (w *world) memberAt(at, name string) Member {
	for _, m := range w.node(at).Members(w.t.Context()).Members {
		if m.Name == name {
			return m
		}
	}
	return Member{}
}

func (w *world) awaitObserver(name string) {
	w.t.Helper()
	w.eventually(20*time.Second, name+" observes", func() bool {
		s := w.node(name).Status()
		m := w.memberAt(name, name)
		return s.Formed && s.Leader != "" && m.Role == RoleObserver && m.InContact
	})
}

func TestObserverServesAndNeverVotes(t *testing.T) {
	inFakeTime(t, 5, observing("n4", "n5"), func(w *world) {
		w.start("n4", "n5") // alone they form nothing
		time.Sleep(5 * time.Second)
		if s := w.node("n4").Status(); s.Formed || s.ClusterID != "" || !strings.Contains(s.Waiting, "formed by its voters") {
			t.Errorf("observers alone: %+v", s)
		}
		w.start("n1", "n2", "n3") // though observers are there, only these three matter
		w.awaitVoters("n1", 20*time.Second, "n1", "n2", "n3")
		w.awaitObserver("n4")
		w.awaitObserver("n5")
		c := w.open("n4", 4*time.Minute)
		checkDone(t, c.send(ephemeralOp("/e")))
		if err := w.node("n5").Linearize(w.t.Context()); err != nil || !w.exists("n5", "/e") {
			t.Errorf("a linearizable read at an observer: %v", err)
		}
		time.Sleep(time.Minute) // far more than what earns a vote
		w.awaitVoters("n4", time.Second, "n1", "n2", "n3")
		if _, err := w.node("n4").PromoteMember(w.t.Context(), "n4"); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "is an observer") {
			t.Errorf("promote an observer: %v", err)
		}
		if !w.exists("n1", "/e") {
			t.Error("the session at the observer was not kept")
		}
		w.withoutQuorum(t, c)
	})
}

// withoutQuorum checks that two observers do not help one voter.
func (w *world) withoutQuorum(t *testing.T, c *client) {
	last := w.leader()
	for _, name := range []string{"n1", "n2", "n3"} {
		if name != last {
			w.kill(name)
		}
	}
	in := c.send(createOp("/late"))
	time.Sleep(5 * time.Second)
	if w.leader() != "" || w.exists(last, "/late") {
		t.Errorf("one voter of three leads with two observers")
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		if name != last {
			w.start(name)
		}
	}
	checkDone(t, in)
}

// An observer counts neither for the arithmetic of removals nor for the room on
// the disks, and may be removed at any time.
func TestObserverCountsInNoQuorum(t *testing.T) {
	var full atomic.Bool
	tune := func(c *Config) {
		observing("n3", "n4")(c)
		if c.Name == "n3" || c.Name == "n4" {
			c.DiskReserve = 8 << 20
			c.Faults.FreeBytes = func(string) (int64, error) {
				if full.Load() {
					return 4 << 20, nil
				}
				return 1 << 40, nil
			}
		}
	}
	inFakeTime(t, 4, tune, func(w *world) {
		w.start()
		w.awaitVoters("n1", 20*time.Second, "n1", "n2")
		w.awaitObserver("n3")
		w.awaitObserver("n4")
		full.Store(true)
		time.Sleep(3 * time.Second)
		if _, err := w.create("n3", "/a"); err != nil {
			t.Errorf("with two observers whose disks are full: %v", err)
		}
		if w.node(w.leader()).judgeQuorum().low {
			t.Error("the disks of observers count")
		}
		leader := w.leader()
		if have := w.node(leader).count(w.node(leader).members()); have != (tally{2, 2}) {
			t.Errorf("tally %+v", have)
		}
		w.mustRemove("n3", "n4")
		w.wantRemoved("n4", 15*time.Second)
		w.kill("n3")
		plan, err := w.node("n1").RemoveMember(w.t.Context(), "n3", true)
		if err != nil || !strings.HasPrefix(plan.Effect, "2 of 2 voters alive") {
			t.Errorf("remove a dead observer: %+v, %v", plan, err)
		}
		w.mustRemove("n1", "n3")
	})
}

func TestDeadObserverIsShownAsOne(t *testing.T) {
	inFakeTime(t, 3, observing("n3"), func(w *world) {
		w.start()
		w.awaitObserver("n3")
		w.kill("n3")
		_, _ = w.node(w.leader()).Transfer(w.t.Context(), "") // a leader that has never heard of it
		time.Sleep(3 * time.Second)
		if m := w.memberAt(w.awaitLeader(), "n3"); m.Role != RoleObserver || m.InContact {
			t.Errorf("%+v", m)
		}
	})
}

// A server changes what it is by its own file; the files of the others are old.
func TestVoterAndObserverChangeSidesByTheirOwnFile(t *testing.T) {
	var observer atomic.Bool
	tune := func(c *Config) {
		if c.Name == "n3" && observer.Load() {
			observing("n3")(c)
		}
	}
	inFakeTime(t, 4, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		for i := range 2 {
			observer.Store(true)
			w.shutdown("n3")
			w.start("n3")
			w.awaitVoters("n1", 20*time.Second, "n1", "n2", "n4")
			w.awaitObserver("n3")
			observer.Store(false)
			w.shutdown("n3")
			w.start("n3")
			w.awaitVoters("n1", 20*time.Second, "n1", "n2", "n3", "n4")
			if _, err := w.create("n3", fmt.Sprintf("/a%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		// A leader hands over before it gives its vote back.
		if _, err := w.node("n1").Transfer(w.t.Context(), "n3"); err != nil {
			t.Fatal(err)
		}
		observer.Store(true)
		w.shutdown("n3")
		w.start("n3")
		w.awaitVoters("n1", 20*time.Second, "n1", "n2", "n4")
	})
}

func TestListsOfServersAreChecked(t *testing.T) {
	base := validConfig()
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Observers = []Peer{{"n8", "h8:1"}} }, ""},
		{func(c *Config) { c.Name = "n8"; c.Observers = []Peer{{"n8", "h8:1"}} }, ""},
		{func(c *Config) { c.Name = "n8" }, "n8 itself is not listed, nor is it in observers"},
		{func(c *Config) { c.Observers = []Peer{c.Peers[0]} }, "has the name or the address"},
		{func(c *Config) { c.Observers = []Peer{{"n8", c.Peers[0].Address}} }, "has the name or the address"},
		{func(c *Config) { c.Observers = []Peer{{"n8", "nowhere"}} }, "observers: n8=nowhere"},
		{func(c *Config) { c.Observers = []Peer{{"n 8", "h:1"}} }, "observers: server name"},
		{func(c *Config) { c.Observers = c.Peers; c.Peers = nil }, "peers: 0 listed"},
	} {
		cfg := base
		cfg.Peers = slices.Clone(base.Peers)
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("Validate = %v, want something about %q", err, c.want)
		}
	}
}
