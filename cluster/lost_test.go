package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
)

// heartbeatTimer is the least time after which a follower misses a leader that is
// silent.
const heartbeatTimer = defaultHeartbeat

// leading is who leads, and since when.
type leading struct {
	name string
	term uint64
}

func (w *world) leading() leading {
	name := w.awaitLeader()
	term, _ := w.node(name).leads()
	return leading{name, term}
}

// checkStays fails if somebody else led, or the same in another term, at any time.
func (w *world) checkStays(l leading, d time.Duration) {
	w.t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if term, ok := w.node(l.name).leads(); !ok || term != l.term {
			w.t.Fatalf("%s led term %d and was deposed: it is at term %d, leads %v", l.name, l.term, term, ok)
		}
	}
}

func (w *world) address(name string) string { return w.hosts[name].peer.Address }

// followed kills the leader and returns how long the others had none.
func (w *world) followed(leader string) time.Duration {
	w.t.Helper()
	from := time.Now()
	w.unplug(leader)
	w.awaitLeader()
	took := time.Since(from)
	w.shutdown(leader)
	return took
}

// A leader whose process has ended is followed before any timer has run out, in
// clusters of three and five.
func TestDeadLeaderIsFollowedBeforeAnyTimer(t *testing.T) {
	for _, servers := range []int{3, 5} {
		inFakeTime(t, servers, nil, func(w *world) {
			w.start()
			w.awaitFormed()
			time.Sleep(time.Second)
			old := w.leading()
			if took := w.followed(old.name); took >= heartbeatTimer {
				t.Errorf("of %d servers one led after %v, a timer takes at least %v", servers, took, heartbeatTimer)
			}
			if now := w.leading(); now.term != old.term+1 {
				t.Errorf("the new leader has term %d after %d: votes were split", now.term, old.term)
			}
		})
	}
}

// Two servers that die at once cost no timer either, whoever is left.
func TestTwoDeadAtOnceAreFollowedBeforeAnyTimer(t *testing.T) {
	for _, second := range []int{0, 1, 2, 3} {
		inFakeTime(t, 5, nil, func(w *world) {
			w.start()
			w.awaitFormed()
			time.Sleep(time.Second)
			old := w.leading()
			other := w.followers()[second]
			w.unplug(other)
			if took := w.followed(old.name); took >= heartbeatTimer {
				t.Errorf("with %s dead as well one led after %v, a timer takes at least %v", other, took, heartbeatTimer)
			}
			if now := w.leading(); now.term != old.term+1 {
				t.Errorf("the new leader has term %d after %d: votes were split", now.term, old.term)
			}
		})
	}
}

// One that lacks the last entries does not stand, and takes no vote from the others.
func TestDeadLeaderIsFollowedThoughOneIsBehind(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		old := w.leading()
		behind := w.followers()[0] // the one with the smallest id, too
		w.net.cut(w.address(old.name), w.address(behind))
		if _, err := w.create(old.name, "/ahead"); err != nil {
			t.Fatal(err)
		}
		if took := w.followed(old.name); took >= heartbeatTimer {
			t.Errorf("one led after %v, a timer takes at least %v", took, heartbeatTimer)
		}
		if now := w.leading(); now.name == behind || now.term != old.term+1 {
			t.Errorf("%s leads term %d after %d, %s is behind", now.name, now.term, old.term, behind)
		}
		w.net.heal(w.address(old.name), w.address(behind))
		w.converged()
	})
}

// Of two that ask each other only one stands: the worse one lets the better one
// have its turn, and who has begun to stand says so.
func TestOfTwoThatAskEachOtherOneStands(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		old := w.leading()
		better, worse := w.node(w.followers()[0]), w.node(w.followers()[1])
		for _, n := range []*Node{better, worse} {
			n.losses.tried = old.term // they stand only when this test says so
		}
		leader := serverID(w.node(old.name).ServerID())
		asks := func(from, to *Node) (t testimony) {
			end := from.logEnd()
			r := from.losses.ask(w.t.Context(), to.id, &peerpb.LeaderLostRequest{
				Term: old.term, Leader: string(leader), LastIndex: end.index, LastTerm: end.term,
			})
			t.hear(witness{to.id, r}, old.term, end, from.id)
			return t
		}
		w.unplug(old.name)
		if heard := asks(worse, better); !slices.Equal(heard.better, []serverID{better.id}) || better.losses.turnOfOthers(old.term) != 0 {
			t.Errorf("the worse one hears %+v, and the better one waits %v for it", heard, better.losses.turnOfOthers(old.term))
		}
		if heard := asks(better, worse); len(heard.lost) != 1 || len(heard.better) != 0 {
			t.Errorf("the better one hears %+v", heard)
		}
		if worse.losses.turnOfOthers(old.term) != lostTurn || worse.losses.claim(old.term) {
			t.Error("the worse one stands although it has told the better one to")
		}
		time.Sleep(lostTurn)
		if !worse.losses.claim(old.term) {
			t.Error("the better one has not stood, and the worse one waits on")
		}
		if heard := asks(better, worse); len(heard.lost) != 0 || len(heard.stood) != 1 {
			t.Errorf("of one that is about to stand the better one hears %+v", heard)
		}
		if worse.losses.turnOfOthers(old.term) != 0 {
			t.Error("one that is about to stand gives its turn away")
		}
	})
}

// Each is waited for once, and once more when it has begun to stand: somebody
// stands in the end, whatever the others do.
func TestTurnsEnd(t *testing.T) {
	var g turnsGiven
	for i, c := range []struct {
		heard testimony
		want  time.Duration
	}{
		{testimony{better: []serverID{"a", "b"}}, 2 * lostTurn},
		{testimony{better: []serverID{"a", "b"}}, 0},
		{testimony{better: []serverID{"b", "c"}}, lostTurn},
		{testimony{better: []serverID{"b"}, stood: []serverID{"a"}}, lostStood},
		{testimony{better: []serverID{"b", "c"}, stood: []serverID{"a"}}, 0},
	} {
		if got := g.wait(c.heard); got != c.want {
			t.Errorf("look %d: waits %v, want %v", i, got, c.want)
		}
	}
}

// One more that is cut off, and says nothing when it is asked, costs no timer.
func TestDeadLeaderIsFollowedThoughOneIsSilent(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		old := w.leading()
		silent := w.followers()[0]
		for _, p := range w.peers {
			if p.Name != silent {
				w.net.cut(w.address(silent), p.Address)
			}
		}
		time.Sleep(50 * time.Millisecond)
		if took := w.followed(old.name); took >= heartbeatTimer {
			t.Errorf("one led after %v, a timer takes at least %v", took, heartbeatTimer)
		}
		for _, p := range w.peers {
			if p.Name != silent {
				w.net.heal(w.address(silent), p.Address)
			}
		}
		w.converged()
	})
}

// The one with the longer log stands, so that no votes are lost on the other.
func TestServerWithTheLongerLogFollowsTheDeadLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		old := w.leading()
		for _, behind := range w.followers() { // also the one whose id is smaller
			ahead := w.followers()[0]
			if ahead == behind {
				ahead = w.followers()[1]
			}
			w.net.cut(w.address(old.name), w.address(behind))
			if _, err := w.create(ahead, "/"+behind); err != nil {
				t.Fatal(err)
			}
			w.kill(old.name)
			w.net.heal(w.address(old.name), w.address(behind))
			w.eventually(10*time.Second, "a leader", func() bool { return w.leader() != "" })
			if now := w.leading(); now.name != ahead || now.term != old.term+1 {
				t.Errorf("%s leads term %d after %d, want %s the next term", now.name, now.term, old.term, ahead)
			}
			w.start(old.name)
			w.awaitFormed()
			if _, err := w.node(w.leader()).Transfer(w.t.Context(), old.name); err != nil {
				t.Fatal(err)
			}
			w.converged()
			time.Sleep(time.Second)
			old = w.leading()
		}
	})
}

// Whatever one of them sees, as long as a majority hears the leader it stays.
func TestLeaderThatIsHeardIsNeverDeposed(t *testing.T) {
	for name, disturb := range map[string]func(w *world, leader, one, other string) (heal func()){
		"all its connections are reset": func(w *world, leader, one, other string) func() {
			w.net.reset(leader, one)
			w.net.reset(leader, other)
			return func() {}
		},
		"connections with one are reset": func(w *world, leader, one, _ string) func() {
			w.net.reset(leader, one)
			return func() {}
		},
		"connections with one are reset and refused": func(w *world, leader, one, _ string) func() {
			w.net.refuse(leader, one)
			return func() { w.net.admit(leader, one) }
		},
		"one is without any connection": func(w *world, leader, one, other string) func() {
			w.net.refuse(leader, one)
			w.net.refuse(other, one)
			return func() { w.net.admit(leader, one); w.net.admit(other, one) }
		},
		"it accepts no connections": func(w *world, leader, _, _ string) func() { return w.net.deafen(leader) },
		"one hears nothing and is heard": func(w *world, leader, one, _ string) func() {
			w.net.cutOneWay(leader, one)
			return func() { w.net.heal(leader, one) }
		},
		"one is not heard and hears": func(w *world, leader, one, _ string) func() {
			w.net.cutOneWay(one, leader)
			return func() { w.net.heal(leader, one) }
		},
		"followers do not reach each other": func(w *world, _, one, other string) func() {
			w.net.refuse(one, other)
			return func() { w.net.admit(one, other) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 3, nil, func(w *world) {
				w.start()
				w.awaitFormed()
				time.Sleep(time.Second)
				l := w.leading()
				f := w.followers()
				heal := disturb(w, w.address(l.name), w.address(f[0]), w.address(f[1]))
				w.checkStays(l, 2*time.Second)
				heal()
				w.checkStays(l, 5*time.Second)
			})
		})
	}
}

// A machine that is off, cut off or stopped refuses nothing: that is for timers.
func TestSilentLeaderIsLeftToTheTimers(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		l := w.leading()
		terms := map[string]uint64{}
		for _, f := range w.followers() {
			w.net.cut(w.address(l.name), w.address(f))
			terms[f] = w.node(f).raft.Load().CurrentTerm()
		}
		for until := time.Now().Add(heartbeatTimer - 50*time.Millisecond); time.Now().Before(until); time.Sleep(time.Millisecond) {
			for f, term := range terms {
				if now := w.node(f).raft.Load().CurrentTerm(); now != term {
					t.Fatalf("%s went to term %d for silence", f, now)
				}
			}
		}
		w.eventually(5*time.Second, "another leader", func() bool {
			for f := range terms {
				if _, ok := w.node(f).leads(); ok {
					return true
				}
			}
			return false
		})
	})
}

// Who is asked says no as long as it hears the leader, and for any other term.
func TestWhoHearsTheLeaderIsNoWitness(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		l := w.leading()
		leader, f := serverID(w.node(l.name).ServerID()), w.node(w.followers()[0])
		if f.losses.gone(w.t.Context(), leader, l.term) {
			t.Error("a leader that is heard is called gone")
		}
		w.kill(l.name)
		// Not the term after: the others elect in it while this is asked.
		if f.losses.gone(w.t.Context(), leader, l.term+100) || f.losses.gone(w.t.Context(), leader, l.term-1) {
			t.Error("the leader of another term is called gone")
		}
		if f.losses.gone(w.t.Context(), serverID(f.ServerID()), l.term) {
			t.Error("a server calls itself gone")
		}
	})
}

// An election of our own is in the term after that of the lost leader, or is not:
// in a later one it would depose who was elected meanwhile.
func TestNobodyStandsAgainstALaterLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		old := w.leading()
		f := w.followers()[0]
		n := w.node(f)
		leader := serverID(w.node(old.name).ServerID())
		to := w.followers()[1]
		s := &standing{term: old.term, begun: make(chan bool, 1), still: func() bool {
			// The question has waited: others have elected in between.
			return n.follows(leader, old.term)
		}}
		if _, err := n.Transfer(w.t.Context(), to); err != nil {
			t.Fatal(err)
		}
		w.eventually(5*time.Second, f+" follows "+to, func() bool { id, _, ok := n.leader(); return ok && id.name() == to })
		l := w.leading()
		if n.transport.Load().inbox.begin(s) {
			t.Error("a server stood for the term of a leader that was elected")
		}
		w.checkStays(l, time.Second)
	})
}

// While a server begins to stand, no message reaches Raft, and none is lost.
func TestMessagesWaitWhileAServerBeginsToStand(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		l := w.leading()
		n := w.node(w.followers()[0])
		r := n.raft.Load()
		s := &standing{term: l.term, begun: make(chan bool, 1)}
		s.still = func() bool {
			before := r.LastContact()
			time.Sleep(heartbeatTimer / 2) // several heartbeats come
			if !r.LastContact().Equal(before) {
				t.Error("a heartbeat reached Raft")
			}
			return false
		}
		if n.transport.Load().inbox.begin(s) {
			t.Error("it stood though something had changed")
		}
		w.checkStays(l, 2*time.Second)
	})
}

func TestTurnstile(t *testing.T) {
	var door turnstile
	never := context.Background().Done()
	if !door.enter(never) || door.shut(time.Millisecond) {
		t.Fatal("it was shut with somebody inside")
	}
	if !door.enter(never) {
		t.Fatal("it stayed shut")
	}
	door.leave()
	door.leave()
	if !door.shut(time.Millisecond) {
		t.Fatal("it was not shut with nobody inside")
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if door.enter(gone.Done()) {
		t.Error("somebody came in")
	}
	in := make(chan bool)
	go func() { in <- door.enter(never) }()
	door.open()
	if !<-in {
		t.Error("who waited did not come in")
	}
}
