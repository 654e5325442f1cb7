package cluster

import (
	"testing"
	"time"
)

// others are the addresses of all servers but one.
func (w *world) others(name string) (out []string) {
	for _, p := range w.peers {
		if p.Name != name {
			out = append(out, p.Address)
		}
	}
	return out
}

// A server that has begun a fast election, and was cut off before anybody heard of
// it, has the term after the dead leader's. It asks before each later one, so it
// comes back with no later term than the leader that the others have elected.
func TestServerThatStoodAloneNeverDeposesTheNextLeader(t *testing.T) {
	inFakeTime(t, 5, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		time.Sleep(time.Second)
		old := w.leading()
		alone := w.followers()[0]
		n := w.node(alone)
		for _, other := range w.others(alone) {
			w.net.cut(w.address(alone), other)
		}
		if !n.transport.Load().inbox.begin(&standing{term: old.term, begun: make(chan bool, 1), still: func() bool { return true }}) {
			t.Fatal("it did not stand")
		}
		if took := w.followed(old.name); took >= heartbeatTimer {
			t.Errorf("the others have a leader after %v", took)
		}
		w.keepsOffice(func() {
			time.Sleep(20 * time.Second)
			if term := n.raft.Load().CurrentTerm(); term != old.term+1 {
				t.Errorf("alone it went to term %d, it stood in %d", term, old.term+1)
			}
			for _, other := range w.others(alone) {
				w.net.heal(w.address(alone), other)
			}
			w.eventually(10*time.Second, "it follows", func() bool { return n.Status().Leader == w.leader() })
		})
		w.converged()
	})
}

// A server that does not know of its removal takes the refusals of all others for
// their ends. It finds no witness, and is told when it reaches them again.
func TestServerRemovedWhileItIsRefusedNeverDeposesTheLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		victim, other := w.followers()[0], w.followers()[1]
		w.keepsOffice(func() {
			for _, a := range w.others(victim) {
				w.net.refuse(w.address(victim), a)
			}
			time.Sleep(time.Second)
			w.mustRemove(other, victim)
			time.Sleep(10 * time.Second)
			// First only the way to the other follower is back, which would vote if it
			// had lost the leader, too.
			w.net.admit(w.address(victim), w.address(other))
			time.Sleep(2 * time.Second)
			for _, a := range w.others(victim) {
				w.net.admit(w.address(victim), a)
			}
			w.wantRemoved(victim, 15*time.Second)
		})
	})
}

// Links that carry in one direction only, for long and again and again, leave the
// leader alone, and so does the server that comes back from behind them.
func TestServerCutOneWayNeverDeposesTheLeader(t *testing.T) {
	for name, cut := range map[string]func(w *world, alone, other string){
		"it hears nobody":    func(w *world, alone, other string) { w.net.cutOneWay(other, alone) },
		"nobody hears it":    func(w *world, alone, other string) { w.net.cutOneWay(alone, other) },
		"reset before a cut": func(w *world, alone, other string) { w.net.reset(alone, other); w.net.cutOneWay(other, alone) },
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, 5, nil, func(w *world) {
				w.start()
				w.awaitFormed()
				alone := w.followers()[0]
				w.keepsOffice(func() {
					for range 3 {
						for _, other := range w.others(alone) {
							cut(w, w.address(alone), other)
						}
						time.Sleep(10 * time.Second)
						for _, other := range w.others(alone) {
							w.net.heal(w.address(alone), other)
						}
						time.Sleep(2 * time.Second)
					}
					w.eventually(10*time.Second, "it follows", func() bool { return w.node(alone).Status().Leader == w.leader() })
				})
				w.converged()
			})
		})
	}
}
