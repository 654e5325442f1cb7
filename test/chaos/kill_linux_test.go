package chaos

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/coordd/coord/internal/seed"
	"github.com/coordd/coord/test/internal/child"
)

// smallLogs makes snapshots come often, so that servers are killed in the middle
// of them, and come back to leaders that have cut their logs.
const smallLogs = "raft: {snapshot_log_size: 1MiB}\n"

// sliceOfKills is how many kills share a history.
const sliceOfKills = 50

// TestKills kills servers at random, one or some or all at once, in the middle of
// whatever they do, their own start too. Nothing acknowledged is lost, nothing is
// done twice, and in the end all have the same state.
func TestKills(t *testing.T) {
	skipIfShort(t)
	for _, c := range sizes(*kills) {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, seed.New(t), rigOptions{servers: c.servers, config: smallLogs})
			for done := 0; done < c.share && !t.Failed(); {
				l := r.startLoad(loadOptions{root: fmt.Sprintf("/kills-%d", done), clients: 5})
				slice := min(sliceOfKills, c.share-done)
				for n := 0; n < slice; {
					n += r.killSome(l, slice-n)
				}
				r.startAll()
				r.waitReady(time.Minute)
				l.finish()
				done += slice
				t.Logf("%d kills after %v", done, time.Since(r.began).Round(time.Second))
			}
		})
	}
}

// size is a cluster, and its share of what is to be done.
type size[T any] struct {
	name    string
	servers int
	share   T
}

// sizes shares what is to be done between clusters of three and of five servers.
// In the second a majority outlives that two are hurt at once.
func sizes[T ~int | ~int64](total T) []size[T] {
	return []size[T]{{"OfThree", 3, total - total/2}, {"OfFive", 5, total / 2}}
}

// killSome kills one server or more, but at most most of them, and starts them
// again after a while. It returns how many it has killed.
func (r *rig) killSome(l *load, most int) int {
	var victims []*node
	switch r.rnd.IntN(10) {
	case 0:
		victims = r.nodes
	case 1, 2:
		if most >= len(r.nodes) {
			return r.killInTurn()
		}
		victims = r.few(r.rnd)
	case 3, 4:
		victims = r.others(r.few(r.rnd)...)
	case 5, 6, 7:
		victims = r.few(r.rnd, r.leader())
	default:
		victims = r.few(r.rnd)
	}
	victims = victims[:min(len(victims), most)]
	for _, p := range victims {
		r.tell("kill %s", p.name)
		p.Kill()
	}
	r.pause(400 * time.Millisecond)
	r.startAll()
	// Now and then the next kill comes before the servers are up.
	if r.rnd.IntN(3) > 0 {
		r.leader()
		l.progressOr(20, time.Second)
	}
	r.pause(800 * time.Millisecond)
	return len(victims)
}

// killInTurn kills all servers, the leader last and a moment later, and starts it
// last, when the others have a leader: what it alone has written in that moment is
// gone, so nobody may have been told of it.
func (r *rig) killInTurn() int {
	last := r.leader()
	rest := r.others(last)
	for _, p := range rest {
		r.tell("kill %s, soon %s", p.name, last.name)
		p.Kill()
	}
	r.pause(300 * time.Millisecond)
	last.Kill()
	for _, p := range rest {
		p.start()
	}
	r.leader()
	r.pause(500 * time.Millisecond)
	r.startAll()
	r.pause(500 * time.Millisecond)
	return len(r.nodes)
}

func (r *rig) startAll() {
	r.t.Helper()
	for _, p := range r.nodes {
		p.start()
	}
}

// pause waits for a random time.
func (r *rig) pause(most time.Duration) { time.Sleep(time.Duration(r.rnd.Int64N(int64(most)))) }

// TestFollowerThatHasJustCaughtUpLeads kills the leader at the moment at which a
// follower that was away has caught up, and the third server is behind: whoever
// leads then has everything that was acknowledged, and hands it on.
func TestFollowerThatHasJustCaughtUpLeads(t *testing.T) {
	skipIfShort(t)
	r := newRig(t, seed.New(t), rigOptions{servers: 3, config: smallLogs})
	l := r.startLoad(loadOptions{root: "/caught-up", clients: 5})
	for round := range 6 {
		lead := r.leader()
		rest := r.others(lead)
		back, behind := rest[round%2], rest[1-round%2]
		r.tell("round %d: %s leads, %s comes back, %s stays behind", round, lead.name, back.name, behind.name)
		back.Kill()
		l.waitProgress(100, time.Minute)
		back.start()
		child.Poll(t, time.Minute, back.name+" caught up", func() error { return caughtUp(back, lead) })
		behind.Signal(syscall.SIGSTOP)
		// From here on the two others agree among themselves.
		l.progressOr(40, 2*time.Second)
		child.Poll(t, time.Minute, back.name+" caught up", func() error { return caughtUp(back, lead) })
		r.pause(20 * time.Millisecond)
		lead.Kill()
		behind.Signal(syscall.SIGCONT)
		l.waitProgress(100, time.Minute)
		lead.start()
		r.waitReady(time.Minute)
	}
	l.finish()
}

// caughtUp returns nil when p has applied what the leader had committed a moment
// ago.
func caughtUp(p, lead *node) error {
	at, err := lead.status()
	if err != nil {
		return err
	}
	st, err := p.status()
	if err != nil {
		return err
	}
	if st.GetAppliedIndex() < at.GetCommitIndex() {
		return fmt.Errorf("at %d of %d", st.GetAppliedIndex(), at.GetCommitIndex())
	}
	return nil
}
