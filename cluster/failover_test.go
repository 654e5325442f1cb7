package cluster

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/internal/seed"
)

// writeOn makes each of the clients create znode after znode until stop is
// closed, many at once, and returns how many each has made. An error, or an
// answer that does not come, fails the test.
func writeOn(t *testing.T, clients []*client, stop <-chan struct{}) []int {
	made := make([]int, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			const depth = 16
			var flying []mailbox
			for {
				select {
				case <-stop:
					for _, in := range flying {
						checkDone(t, in)
					}
					return
				default:
				}
				flying = append(flying, c.send(createOp(fmt.Sprintf("/c%d-%d", i, made[i]))))
				made[i]++
				if len(flying) == depth {
					checkDone(t, flying[0])
					flying = flying[1:]
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	return made
}

func checkDone(t *testing.T, in mailbox) {
	select {
	case r := <-in:
		if r.Err != nil || r.Status != fsm.StatusDone && r.Status != fsm.StatusRepeat {
			t.Errorf("write %d of %v: %v %v", r.Seq, r.Line, r.Status, r.Err)
		}
	case <-time.After(30 * time.Second):
		t.Error("a write was never answered")
	}
}

func (w *world) checkAllMade(clients []*client, made []int) {
	w.t.Helper()
	w.converged()
	for i, c := range clients {
		for k := range made[i] {
			if path := fmt.Sprintf("/c%d-%d", i, k); !w.exists(c.host.peer.Name, path) {
				w.t.Errorf("%s is lost", path)
				return
			}
		}
	}
}

// A create that were applied twice would answer "node exists".
func TestPendingWritesSurviveTheLeaderExactlyOnce(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		leader := w.leader()
		var clients []*client
		for _, f := range w.followers() {
			clients = append(clients, w.open(f, 30*time.Second), w.open(f, 30*time.Second))
		}
		stop := make(chan struct{})
		go func() {
			for range 3 {
				time.Sleep(300 * time.Millisecond)
				w.kill(leader)
				time.Sleep(1500 * time.Millisecond)
				w.start(leader)
				time.Sleep(2 * time.Second)
				// Only the server without clients is killed: bring it back to power.
				if _, err := w.node(w.leader()).Transfer(w.t.Context(), leader); err != nil {
					t.Logf("transfer to %s: %v", leader, err)
				}
			}
			close(stop)
		}()
		made := writeOn(t, clients, stop)
		w.checkAllMade(clients, made)
	})
}

// sharedDice are thrown by all servers of a test.
type sharedDice struct {
	mu  sync.Mutex // guards below
	rnd *rand.Rand
}

func newSharedDice(t *testing.T) *sharedDice {
	t.Helper()
	return &sharedDice{rnd: seed.Rand(t)}
}

func (d *sharedDice) below(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.IntN(n)
}

func TestEveryCommandDuplicatedOnTheForwardStreamIsDoneOnce(t *testing.T) {
	var duplicated atomic.Int64
	dice := newSharedDice(t)
	tune := func(c *Config) {
		c.Faults.Forward = func(cmds [][]byte) (out [][]byte) {
			for i, cmd := range cmds {
				out = append(out, cmd, cmds[dice.below(i+1)], cmd)
				duplicated.Add(2)
			}
			return out
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		var clients []*client
		for _, p := range w.peers { // Open is duplicated too: each must give one session
			clients = append(clients, w.open(p.Name, 30*time.Second))
		}
		stop := make(chan struct{})
		go func() {
			time.Sleep(200 * time.Millisecond)
			_, _ = w.node(w.leader()).Transfer(w.t.Context(), "")
			time.Sleep(200 * time.Millisecond)
			close(stop)
		}()
		made := writeOn(t, clients, stop)
		w.checkAllMade(clients, made)
		if n := w.sessions("n1"); n != len(clients) {
			t.Errorf("%d sessions after %d opens", n, len(clients))
		}
	})
	if duplicated.Load() == 0 {
		t.Error("nothing was duplicated")
	}
}

func TestCommandsLostOnTheForwardStreamAreOfferedAgain(t *testing.T) {
	dice := newSharedDice(t)
	tune := func(c *Config) {
		c.Faults.Forward = func(cmds [][]byte) (out [][]byte) {
			for _, cmd := range cmds {
				if dice.below(10) > 0 {
					out = append(out, cmd)
				}
			}
			return out
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.eventually(20*time.Second, "a leader", func() bool { return w.leader() != "" })
		time.Sleep(2 * time.Second)
		// The last command of a line may be lost without a gap to show it, which
		// no network does to a stream. So a transfer at the end offers all again.
		c := w.mustOpen("n2")
		stop := make(chan struct{})
		time.AfterFunc(300*time.Millisecond, func() { close(stop) })
		go func() {
			for range 40 {
				time.Sleep(500 * time.Millisecond)
				if l := w.leader(); l != "" {
					_, _ = w.node(l).Transfer(w.t.Context(), "")
				}
			}
		}()
		made := writeOn(t, []*client{c}, stop)
		time.Sleep(time.Second)
		w.checkAllMade([]*client{c}, made)
		time.Sleep(20 * time.Second)
	})
}

// mustOpen opens a session though commands are lost.
func (w *world) mustOpen(at string) *client {
	w.t.Helper()
	done := make(chan *client, 1)
	go func() { done <- w.open(at, 60*time.Second) }()
	for range 20 {
		select {
		case c := <-done:
			return c
		case <-time.After(200 * time.Millisecond):
			if l := w.leader(); l != "" {
				_, _ = w.node(l).Transfer(w.t.Context(), "")
			}
		}
	}
	w.t.Fatal("no session")
	return nil
}

func (w *world) sessions(at string) (n int) {
	w.node(at).Machine().View(func(v *fsm.View) { n = v.Sessions.Len() })
	return n
}

func TestTransferMovesLeadershipWhereItIsTold(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, p := range w.peers {
			leader, err := w.node("n1").Transfer(w.t.Context(), p.Name)
			if err != nil || leader != p.Name {
				t.Fatalf("transfer to %s: %q, %v", p.Name, leader, err)
			}
			w.eventually(time.Second, p.Name+" leads", func() bool { return w.leader() == p.Name })
		}
		if _, err := w.node("n2").Transfer(w.t.Context(), "n9"); err == nil {
			t.Error("leadership was handed to a server that is not there")
		}
	})
}

func TestCleanStopOfTheLeaderCostsLessThanAnElection(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		leader := w.leader()
		at := w.followers()[0]
		worst := time.Duration(0)
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				start := time.Now()
				if _, err := w.create(at, fmt.Sprintf("/n%d", i)); err != nil {
					t.Errorf("write %d: %v", i, err)
				}
				worst = max(worst, time.Since(start))
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		w.shutdown(leader)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
		time.Sleep(time.Second)
		close(stop)
		<-done
		if worst > 100*time.Millisecond {
			t.Errorf("the longest write took %v", worst)
		}
	})
}

func TestStopWithoutQuorumEndsInTime(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, f := range w.followers() {
			w.kill(f)
		}
		last := ""
		for name, h := range w.hosts {
			if h.node != nil {
				last = name
			}
		}
		w.propose(last, createOp("/never")) // pending for ever
		start := time.Now()
		w.shutdown(last)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the stop took %v", took)
		}
	})
}

func TestRestartOfAllServersKeepsTheState(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		if _, err := w.create("n1", "/kept"); err != nil {
			t.Fatal(err)
		}
		before := w.node("n1").Machine().Zxid()
		for _, p := range w.peers {
			w.kill(p.Name)
		}
		w.start()
		w.awaitFormed()
		if !w.exists("n2", "/kept") {
			t.Error("a znode is lost")
		}
		r, err := w.create("n3", "/later")
		if err != nil {
			t.Fatal(err)
		}
		if r.Zxid <= before || r.Zxid.Epoch() == before.Epoch() {
			t.Errorf("zxid %v after %v: a new leader opens an epoch", r.Zxid, before)
		}
	})
}

// A leader that is frozen takes nothing from its connections, so what is sent to
// it waits. That must end when somebody else leads.
func TestFrozenLeaderDoesNotHoldUpWhatIsOffered(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		old, f := w.leader(), w.followers()[0]
		c := w.open(f, time.Minute)
		for _, p := range w.peers {
			if p.Name != old {
				w.net.cut(old+":7421", p.Address)
			}
		}
		start := time.Now()
		var flying []mailbox
		for i := range 24 { // far more than the connection takes
			flying = append(flying, c.send(bigOp(fmt.Sprintf("/big%d", i), 1<<20)))
		}
		for _, in := range flying {
			checkDone(t, in)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		for _, p := range w.peers {
			if p.Name != old {
				w.net.heal(old+":7421", p.Address)
			}
		}
		w.converged()
	})
}
