package test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/wire"
)

// zkTunnel is a client of the ZooKeeper port that sends 64 requests at a time:
// sequential creates, sets that depend on the one before, and reads of them.
type zkTunnel struct {
	*zkLink
	dir   string
	sets  int
	made  int
	waits time.Duration // the longest for an answer
}

const zkDepth = 64

// round sends a pipeline and checks each of its answers.
func (z *zkTunnel) round() error {
	var qs []wire.Request
	for i := range zkDepth / 4 {
		qs = append(qs,
			zkCreate(z.dir+"/s-", "", wire.FlagSequential),
			zkSet(z.dir, strconv.Itoa(z.sets+i+1), int32(z.sets+i)),
			zkRead(wire.GetData, z.dir, false),
			zkCreate(z.dir+"/e-", "", wire.FlagEphemeralSequential))
	}
	start := time.Now()
	rs, err := z.call(zkPatient+5*time.Second, qs...)
	z.waits = max(z.waits, time.Since(start))
	if err != nil {
		return fmt.Errorf("after %d of %d answers: %w", len(rs), len(qs), err)
	}
	for i, r := range rs {
		if err := z.check(i%4, &r); err != nil {
			return err
		}
	}
	return nil
}

// check compares an answer with the only one that is right: names and versions go
// up by one, and a read shows the set before it.
func (z *zkTunnel) check(kind int, r *zkReply) error {
	if r.Err != wire.OK {
		return fmt.Errorf("request %d: %w", r.Xid, r.Err)
	}
	switch kind {
	case 0, 3:
		prefix := map[int]string{0: "/s-", 3: "/e-"}[kind]
		if want := fmt.Sprintf("%s%s%010d", z.dir, prefix, z.made); r.Path != want {
			return fmt.Errorf("created %s, want %s", r.Path, want)
		}
		z.made++
	case 1:
		z.sets++
		if r.Stat.Version != int64(z.sets) {
			return fmt.Errorf("set %d made version %d", z.sets, r.Stat.Version)
		}
	case 2:
		if string(r.Data) != strconv.Itoa(z.sets) {
			return fmt.Errorf("a read behind set %d shows %q", z.sets, r.Data)
		}
	}
	return nil
}

// leaderBut is the leader when it is another server than keep: that one is paused
// until it has lost the office. pauses counts the beginnings and ends of it.
func (c *processes) leaderBut(keep *process, pauses *atomic.Int32) *process {
	c.t.Helper()
	for {
		lead := c.leader()
		if lead != keep {
			return lead
		}
		pauses.Add(1)
		keep.signal(syscall.SIGSTOP)
		poll(c.t, 20*time.Second, "another leader", func() error {
			for _, p := range c.nodes {
				if st, err := p.status(); err == nil && p != keep && st.Leader == p.name {
					return nil
				}
			}
			return errors.New("nobody else leads")
		})
		keep.signal(syscall.SIGCONT)
		pauses.Add(1)
	}
}

// TestKillOfTheLeaderIsOnlyADelayToZooKeepersClients: connections to another server
// stand, every request is answered once and in its order, and pings are answered
// while nobody leads.
func TestKillOfTheLeaderIsOnlyADelayToZooKeepersClients(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	c := startProcesses(t, 3, "")
	home := c.follower()
	const clients, kills = 4, 5
	stop := make(chan struct{})
	var wg sync.WaitGroup
	tunnels := make([]*zkTunnel, clients)
	for i := range tunnels {
		l, err := zkLinkTo(home.zookeeper(), 10*time.Second, nil)
		if err != nil {
			t.Fatal(err)
		}
		z := &zkTunnel{zkLink: l, dir: fmt.Sprintf("/t%d", i)}
		if _, err := l.one(zkCreate(z.dir, "0", 0)); err != nil {
			t.Fatal(err)
		}
		tunnels[i] = z
		wg.Go(func() {
			for !isDone(stop) {
				if err := z.round(); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	var pauses atomic.Int32
	pings := &zkPings{pauses: &pauses}
	pings.start(t, home.zookeeper(), stop, &wg)
	for range kills {
		time.Sleep(300 * time.Millisecond)
		lead := c.leaderBut(home, &pauses)
		lead.kill()
		time.Sleep(300 * time.Millisecond)
		lead.start()
		poll(t, 30*time.Second, "ready again", lead.ready)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d pings, the slowest took %s", pings.n, pings.slowest)
	if pings.slowest > 4*time.Second || pings.n < 50 {
		t.Errorf("a ping took %s, of %d", pings.slowest, pings.n)
	}
	for i, z := range tunnels {
		if z.sets < 2*zkDepth {
			t.Errorf("client %d: only %d sets: this shows little", i, z.sets)
		}
		t.Logf("client %d: %d sets, %d creates, the longest round took %s", i, z.sets, z.made, z.waits)
	}
	c.checkTunnels(t, tunnels)
	c.sameDigests()
}

func isDone(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}

// zkPings pings a server from a connection of its own, and keeps the longest time
// that one took while the server was not paused.
type zkPings struct {
	pauses  *atomic.Int32
	n       int
	slowest time.Duration
}

func (z *zkPings) start(t *testing.T, host string, stop <-chan struct{}, wg *sync.WaitGroup) {
	t.Helper()
	l, err := zkLinkTo(host, 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		for !isDone(stop) {
			start, pauses := time.Now(), z.pauses.Load()
			if _, err := l.call(zkPatient, zkPing); err != nil {
				t.Errorf("ping %d: %v", z.n, err)
				return
			}
			z.n++
			if pauses%2 == 0 && z.pauses.Load() == pauses {
				z.slowest = max(z.slowest, time.Since(start))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// checkTunnels compares what was answered with what is there, at each server.
func (c *processes) checkTunnels(t *testing.T, tunnels []*zkTunnel) {
	t.Helper()
	for _, host := range c.zkAddresses() {
		l := zkOpen(t, host)
		l.must(zkSyncRoot)
		for i, z := range tunnels {
			r := l.must(zkRead(wire.GetChildren2, z.dir, false))
			if len(r.Names) != z.made || r.Stat.Version != int64(z.sets) {
				t.Errorf("client %d: %d creates and %d sets were answered, and there are %d and %d", i, z.made, z.sets, len(r.Names), r.Stat.Version)
			}
			slices.SortFunc(r.Names, func(a, b string) int { return slices.Compare([]byte(a[2:]), []byte(b[2:])) })
			for k, name := range r.Names {
				if name[2:] != fmt.Sprintf("%010d", k) {
					t.Errorf("client %d: name %d is %s", i, k, name)
					break
				}
			}
		}
	}
}

// TestPingsAreAnsweredWithoutALeaderUntilTheSessionIsAtRisk: a ping says that the
// server is there, so a client must not be kept by a server from which the leader
// hears nothing. After a third of the timeout it is sent away, with the rest left.
func TestPingsAreAnsweredWithoutALeaderUntilTheSessionIsAtRisk(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 6 * time.Second
	c := startProcesses(t, 3, "")
	home := c.follower()
	l, err := zkLinkTo(home.zookeeper(), timeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.one(zkCreate("/mine", "", wire.FlagEphemeral)); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.nodes {
		if p != home {
			p.signal(syscall.SIGSTOP)
		}
	}
	paused := time.Now()
	if _, err := l.send(zkCreate("/pending-", "", wire.FlagSequential)); err != nil { // pings do not wait for it
		t.Fatal(err)
	}
	answered := 0
	for err == nil && time.Since(paused) < timeout {
		start := time.Now()
		if _, err = l.call(timeout, zkPing); err == nil {
			answered++
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("a ping without a leader took %s", took)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	lasted := time.Since(paused)
	if answered < 10 || lasted < timeout/6 || lasted > timeout*2/3 {
		t.Errorf("the connection was closed after %s and %d pings, want about %s: %v", lasted, answered, timeout/3, err)
	}
	for _, p := range c.nodes {
		p.signal(syscall.SIGCONT)
	}
	next, err := zkLinkAny(c.zkAddresses(), 0, timeout, l)
	if err != nil {
		t.Fatalf("the session was lost: %v", err)
	}
	r, err := next.one(zkRead(wire.Exists, "/mine", false))
	if err != nil || r.Stat.EphemeralOwner != l.session {
		t.Errorf("the ephemeral: %+v, %v", r.Stat, err)
	}
	r, err = next.one(zkRead(wire.GetChildren, "/", false))
	if err != nil || len(r.Names) > 3 {
		t.Errorf("what was asked for once was done more often: %v, %v", r.Names, err)
	}
	t.Logf("closed after %s and %d pings", lasted, answered)
}

// owner is a client of the server that owns an ephemeral, dir/mine.
func (p *process) owner(t *testing.T, timeout time.Duration) (a *zkLink, dir string) {
	t.Helper()
	tries := 0
	poll(t, zkPatient, "a session with an ephemeral", func() (err error) {
		tries++
		if a, err = zkLinkTo(p.zookeeper(), timeout, nil); err != nil {
			return err
		}
		dir = fmt.Sprintf("/moves-%s-%d", p.name, tries)
		rs, err := a.call(zkPatient, zkCreate(dir, "", 0), zkCreate(dir+"/mine", "", wire.FlagEphemeral))
		if err == nil && rs[1].Err != wire.OK {
			err = fmt.Errorf("create: %w", rs[1].Err)
		}
		return err
	})
	return a, dir
}

// TestSessionMovesWhileItsOldServerStandsStill: what the client has sent to the old
// server is not carried out when that goes on, and the old server neither ends the
// session nor keeps it.
func TestSessionMovesWhileItsOldServerStandsStill(t *testing.T) {
	t.Parallel()
	skipIfShort(t)
	const timeout = 2 * time.Second
	c := startProcesses(t, 3, "")
	for _, pick := range []func() *process{c.follower, c.leader} {
		old := pick()
		a, dir := old.owner(t, timeout)
		old.signal(syscall.SIGSTOP)
		time.Sleep(50 * time.Millisecond) // until it stands still
		if _, err := a.send(zkCreate(dir+"/ghost", "", 0), zkSet(dir, "ghost", -1), zkRead(wire.Exists, dir, false)); err != nil {
			t.Fatal(err)
		}
		var others []string
		for _, p := range c.nodes {
			if p != old {
				others = append(others, p.zookeeper())
			}
		}
		b, err := zkLinkAny(others, 0, timeout, a)
		if err != nil {
			t.Fatalf("%s: moving: %v", old.name, err)
		}
		// What the old server had taken before it stood still came before the move.
		rs, err := b.call(zkPatient, zkSyncRoot, zkRead(wire.Exists, dir+"/ghost", false), zkRead(wire.GetData, dir, false), zkSet(dir+"/mine", "moved", 0))
		if err != nil || rs[3].Err != wire.OK {
			t.Fatal(rs, err)
		}
		before, data := rs[1].Err, string(rs[2].Data)
		old.signal(syscall.SIGCONT)
		for deadline := time.Now().Add(2 * timeout); time.Now().Before(deadline); {
			if _, err := b.call(zkPatient, zkPing); err != nil {
				if b, err = zkLinkAny(others, 0, timeout, b); err != nil {
					t.Fatalf("%s: the session's new connection: %v", old.name, err)
				}
			}
			time.Sleep(timeout / 10)
		}
		rs, err = b.call(zkPatient, zkSyncRoot, zkRead(wire.Exists, dir+"/ghost", false), zkRead(wire.GetData, dir, false), zkRead(wire.GetData, dir+"/mine", false))
		if err != nil {
			t.Fatal(err)
		}
		if rs[1].Err != before || string(rs[2].Data) != data {
			t.Errorf("%s: writes of the former connection were carried out behind the move: %s, %q; before: %s, %q", old.name, rs[1].Err, rs[2].Data, before, data)
		}
		if before == wire.OK {
			t.Logf("%s: the writes came before the move", old.name)
		}
		if string(rs[3].Data) != "moved" || rs[3].Stat.EphemeralOwner != a.session {
			t.Errorf("%s: the ephemeral: %q of %s", old.name, rs[3].Data, rs[3].Stat.EphemeralOwner)
		}
		for err == nil { // what was in flight may be answered, then it is closed
			_, err = a.frame(zkPatient)
		}
		c.waitReady(30 * time.Second)
	}
	c.sameDigests()
}
