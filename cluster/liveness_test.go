package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// holder is a client that believes in its session: it sends heartbeats, and its
// deadline is the time at which the newest answered one was sent, plus the
// timeout.
type holder struct {
	*client
	timeout time.Duration
	stop    chan struct{}
	done    sync.WaitGroup

	mu       sync.Mutex
	deadline time.Time
	answered int
	lastErr  error
}

// hold opens a session at a server and keeps it alive.
func (w *world) hold(at string, timeout time.Duration) *holder {
	w.t.Helper()
	sent := time.Now()
	h := &holder{timeout: timeout, stop: make(chan struct{})}
	h.client = w.open(at, timeout)
	h.deadline = sent.Add(timeout)
	h.done.Go(h.beat)
	return h
}

func (h *holder) beat() {
	for {
		sent := time.Now()
		h.mu.Lock()
		node, id, generation := h.host.node, h.id, h.generation
		h.mu.Unlock()
		if node != nil {
			node.Beat(id, generation, func(err error) { h.answer(sent, err) })
		}
		select {
		case <-h.stop:
			return
		case <-time.After(h.timeout / 10):
		}
	}
}

func (h *holder) answer(sent time.Time, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.lastErr = err
		return
	}
	h.answered++
	if d := sent.Add(h.timeout); d.After(h.deadline) {
		h.deadline = d
	}
}

func (h *holder) die() time.Time {
	close(h.stop)
	h.done.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

func (h *holder) believes() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deadline
}

func (h *holder) answers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.answered
}

func (h *holder) move(to string) {
	sent := time.Now()
	h.mu.Lock()
	moved := *h.client
	h.mu.Unlock()
	moved.attach(to)
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.client = moved
	if d := sent.Add(h.timeout); d.After(h.deadline) {
		h.deadline = d
	}
}

// endedAt is the first moment at which any server took the session for ended.
func (w *world) endedAt(id session.ID) (first time.Time) {
	for _, h := range w.hosts {
		if h.hook == nil {
			continue
		}
		h.hook.mu.Lock()
		if at, ok := h.hook.ended[id]; ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
		h.hook.mu.Unlock()
	}
	return first
}

// checkNotEarly fails if the session ended while its client believed in it.
func (w *world) checkNotEarly(h *holder) {
	w.t.Helper()
	if at := w.endedAt(h.id); !at.IsZero() && at.Before(h.believes()) {
		w.t.Errorf("session %v ended %v before its client's deadline", h.id, h.believes().Sub(at))
	}
}

// checkAlive fails if the session has ended, or is not answered any more.
func (w *world) checkAlive(h *holder) {
	w.t.Helper()
	w.checkNotEarly(h)
	if at := w.endedAt(h.id); !at.IsZero() {
		w.t.Errorf("session %v, whose client never stopped, ended", h.id)
	}
	if behind := time.Since(h.believes().Add(-h.timeout)); behind > h.timeout/2 {
		w.t.Errorf("the newest answered heartbeat of session %v is %v old", h.id, behind)
	}
}

const testTimeout = 2 * time.Second

func TestSilentSessionExpiresAfterItsTimeoutAndNotMuchLater(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for _, p := range w.peers {
			h := w.hold(p.Name, testTimeout)
			if r := h.send(ephemeralOp("/e-"+p.Name)).wait(t, 10*time.Second); r.Err != nil {
				t.Fatal(r.Err)
			}
			time.Sleep(3 * testTimeout)
			w.checkAlive(h)
			deadline := h.die()
			w.eventually(2*testTimeout, "the session ends", func() bool { return !w.endedAt(h.id).IsZero() })
			late := w.endedAt(h.id).Sub(deadline)
			if late < 0 || late > 500*time.Millisecond {
				t.Errorf("at %s: ended %v after the client's deadline", p.Name, late)
			}
			w.converged()
			if w.exists("n1", "/e-"+p.Name) {
				t.Error("the ephemeral outlived its session")
			}
		}
	})
}

// F5a: the follower's reports are lost, Raft goes on. The client must not be
// told anything then.
func TestLostReportsNeverLetAClientBelieveTooLong(t *testing.T) {
	for _, afterwards := range []bool{false, true} {
		var losing [4]atomic.Bool
		tune := func(c *Config) {
			i := c.Name[1] - '0'
			c.Faults.Report = func(sent bool) error {
				if losing[i].Load() && sent == afterwards {
					return errors.New("lost")
				}
				return nil
			}
		}
		inFakeTime(t, 3, tune, func(w *world) {
			w.start()
			w.awaitFormed()
			f := w.followers()[0]
			h := w.hold(f, testTimeout)
			time.Sleep(testTimeout)
			losing[f[1]-'0'].Store(true)
			before := h.answers()
			time.Sleep(2 * testTimeout)
			w.checkNotEarly(h)
			if n := h.answers() - before; n > 1 {
				t.Errorf("%d heartbeats were answered without a report", n)
			}
			// Lost requests let the session expire. Lost answers do not: the
			// leader has counted, and only the client does not know.
			if ended := !w.endedAt(h.id).IsZero(); ended == afterwards {
				t.Errorf("answers lost: %v, session ended: %v", afterwards, ended)
			}
			h.die()
		})
	}
}

// F5c: a transfer takes no timeout, so an old leader's answers must not outlive
// its leadership.
func TestHoldersSurviveATransferEvery50ms(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		var holders []*holder
		for _, p := range w.peers {
			holders = append(holders, w.hold(p.Name, testTimeout))
		}
		for range 200 {
			if l := w.leader(); l != "" {
				ctx, cancel := context.WithTimeout(w.t.Context(), 45*time.Millisecond)
				_, _ = w.node(l).Transfer(ctx, "")
				cancel()
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(testTimeout / 2)
		for _, h := range holders {
			w.checkAlive(h)
			h.die()
		}
	})
}

// Elections in a row must not keep a dead client's session alive, though no
// leader but one lasts for half its timeout and nobody can tell its age, because
// its server was restarted after it died.
func TestDeadClientGoesThoughLeadersChange(t *testing.T) {
	for _, reigns := range [][]time.Duration{
		{testTimeout * 7 / 10},
		{testTimeout / 2},
		{testTimeout * 45 / 100},
		{testTimeout * 45 / 100, testTimeout * 15 / 100},
	} {
		inFakeTime(t, 3, nil, func(w *world) {
			w.start()
			w.awaitFormed()
			f := w.followers()
			dead, alive := w.hold(f[0], testTimeout), w.hold(f[1], testTimeout)
			time.Sleep(testTimeout)
			deadline := dead.die()
			w.kill(f[0])
			w.start(f[0])
			elections := w.elect(reigns, deadline.Add(10*testTimeout), dead.id)
			w.checkNotEarly(dead)
			late := w.endedAt(dead.id).Sub(deadline)
			if late < 0 || late > testTimeout || elections < 2 {
				t.Errorf("leaderships of %v: ended %v after the client's deadline, after %d elections", reigns, late, elections)
			}
			w.checkAlive(alive)
			alive.die()
		})
	}
}

// elect hands the leadership over when the leader has been watched for so long,
// the last of reigns again and again, until the session has ended or the time is
// over. It returns how often it did.
func (w *world) elect(reigns []time.Duration, end time.Time, id session.ID) (elections int) {
	for ; time.Now().Before(end) && w.endedAt(id).IsZero(); elections++ {
		reign := reigns[min(elections, len(reigns)-1)]
		l := w.node(w.awaitLeader())
		over := time.Now().Add(reign)
		w.eventually(2*reign, "its time is over", func() bool { return time.Now().After(over) || !w.endedAt(id).IsZero() })
		_, _ = l.Transfer(w.t.Context(), "")
	}
	return elections
}

// F5d: the old server of a moved session has not applied the move, and tells
// the new leader an old age.
func TestOldServerOfAMovedSessionCannotExpireIt(t *testing.T) {
	var stuck [4]atomic.Bool
	tune := func(c *Config) {
		i := c.Name[1] - '0'
		c.Faults.Apply = func(uint64) {
			for stuck[i].Load() {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		old, leaders := w.followers()[0], []string{w.leader(), w.followers()[1]}
		h := w.hold(old, testTimeout)
		time.Sleep(testTimeout)
		stuck[old[1]-'0'].Store(true)
		defer stuck[old[1]-'0'].Store(false)
		h.move(leaders[1])
		for i := range 6 {
			time.Sleep(testTimeout / 3)
			if _, err := w.node(leaders[0]).Transfer(w.t.Context(), leaders[(i+1)%2]); err != nil {
				t.Fatalf("transfer: %v", err)
			}
			w.awaitLeader()
		}
		time.Sleep(testTimeout)
		w.checkAlive(h)
		h.die()
	})
}

// F27: all servers are stopped for 10 s, as with a suspended host. The signs of
// life that wait in the sockets are read after the clocks have jumped.
func TestSessionsSurviveAFreezeOfAllServers(t *testing.T) {
	for _, elect := range []bool{false, true} {
		inFakeTime(t, 3, nil, func(w *world) {
			w.start()
			w.awaitFormed()
			var holders []*holder
			for _, p := range w.peers {
				holders = append(holders, w.hold(p.Name, testTimeout))
			}
			time.Sleep(testTimeout)
			for range 3 {
				for _, h := range w.hosts {
					h.mu.Lock()
					h.jumped += 10 * time.Second
					h.mu.Unlock()
				}
				if elect {
					_, _ = w.node(w.awaitLeader()).Transfer(w.t.Context(), "")
				}
				time.Sleep(testTimeout)
			}
			for _, h := range holders {
				if at := w.endedAt(h.id); !at.IsZero() {
					t.Errorf("with election %v: a session was expired by the freeze", elect)
				}
				h.die()
			}
		})
	}
}

func TestSessionLivesOnThroughTheDeathOfTheLeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		h := w.hold(w.followers()[0], testTimeout)
		time.Sleep(testTimeout)
		w.kill(w.leader())
		time.Sleep(2 * testTimeout)
		w.checkAlive(h)
		h.die()
	})
}

func TestBeatOfASessionThatIsGoneSaysSo(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		f := w.followers()
		h := w.hold(f[0], testTimeout)
		h.die()
		ask := func(at string, generation uint64) error {
			got := make(chan error, 1)
			w.node(at).Beat(h.id, generation, func(err error) { got <- err })
			select {
			case err := <-got:
				return err
			case <-time.After(5 * time.Second):
				return errors.New("no answer")
			}
		}
		if err := ask(f[0], 1); err != nil {
			t.Errorf("alive: %v", err)
		}
		moved := *h.client
		moved.attach(f[1])
		if err := ask(f[0], 1); !errors.Is(err, session.ErrMoved) {
			t.Errorf("moved: %v", err)
		}
		w.eventually(3*testTimeout, "the session ends", func() bool { return !w.endedAt(h.id).IsZero() })
		time.Sleep(time.Second)
		if err := ask(f[1], 2); !errors.Is(err, session.ErrExpired) {
			t.Errorf("expired: %v", err)
		}
	})
}

func TestUncountedSignOfLifeGrowsOldWithoutALeader(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n1", 10*time.Second)
		w.node("n1").Heard(c.id, c.generation)
		w.eventually(time.Second, "it is counted", func() bool { return w.node("n1").Uncounted(c.id, c.generation) == 0 })
		w.kill("n2")
		w.kill("n3")
		time.Sleep(2 * time.Second)
		w.node("n1").Heard(c.id, c.generation)
		time.Sleep(time.Second)
		w.node("n1").Heard(c.id, c.generation)
		age := w.node("n1").Uncounted(c.id, c.generation)
		if age < 900*time.Millisecond {
			t.Errorf("the oldest uncounted sign of life is %v old, want about a second", age)
		}
		if of := w.node("n1").OldestUncounted(); of < age {
			t.Errorf("the oldest one of all is %v old, that of one session %v", of, age)
		}
	})
}

// A suspicion that was not taken back through the log would let the next leader
// expire a session whose client was answered meanwhile.
func TestAnswerAfterASuspicionHoldsUnderTheNextLeader(t *testing.T) {
	var losing [4]atomic.Bool
	tune := func(c *Config) {
		i := c.Name[1] - '0'
		c.Faults.Report = func(sent bool) error {
			if losing[i].Load() && !sent {
				return errors.New("lost")
			}
			return nil
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		f := w.followers()[0]
		h := w.hold(f, testTimeout)
		time.Sleep(testTimeout)
		losing[f[1]-'0'].Store(true)
		time.Sleep(testTimeout * 7 / 10)
		if !w.suspect(f, h.id) {
			t.Fatal("the session is not under suspicion: nothing is tested")
		}
		losing[f[1]-'0'].Store(false)
		before := h.answers()
		w.eventually(time.Second, "heartbeats are answered again", func() bool { return h.answers() > before })
		losing[f[1]-'0'].Store(true)
		if _, err := w.node(w.leader()).Transfer(w.t.Context(), w.followers()[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * testTimeout)
		w.checkNotEarly(h)
		if w.endedAt(h.id).IsZero() {
			t.Error("the session did not end at all")
		}
		h.die()
	})
}

func (w *world) suspect(at string, id session.ID) (yes bool) {
	w.node(at).Machine().View(func(v *fsm.View) { s := v.Sessions.Get(id); yes = s != nil && s.Suspected != 0 })
	return yes
}

// cutOnTransfer cuts the old leader off in the moment in which it has handed
// over, so that it takes itself for the leader until its lease runs out.
type cutOnTransfer struct{ cut func() }

func (c *cutOnTransfer) beforeSend(raft.ServerID, rpcKind) error { return nil }

func (c *cutOnTransfer) afterAnswer(_ raft.ServerID, kind rpcKind) error {
	if kind == rpcTimeoutNow {
		c.cut()
	}
	return nil
}

// The counting of a deposed leader is worth nothing, however short it lasts.
func TestHeartbeatIsNotAnsweredByALeaderThatIsDeposed(t *testing.T) {
	faults := &cutOnTransfer{}
	tune := func(c *Config) {
		c.transport = faults
		c.SessionMin = testTimeout / 10 // reports must be frequent to meet the moment
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		old, next := w.leader(), w.followers()[0]
		h := w.hold(old, testTimeout)
		time.Sleep(testTimeout)
		faults.cut = func() {
			for _, p := range w.peers {
				if p.Name != old {
					w.net.cut(old+":7421", p.Address)
				}
			}
		}
		ctx, cancel := context.WithTimeout(w.t.Context(), 50*time.Millisecond)
		_, _ = w.node(old).Transfer(ctx, next)
		cancel()
		for range 100 { // more heartbeats than usual, to meet the moment
			sent := time.Now()
			w.node(old).Beat(h.id, h.generation, func(err error) { h.answer(sent, err) })
			time.Sleep(time.Millisecond)
		}
		time.Sleep(2 * testTimeout)
		w.checkNotEarly(h)
		if w.endedAt(h.id).IsZero() {
			t.Error("the session of a server that is cut off did not end")
		}
		h.die()
	})
}

// At a new leader, only the very start of the server that has the session may
// say that it was silent for long.
func TestOnlyTheOwnerLowersWhatANewLeaderAssumes(t *testing.T) {
	for _, owner := range []bool{false, true} {
		var losing atomic.Bool
		inFakeTime(t, 3, func(c *Config) {
			c.Faults.Report = func(bool) error {
				if losing.Load() {
					return errors.New("lost")
				}
				return nil
			}
		}, func(w *world) {
			w.start()
			w.awaitFormed()
			losing.Store(true)
			c := w.open(w.leader(), testTimeout)
			at := c.host.node
			for w.leader() == c.host.peer.Name {
				_, _ = at.Transfer(w.t.Context(), "")
				w.awaitLeader()
			}
			leader := w.node(w.leader())
			boot := at.Boot()
			if !owner {
				boot++
			}
			rep := leader.handleReport(w.t.Context(), serverID(at.ServerID()), &peerpb.ReportRequest{
				Term: leader.Status().Term, Id: at.ServerID(), Boot: boot,
				Heard: []*peerpb.HeardSession{{Session: uint64(c.id), Generation: c.generation, AgeUs: 60e6}},
			})
			if rep.GetRefused() != "" {
				t.Fatal(rep.GetRefused())
			}
			time.Sleep(testTimeout / 2)
			if ended := !w.endedAt(c.id).IsZero(); ended != owner {
				t.Errorf("told by the owner: %v, session ended: %v", owner, ended)
			}
		})
	}
}
