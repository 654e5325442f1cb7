package test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// The tests of zk_faults*_test.go show for the ZooKeeper port what those of
// faults_*_test.go show for the other one. docs/testing.md has the whole list.

// zkRiders starts clients that keep their sessions alive through whatever happens,
// until the end of the test.
func zkRiders(t *testing.T, c *processes, n int, timeout time.Duration) []*zkRider {
	t.Helper()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() { close(stop); wg.Wait() })
	var all []*zkRider
	for i := range n {
		r := &zkRider{hosts: c.zkAddresses(), at: i, timeout: timeout, mine: fmt.Sprintf("/alive-%d", i)}
		if err := r.setUp(nil, nil); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
		wg.Go(func() {
			if err := r.run(stop); err != nil {
				t.Errorf("%s: %v", r.mine, err)
			}
		})
	}
	return all
}

// allAlive waits until every rider is connected, with what it owns.
func allAlive(t *testing.T, all []*zkRider, when string) {
	t.Helper()
	for _, r := range all {
		poll(t, 20*time.Second, when, r.alive)
	}
}

// etcd#15247, etcd#12528: a leader that was stopped ended, when it went on, the
// sessions that it had not heard of meanwhile.
func TestStoppedLeaderEndsNoSessionOfZooKeepersClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 3 * time.Second
	c := startProcesses(t, 3, "")
	all := zkRiders(t, c, 12, timeout)
	lead := c.leader()
	lead.signal(syscall.SIGSTOP)
	time.Sleep(timeout + time.Second) // real time is the subject
	allAlive(t, all, "while the former leader is stopped")
	lead.signal(syscall.SIGCONT)
	time.Sleep(timeout + 500*time.Millisecond)
	allAlive(t, all, "when the former leader has gone on")
	c.sameDigests()
}

// etcd#2660: everything with a timeout went at the first moment of a new leader.
func TestTimeWithoutQuorumEndsNoSessionOfZooKeepersClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 4 * time.Second
	c := startProcesses(t, 3, "")
	all := zkRiders(t, c, 50, timeout)
	stopped := []*process{c.leader(), c.follower()}
	for _, p := range stopped {
		p.signal(syscall.SIGSTOP)
	}
	time.Sleep(timeout - 100*time.Millisecond)
	for _, p := range stopped {
		p.signal(syscall.SIGCONT)
	}
	allAlive(t, all, "after a time without quorum")
}

// highestTerm is the newest Raft term that any server knows.
func highestTerm(t testing.TB, c *processes) (term uint64) {
	t.Helper()
	for _, p := range c.nodes {
		st, err := p.status()
		if err != nil {
			t.Fatal(err)
		}
		term = max(term, st.GetTerm())
	}
	return term
}

// consul#1172: sessions lived up to twice their timeout. ClickHouse#116690: a client
// that came back with an expired session was given a new one without a word.
func TestSessionsOfZooKeepersClientsEndOnTimeAndAreToldSo(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const slack = 1800 * time.Millisecond
	c := startProcesses(t, 3, "")
	before := highestTerm(t, c)
	var wg sync.WaitGroup
	for i, timeout := range []time.Duration{2 * time.Second, 3 * time.Second, 5 * time.Second} {
		dead, err := zkLinkTo(c.nodes[i].zookeeper(), timeout, nil)
		if err != nil {
			t.Fatal(err)
		}
		mine := fmt.Sprintf("/mortal-%d", i)
		if _, err := dead.one(zkCreate(mine, "", wire.FlagEphemeral)); err != nil {
			t.Fatal(err)
		}
		watcher, err := zkLinkTo(c.nodes[(i+1)%3].zookeeper(), 20*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		heard := time.Now()
		if _, err := dead.call(zkPatient, zkPing); err != nil {
			t.Fatal(err)
		}
		dead.net.Close()
		wg.Go(func() {
			for {
				rs, err := watcher.call(zkPatient, zkSyncRoot, zkRead(wire.Exists, mine, false))
				if err != nil {
					t.Error(err)
					return
				}
				if rs[1].Err == wire.NoNode {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			lived := time.Since(heard)
			t.Logf("timeout %s: ended after %s", timeout, lived)
			// A busy machine elects now and then: docs/guarantees.md says what each
			// change of leaders may add.
			elections := time.Duration(highestTerm(t, c) - before)
			if most := timeout + slack + elections*(timeout*2/5+time.Second); lived < timeout || lived > most {
				t.Errorf("a session with a timeout of %s ended after %s, at most %s with %d elections", timeout, lived, most, elections)
			}
			for _, host := range c.zkAddresses() {
				if _, err := zkLinkTo(host, timeout, dead); !errors.Is(err, errZKExpired) {
					t.Errorf("%s takes an expired session back: %v", host, err)
				}
			}
		})
	}
	wg.Wait()
}

// ZOOKEEPER-2355: an ephemeral outlived its session on a follower that failed while
// the session ended.
func TestFollowerThatDiesWhileZooKeepersSessionsEndKeepsNoOrphan(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	setup := zkOpen(t, c.leader().zookeeper())
	setup.must(zkCreate("/orphans", "", 0))
	for round := range 3 {
		victim, host := c.follower(), c.leader().zookeeper()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				l, err := zkLinkTo(host, 10*time.Second, nil)
				if err != nil {
					t.Error(err)
					return
				}
				qs := []wire.Request{zkCreate("/orphans/e-", "", 3), zkCreate("/orphans/e-", "", 3), {Op: wire.Op{Type: wire.CloseSession}}}
				if rs, err := l.call(zkPatient, qs...); err != nil || rs[2].Err != wire.OK {
					t.Errorf("round %d, session %d: %v, %v", round, i, rs, err)
				}
			})
		}
		victim.kill()
		wg.Wait()
		victim.start()
		c.waitReady(30 * time.Second)
	}
	for _, host := range c.zkAddresses() {
		l := zkOpen(t, host)
		l.must(zkSyncRoot)
		if r := l.must(zkRead(wire.GetChildren2, "/orphans", false)); len(r.Names) != 0 || r.Stat.Cversion != 240 {
			t.Errorf("%s: %v, %+v", host, r.Names, r.Stat)
		}
	}
	c.sameDigests()
}

// kafka#5575, pulsar#913: a process that was started again took its predecessor's
// ephemeral for its own, and lost it with the old session.
func TestRestartedZooKeeperClientKeepsItsRegistration(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 2 * time.Second
	c := startProcesses(t, 1, "")
	host := c.nodes[0].zookeeper()
	old, err := zkLinkTo(host, timeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.one(zkCreate("/broker", "1", wire.FlagEphemeral)); err != nil {
		t.Fatal(err)
	}
	old.net.Close() // killed
	next := zkOpen(t, host)
	next.wants(wire.NodeExists, zkCreate("/broker", "2", wire.FlagEphemeral))
	if r := next.must(zkRead(wire.Exists, "/broker", true)); r.Stat.EphemeralOwner != old.session {
		t.Fatalf("owner %s, want the old session", r.Stat.EphemeralOwner)
	}
	next.must(zkDelete("/broker", 0))
	next.must(zkCreate("/broker", "2", wire.FlagEphemeral))
	for deadline := time.Now().Add(2 * timeout); time.Now().Before(deadline); time.Sleep(timeout / 10) {
		if r := next.must(zkRead(wire.GetData, "/broker", false)); r.Stat.EphemeralOwner != next.session || string(r.Data) != "2" {
			t.Fatalf("the registration: %q of %s", r.Data, r.Stat.EphemeralOwner)
		}
	}
	if _, err := zkLinkTo(host, timeout, old); !errors.Is(err, errZKExpired) {
		t.Errorf("the old session has not ended: this shows nothing (%v)", err)
	}
}

// etcd PR#13932: a sign of life right after the grant, at another server, was
// answered wrongly.
func TestSessionOfAZooKeeperClientCanMoveAtOnce(t *testing.T) {
	t.Parallel()
	c := startProcesses(t, 3, "")
	for i := range 30 {
		l, err := zkLinkTo(c.nodes[i%3].zookeeper(), 10*time.Second, nil)
		for hop := 1; hop < 4 && err == nil; hop++ {
			l, err = zkLinkTo(c.nodes[(i+hop)%3].zookeeper(), 10*time.Second, l)
			if err == nil {
				_, err = l.call(zkPatient, zkPing)
			}
		}
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		l.net.Close()
	}
}

// kazoo 89e0660: large answers, one behind the other, left no room for heartbeats.
func TestLargeAnswersDoNotEndZooKeepersSessions(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 2 * time.Second
	c := startProcesses(t, 3, "")
	host := c.follower().zookeeper()
	l, err := zkLinkTo(host, timeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.one(zkCreate("/large", "", 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.one(zkCreate("/large/mine", "", wire.FlagEphemeral)); err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("n", 200)
	for range 20 {
		var ops []wire.Op
		for range 100 {
			ops = append(ops, zkCreate("/large/"+name, "", wire.FlagSequential).Op)
		}
		if _, err := l.one(zkMulti(ops...)); err != nil {
			t.Fatal(err)
		}
	}
	var qs []wire.Request
	for range 16 {
		qs = append(qs, zkRead(wire.GetChildren, "/large", false))
	}
	lists, moves := 0, 0
	for deadline := time.Now().Add(3 * timeout); time.Now().Before(deadline); {
		rs, err := l.call(zkPatient, append(qs, zkPing)...)
		lists += len(rs)
		if err == nil {
			continue
		}
		// On a machine that is busy a server sends clients away of which it cannot
		// tell the leader.
		if moves++; moves > 3 {
			t.Fatalf("after %d lists: %v", lists, err)
		}
		if l, err = zkLinkAny(c.zkAddresses(), 0, timeout, l); err != nil {
			t.Fatalf("after %d lists: %v", lists, err)
		}
	}
	rs, err := l.call(zkPatient, zkRead(wire.Exists, "/large/mine", false))
	if err != nil || rs[0].Stat.EphemeralOwner != l.session || lists < 100 {
		t.Errorf("after %d lists: %+v, %v", lists, rs, err)
	}
}

// curator#3, go-zookeeper#229: a create was committed, its answer lost, and the
// entry stayed for ever. Whatever became of it, it came about once, and it goes with
// the session.
func TestLostAnswerToACreateMakesNoSecondNode(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	setup := zkOpen(t, c.nodes[0].zookeeper())
	setup.must(zkCreate("/once", "", 0))
	l, err := zkLinkTo(c.nodes[0].zookeeper(), 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	const rounds = 60
	for i := range rounds {
		data := fmt.Sprint(i)
		if _, err := l.send(zkCreate("/once/c-", data, wire.FlagEphemeralSequential), zkSet("/once", data, -1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i%7) * 300 * time.Microsecond) // the answer may be on its way, or not
		l.net.Close()
		if l, err = zkLinkTo(c.nodes[(i+1)%3].zookeeper(), 10*time.Second, l); err != nil {
			t.Fatal(err)
		}
	}
	rs, err := l.call(zkPatient, zkSyncRoot, zkRead(wire.GetChildren, "/once", false))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, name := range rs[1].Names {
		r, err := l.one(zkRead(wire.GetData, "/once/"+name, false))
		if err != nil {
			t.Fatal(err)
		}
		seen[string(r.Data)]++
	}
	for data, n := range seen {
		if n != 1 {
			t.Errorf("create %s was applied %d times", data, n)
		}
	}
	if len(seen) < rounds/4 {
		t.Errorf("only %d of %d were applied: this shows little", len(seen), rounds)
	}
	if _, err := l.one(wire.Request{Op: wire.Op{Type: wire.CloseSession}}); err != nil {
		t.Fatal(err)
	}
	setup.must(zkSyncRoot)
	if r := setup.must(zkRead(wire.GetChildren, "/once", false)); len(r.Names) != 0 {
		t.Errorf("left behind: %v", r.Names)
	}
}
