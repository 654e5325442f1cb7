package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// From one server to three, to five and back to three, while clients write: a
// delay at most, and nothing is lost.
func TestClusterGrowsAndShrinksUnderLoad(t *testing.T) {
	inFakeTime(t, 5, listing(1), func(w *world) {
		w.start("n1")
		w.awaitLeader()
		clients := []*client{w.open("n1", 30*time.Second), w.open("n1", 30*time.Second)}
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			w.growFromOneToFive()
			// Also the first of all goes, who leads.
			w.mustRemove("n1", "n5")
			w.wantRemoved("n5", 15*time.Second)
			w.mustRemove("n3", "n4")
			w.wantRemoved("n4", 15*time.Second)
			w.awaitVoters("n1", 5*time.Second, "n1", "n2", "n3")
			time.Sleep(time.Second)
		}()
		made := writeOn(t, clients, stop)
		w.checkAllMade(clients, made)
		if made[0] < 200 {
			t.Errorf("only %d writes were made", made[0])
		}
	})
}

func (w *world) growFromOneToFive() {
	w.start("n2", "n3")
	w.awaitVoters("n1", time.Minute, "n1", "n2", "n3")
	w.start("n4")
	w.start("n5")
	w.awaitVoters("n1", time.Minute, "n1", "n2", "n3", "n4", "n5")
}

// etcd-io/etcd PR#21667: no member could be added while one was down.
func TestServerJoinsWhileAVoterIsDown(t *testing.T) {
	inFakeTime(t, 4, listing(3), func(w *world) {
		w.start("n1", "n2", "n3")
		w.awaitFormed()
		w.kill(w.followers()[0])
		w.start("n4")
		w.eventually(20*time.Second, "n4 has a vote", func() bool { return w.node("n4").Status().Voter })
		if _, err := w.create("n4", "/a"); err != nil {
			t.Error(err)
		}
		if m := w.memberAt("n4", "n4"); m.Role != RoleVoter || m.RoleFor < 0 || m.RoleFor > 20*time.Second {
			t.Errorf("%+v", m)
		}
	})
}

// A vote that another server is to get at once can be given by an operator first;
// never to one that is behind or gone.
func TestPromotionNeedsAServerThatKeepsUp(t *testing.T) {
	tune := func(c *Config) {
		listing(3)(c)
		c.StableBeforeVote = time.Hour
	}
	inFakeTime(t, 4, tune, func(w *world) {
		w.start("n1", "n2", "n3")
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		w.start("n4")
		w.eventually(10*time.Second, "n4 has joined", func() bool {
			m := w.memberAt("n1", "n4")
			return m.Role == RoleJoining && m.InContact && strings.Contains(m.Detail, "votes after")
		})
		w.kill("n4")
		w.eventually(10*time.Second, "n4 is missed", func() bool { return !w.memberAt("n1", "n4").InContact })
		if _, err := w.node("n1").PromoteMember(w.t.Context(), "n4"); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "not in contact") {
			t.Errorf("promote a dead server: %v", err)
		}
		w.start("n4")
		w.eventually(10*time.Second, "n4 is back", func() bool { return w.memberAt("n1", "n4").InContact })
		done, err := w.node("n4").PromoteMember(w.t.Context(), "n4")
		if err != nil || serverID(done.ID).name() != "n4" {
			t.Fatalf("promote: %+v, %v", done, err)
		}
		w.awaitVoters("n4", 5*time.Second, "n1", "n2", "n3", "n4")
	})
}

// rqlite#582, #103: servers of a formed cluster that were all stopped form it again,
// in whichever order they come back.
func TestStoppedClusterComesBackInEachOrder(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		id := w.node("n1").ClusterID()
		for i, order := range [][]string{
			{"n1", "n2", "n3"}, {"n1", "n3", "n2"}, {"n2", "n1", "n3"}, {"n2", "n3", "n1"}, {"n3", "n1", "n2"}, {"n3", "n2", "n1"},
		} {
			w.shutdown("n1", "n2", "n3")
			for _, name := range order {
				w.start(name)
				time.Sleep(3 * time.Second)
			}
			w.awaitFormed()
			if _, err := w.create(order[2], fmt.Sprintf("/order%d", i)); err != nil {
				t.Errorf("%v: %v", order, err)
			}
			if got := w.node(order[0]).ClusterID(); got != id {
				t.Fatalf("%v: cluster %s became %s", order, id, got)
			}
		}
	})
}

func TestDeadVoterIsRemovedOnceItIsReplaced(t *testing.T) {
	tune := func(c *Config) {
		listing(3)(c)
		c.RemoveDeadAfter = 30 * time.Second
	}
	inFakeTime(t, 4, tune, func(w *world) {
		w.start("n1", "n2", "n3")
		w.awaitFormed()
		dead := w.followers()[0]
		others := slices.DeleteFunc([]string{"n1", "n2", "n3"}, func(s string) bool { return s == dead })
		w.kill(dead)
		time.Sleep(2 * time.Minute)
		// Nothing is gained by two voters: the dead one may come back.
		w.awaitVoters(others[0], time.Second, "n1", "n2", "n3")
		w.start("n4")
		w.awaitVoters(others[0], time.Minute, append(others, "n4")...)
		w.start(dead)
		w.wantRemoved(dead, 20*time.Second)
	})
}

func TestVoterThatIsSilentForLessStays(t *testing.T) {
	for _, after := range []time.Duration{0, 10 * time.Minute} {
		tune := func(c *Config) { c.RemoveDeadAfter = after }
		inFakeTime(t, 4, tune, func(w *world) {
			w.start()
			w.awaitFormed()
			dead := w.followers()[0]
			w.kill(dead)
			time.Sleep(9 * time.Minute)
			w.start(dead)
			w.eventually(10*time.Second, "it is back", func() bool { return w.node(dead).Status().Leader != "" })
			w.awaitVoters(dead, 5*time.Second, "n1", "n2", "n3", "n4")
		})
	}
}

// The peers in the files and the members of the cluster need not be the same.
func TestFormedOutlivesEveryChangeOfTheMembership(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(3 * time.Second)
		for _, name := range []string{"n5", "n4", "n2", "n1"} {
			w.mustRemove("n3", name)
			w.wantRemoved(name, 15*time.Second)
		}
		w.kill("n3")
		w.start("n3") // its file lists five
		w.awaitLeader()
		if err := w.node("n3").Formed(); err != nil {
			t.Errorf("alone, out of a list of five: %v", err)
		}
		if _, err := w.create("n3", "/a"); err != nil {
			t.Error(err)
		}
		// A new server with that list hears that the cluster is formed.
		w.wipe("n4")
		w.start("n4")
		w.eventually(10*time.Second, "n4 knows", func() bool { return w.node("n4").Formed() == nil && w.node("n4").Status().Leader != "" })
	})
}

func TestFormedIsAboutTheClusterOfTheDirectory(t *testing.T) {
	dir := t.TempDir()
	one, two := newClusterID(), newClusterID()
	if wasFormed(dir, one) || wasFormed(dir, "") {
		t.Error("an empty directory was formed")
	}
	if err := markFormed(dir, one); err != nil {
		t.Fatal(err)
	}
	if !wasFormed(dir, one) || wasFormed(dir, two) || wasFormed(dir, "") {
		t.Error("the mark of one cluster")
	}
	if err := os.Truncate(filepath.Join(dir, formedFile), 5); err != nil {
		t.Fatal(err)
	}
	if wasFormed(dir, one) {
		t.Error("a torn mark counts")
	}
}

// A server that is alone in the first place promises nothing before the others
// have their votes, also after a restart.
func TestUnfinishedClusterStaysUnformedOverARestart(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.eventually(10*time.Second, "n1 has formed it", func() bool { return w.node("n1").ClusterID() != "" })
		for _, p := range w.peers {
			w.kill(p.Name)
		}
		if len(w.formedMarks()) > 0 {
			t.Fatal("it was formed at once: this shows nothing")
		}
		w.start("n1")
		time.Sleep(5 * time.Second)
		if err := w.node("n1").Formed(); !errors.Is(err, ErrNotFormed) {
			t.Errorf("Formed = %v", err)
		}
	})
}

func (w *world) formedMarks() (out []string) {
	for name, h := range w.hosts {
		if _, err := os.Stat(filepath.Join(h.dir, formedFile)); err == nil {
			out = append(out, name)
		}
	}
	return out
}
