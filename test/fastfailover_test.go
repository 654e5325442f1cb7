package test

import (
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// slowTimers are timers of Raft that never run out in these tests: what happens
// before is not theirs.
const (
	slowTimers = "raft: {heartbeat: 8s, election: 8s, lease: 4s, write_deadline: 60s}\n"
	slowTimer  = 8 * time.Second
)

// term is the term that a server is in.
func (p *process) term() uint64 {
	p.c.t.Helper()
	st, err := p.status()
	if err != nil {
		p.c.t.Fatal(err)
	}
	return st.Term
}

// TestKilledLeaderIsFollowedWithoutATimer: a process that has ended is seen to have
// ended, by clients of both ports.
func TestKilledLeaderIsFollowedWithoutATimer(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, slowTimers)
	w := startCounters(t, c.endpoints(), 4)
	zkOpen(t, c.leader().zookeeper()).must(zkCreate("/zk", "", 0))
	for range 3 {
		w.waitProgress(slowTimer)
		lead := c.leader()
		z := zkOpen(t, c.follower().zookeeper())
		w.resetPause()
		lead.kill()
		begin := time.Now()
		z.must(zkSet("/zk", "", -1))
		if took := time.Since(begin); took > slowTimer/2 {
			t.Errorf("a client of the ZooKeeper port waited %v, the timers of Raft take at least %v", took, slowTimer)
		}
		w.waitProgress(2 * slowTimer)
		if p := w.longestPause(); p > slowTimer/2 {
			t.Errorf("a client waited %v, the timers of Raft take at least %v", p, slowTimer)
		}
		lead.start()
		c.waitReady(4 * slowTimer)
		z.must(wire.Request{Op: wire.Op{Type: wire.CloseSession}})
	}
	w.stop()
	c.sameDigests()
}

// TestStoppedLeaderIsNotTakenForDead: a process that stands still has refused
// nothing. It goes on as the leader.
func TestStoppedLeaderIsNotTakenForDead(t *testing.T) {
	skipIfShort(t)
	c := startProcesses(t, 3, slowTimers)
	w := startCounters(t, c.endpoints(), 4)
	w.waitProgress(slowTimer)
	lead := c.leader()
	term := lead.term()
	lead.signal(syscall.SIGSTOP)
	time.Sleep(slowTimer / 4)
	lead.signal(syscall.SIGCONT)
	w.waitProgress(2 * slowTimer)
	if now := c.leader(); now != lead || now.term() != term {
		t.Errorf("%s leads term %d, and it was %s in term %d before that stood still for %v", now.name, now.term(), lead.name, term, slowTimer/4)
	}
	w.stop()
}
