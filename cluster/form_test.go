package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
)

// staysUnformed checks for a while that nobody forms a cluster, and that the
// named server says why.
func (w *world) staysUnformed(at, why string) {
	w.t.Helper()
	time.Sleep(5 * time.Second)
	for name, h := range w.hosts {
		if h.node != nil && h.node.ClusterID() != "" {
			w.t.Errorf("%s belongs to cluster %s", name, h.node.ClusterID())
		}
	}
	s := w.node(at).Status()
	if s.Formed || s.Ready || !strings.Contains(s.Waiting, why) {
		w.t.Errorf("%s waits for %q, want something with %q", at, s.Waiting, why)
	}
	var unformed *NotFormedError
	if err := w.node(at).Formed(); !errors.As(err, &unformed) || !errors.Is(err, ErrNotFormed) {
		w.t.Errorf("Formed() = %v, want a NotFormedError", err)
	}
}

func TestClusterOfAnySizeFormsByItself(t *testing.T) {
	for _, servers := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			inFakeTime(t, servers, nil, func(w *world) {
				w.start()
				start := time.Now()
				w.awaitFormed()
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("forming took %v", took)
				}
				last := w.peers[servers-1].Name
				if _, err := w.create(last, "/a"); err != nil {
					t.Fatal(err)
				}
				ids := map[string]bool{}
				for _, p := range w.peers {
					ids[w.node(p.Name).ClusterID()] = true
				}
				if len(ids) != 1 {
					t.Errorf("cluster ids %v", ids)
				}
			})
		})
	}
}

func TestManualClusterWaitsForTheOperator(t *testing.T) {
	manual := func(c *Config) { c.Bootstrap = BootstrapManual }
	inFakeTime(t, 3, manual, func(w *world) {
		w.start()
		w.staysUnformed("n1", "coordctl cluster init")
		w.staysUnformed("n2", "n1")
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		defer cancel()
		// Any server will do, not only the one that forms it.
		id, err := w.node("n3").Form(ctx)
		if err != nil || id == "" {
			t.Fatalf("Form: %q, %v", id, err)
		}
		w.awaitFormed()
		if _, err := w.node("n2").Form(ctx); !errors.Is(err, ErrRefused) {
			t.Errorf("a second Form: %v", err)
		}
	})
}

func TestFormSaysWhatIsMissing(t *testing.T) {
	inFakeTime(t, 3, func(c *Config) { c.Bootstrap = BootstrapManual }, func(w *world) {
		w.start("n1", "n2")
		ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
		defer cancel()
		if _, err := w.node("n1").Form(ctx); !errors.Is(err, ErrNotFormed) || !strings.Contains(err.Error(), "n3") {
			t.Errorf("Form with n3 away: %v", err)
		}
	})
}

// An operator who gave up finds no cluster later that nobody waits for.
func TestWishToFormEndsWithItsContext(t *testing.T) {
	inFakeTime(t, 3, func(c *Config) { c.Bootstrap = BootstrapManual }, func(w *world) {
		w.start("n1", "n2")
		for _, at := range []string{"n1", "n2"} {
			ctx, cancel := context.WithTimeout(w.t.Context(), 3*time.Second)
			if _, err := w.node(at).Form(ctx); !errors.Is(err, ErrNotFormed) {
				t.Errorf("Form at %s: %v", at, err)
			}
			cancel()
		}
		w.start("n3") // nothing is missing any more, but for the wish
		w.staysUnformed("n1", "coordctl cluster init")
	})
}

func TestNobodyBootstrapsWhileAPeerIsSilent(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start("n1", "n2")
		w.staysUnformed("n1", "waiting for n3 (no answer at n3:7421")
		w.start("n3")
		w.awaitFormed()
	})
}

func TestNobodyBootstrapsWithAnotherList(t *testing.T) {
	tune := func(c *Config) {
		if c.Name == "n2" {
			c.Peers = c.Peers[:2]
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.staysUnformed("n1", "n2: its list of peers is another one")
	})
}

func TestNobodyBootstrapsForAnotherClusterName(t *testing.T) {
	tune := func(c *Config) {
		if c.Name == "n3" {
			c.ClusterName = "other"
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.staysUnformed("n1", "n3: its cluster is called other")
	})
}

// A disk that was not mounted must not make a second cluster beside the data of
// the others, whoever of them is up.
func TestWipedFirstServerDoesNotFormASecondCluster(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		if _, err := w.create("n1", "/old"); err != nil {
			t.Fatal(err)
		}
		id := w.node("n1").ClusterID()
		for _, p := range w.peers {
			w.kill(p.Name)
		}
		w.wipe("n1")
		w.start("n1", "n2") // n3 is away: no quorum can take n1 in
		time.Sleep(10 * time.Second)
		if got := w.node("n1").ClusterID(); got != "" {
			t.Errorf("n1 belongs to cluster %s though nobody could take it in", got)
		}
		if w.leader() != "" {
			t.Errorf("%s leads: an empty disk has voted", w.leader())
		}
		w.start("n3")
		w.eventually(30*time.Second, "n1 is back with the old data", func() bool {
			return w.node("n1").ClusterID() == id && w.exists("n1", "/old") && w.node("n1").Status().Voter
		})
	})
}

// F6: the acknowledged write is on n1 and n3; n3 loses its disk; n1 is away.
// An n3 that voted as itself would elect the lagging n2.
func TestWipedServerCannotHelpALaggingOneToLead(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		_, err := w.node("n1").Transfer(w.t.Context(), "n1")
		if err != nil && !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		w.awaitLeader()
		w.kill("n2")
		if _, err := w.create("n3", "/acknowledged"); err != nil {
			t.Fatal(err)
		}
		w.kill("n3")
		w.kill("n1")
		w.wipe("n3")
		w.start("n2", "n3")
		time.Sleep(20 * time.Second)
		if w.leader() != "" {
			t.Fatalf("%s leads without the acknowledged write", w.leader())
		}
		w.start("n1")
		w.awaitLeader()
		w.eventually(30*time.Second, "the write is on every server", func() bool {
			return w.exists("n1", "/acknowledged") && w.exists("n2", "/acknowledged") && w.exists("n3", "/acknowledged")
		})
		w.eventually(30*time.Second, "the new incarnation has taken the place of the old one", func() bool {
			return len(w.node("n1").members()) == 3 && w.node("n3").Status().Voter
		})
	})
}

func TestSecondIncarnationIsRefusedWhileTheFirstIsAlive(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		var twin Config
		leader := w.awaitLeader()
		f := w.followers()[0]
		// A second server with the same name and an empty disk, elsewhere.
		twin = w.config(w.hosts[f])
		twin.DataDir = w.tempDir() + "/twin"
		twin.Listen = "twin:7421"
		twin.Net.Dial = w.net.dialer("twin:7421")
		n, err := Open(twin)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		time.Sleep(5 * time.Second)
		if s := n.Status(); n.ClusterID() != "" || !strings.Contains(s.Waiting, "is alive at") {
			t.Errorf("twin belongs to %q and waits for %q", n.ClusterID(), s.Waiting)
		}
		if got := len(w.node(leader).members()); got != 3 {
			t.Errorf("%d members", got)
		}
		stop()
		<-done
	})
}

func TestRestartWithDataNeedsNobody(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		if _, err := w.create("n1", "/a"); err != nil {
			t.Fatal(err)
		}
		w.kill("n1")
		w.start("n1")
		start := time.Now()
		w.awaitLeader()
		if !w.exists("n1", "/a") {
			t.Error("the state is lost")
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the restart took %v", took)
		}
	})
}

func TestUnlistedServerJoinsThroughTheListedOnes(t *testing.T) {
	inFakeTime(t, 4, func(c *Config) {
		if c.Name != "n4" {
			c.Peers = c.Peers[:3]
		}
	}, func(w *world) {
		w.start("n1", "n2", "n3")
		w.awaitFormed()
		w.start("n4")
		w.eventually(30*time.Second, "n4 has a vote", func() bool { return w.node("n4").Status().Voter })
		if _, err := w.create("n4", "/by-n4"); err != nil {
			t.Fatal(err)
		}
		// Every server must find n4 again after a restart, though it is not in
		// their lists.
		for _, name := range []string{"n1", "n2", "n3"} {
			w.kill(name)
			w.start(name)
			w.awaitLeader()
		}
		w.eventually(30*time.Second, "n4 follows", func() bool { return w.node("n4").Status().Leader != "" })
		if _, err := w.create("n4", "/again"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestKilledServerIsSeenAsNotInContact(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(2 * time.Second)
		victim := w.followers()[0]
		w.kill(victim)
		other := w.followers()[0]
		w.eventually(5*time.Second, "the dead server is shown as such", func() bool {
			m := w.node(other).Members(w.t.Context())
			for _, x := range m.Members {
				if x.Name == victim {
					return m.FromLeader && !x.InContact && !x.Ready && x.Detail != "" && x.Role == RoleVoter
				}
			}
			return false
		})
		for _, x := range w.node(other).Members(w.t.Context()).Members {
			if x.Name != victim && (!x.InContact || !x.Ready || x.GRPCAddress != x.Name+":7420" || x.AppliedIndex == 0) {
				t.Errorf("%s: %+v", x.Name, x)
			}
		}
	})
}

func TestMembersWithoutLeaderSaySo(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		w.kill("n1")
		w.kill("n2")
		time.Sleep(3 * time.Second)
		m := w.node("n3").Members(w.t.Context())
		if m.FromLeader || len(m.Members) != 3 {
			t.Errorf("%+v", m)
		}
	})
}

func TestBootstrapNeedsEveryPeerEmptyAndOfOneMind(t *testing.T) {
	cfg := validConfig().withDefaults()
	for _, c := range []struct {
		spoil func(*sighted)
		want  string
	}{
		{func(*sighted) {}, ""},
		{func(s *sighted) { s.err = errors.New("refused") }, "n2 (no answer at h2:1: refused)"},
		{func(s *sighted) { s.reply.HasData = true }, "n2: it has data"},
		{func(s *sighted) { s.reply.ClusterId = newClusterID() }, "n2: it has data"},
		{func(s *sighted) { s.reply.Name = "n3" }, "n2: the server at h2:1 is called n3"},
		{func(s *sighted) { s.reply.ClusterName = "other" }, "n2: its cluster is called other"},
		{func(s *sighted) { s.reply.Peers = s.reply.Peers[:2] }, "n2: its list of peers is another one"},
	} {
		seen := make([]sighted, 2)
		for i, p := range cfg.Peers[1:] {
			seen[i] = sighted{peer: p, reply: &peerpb.DiscoverReply{
				Name: p.Name, ClusterName: cfg.ClusterName, Peers: cfg.peerList(),
			}}
		}
		c.spoil(&seen[0])
		err := mayBootstrap(cfg, seen)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("mayBootstrap = %v, want something about %q", err, c.want)
		}
	}
}
