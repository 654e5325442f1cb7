package cluster

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// appendGate loses every message with log entries while it is shut; heartbeats
// and votes pass.
type appendGate struct{ shut atomic.Bool }

func (g *appendGate) beforeSend(_ raft.ServerID, kind rpcKind) error {
	if kind == rpcAppend && g.shut.Load() {
		return errors.New("lost")
	}
	return nil
}

func (g *appendGate) afterAnswer(raft.ServerID, rpcKind) error { return nil }

// A new leader has all that was committed in its log, but does not know yet how
// far that is: the commit index it has is an old one.
func TestNewLeaderAnswersNoReadBeforeItsEpochIsOpen(t *testing.T) {
	gate := &appendGate{}
	inFakeTime(t, 3, func(c *Config) { c.transport = gate }, func(w *world) {
		w.start()
		w.awaitFormed()
		w.converged()
		next := w.node(w.followers()[0])
		gate.shut.Store(true)
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		_, _ = w.node(w.leader()).Transfer(ctx, next.cfg.Name)
		if _, leads := next.leads(); !leads {
			t.Fatal("the new leader does not lead: nothing is tested")
		}
		if index, err := next.leaderReadIndex(ctx); err == nil {
			t.Errorf("a leader whose epoch is not open lets read at %d", index)
		}
		gate.shut.Store(false)
		if err := next.Linearize(w.t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// What a session has in the log is a sign of life, whether or not its server's
// reports arrive.
func TestCommandsKeepASessionAliveWithoutReports(t *testing.T) {
	var losing atomic.Bool
	tune := func(c *Config) {
		c.Faults.Report = func(bool) error {
			if losing.Load() {
				return errors.New("lost")
			}
			return nil
		}
	}
	inFakeTime(t, 3, tune, func(w *world) {
		w.start()
		w.awaitFormed()
		losing.Store(true)
		c := w.open(w.followers()[0], testTimeout)
		for range 12 {
			time.Sleep(testTimeout / 4)
			c.send(createOp("/w"))
		}
		if at := w.endedAt(c.id); !at.IsZero() {
			t.Error("a session that writes all the time was expired")
		}
	})
}

// A suspicion that was proposed while an older one was being taken back is in the
// log or on its way there, though the table does not show it yet.
func TestNewerSuspicionIsNotTakenForTheOneThatIsGone(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n1", 10*testTimeout)
		l := w.node("n1").live.Load()
		ids := []session.ID{c.id}
		before := l.marks(ids)
		if still := l.believe(ids, before); len(still) > 0 {
			t.Fatalf("nothing was proposed meanwhile: %v", still)
		}
		l.mu.Lock()
		l.marked[c.id]++
		l.mu.Unlock()
		if still := l.believe(ids, before); !slices.Equal(still, ids) {
			t.Errorf("another suspicion was proposed meanwhile: still suspect are %v", still)
		}
	})
}

// What was applied between the look at the silent sessions and the look at the
// table is a sign of life that the proposal's condition would not see.
func TestSilenceIsLookedAtAgainBeforeItIsProposed(t *testing.T) {
	inFakeTime(t, 1, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		c := w.open("n1", testTimeout)
		l := w.node("n1").live.Load()
		l.ifStillSilent(c.id, testTimeout, func(time.Duration) { t.Error("a session that was heard just now is proposed") })
		proposed := false
		l.ifStillSilent(c.id, 0, func(time.Duration) { proposed = true })
		if !proposed {
			t.Error("a silent session is not proposed")
		}
	})
}

// A server that joins while the leader looks at the membership must not lose its
// number line: nothing that it proposes would be done any more.
func TestOnlyLinesOfServersThatLeftAreForgotten(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		leader := w.node(w.leader())
		k := &keeper{node: leader, reign: leader.reign.Load()}
		gone := &fsm.Command{Kind: fsm.CmdBoot, Boot: &fsm.Boot{Server: "n9~00000000000000aa", Nonce: 1}}
		k.reign.batch.propose(gone, func(error) {})
		time.Sleep(100 * time.Millisecond)
		k.forgetLeft()
		time.Sleep(100 * time.Millisecond)
		var lines []string
		leader.machine.View(func(v *fsm.View) {
			for l := range v.Sessions.Servers() {
				lines = append(lines, serverID(l.Server).name())
			}
		})
		if !slices.Equal(lines, []string{"n1", "n2", "n3"}) {
			t.Errorf("lines of %v", lines)
		}
	})
}

// F21: what a server offers over two streams must not be mixed.
func TestNewForwardStreamIsReadWhenTheOldOneIsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var in intake
		oldCtx, cancelOld := context.WithCancel(t.Context())
		endOld, err := in.begin(oldCtx, "n1~0000000000000001", cancelOld)
		if err != nil {
			t.Fatal(err)
		}
		var reading atomic.Bool
		newCtx, cancelNew := context.WithCancel(t.Context())
		defer cancelNew()
		go func() {
			end, err := in.begin(newCtx, "n1~0000000000000001", cancelNew)
			if err != nil {
				t.Error(err)
				return
			}
			reading.Store(true)
			end()
		}()
		synctest.Wait()
		if oldCtx.Err() == nil {
			t.Error("the old stream is not ended")
		}
		if reading.Load() {
			t.Error("two streams of one server are read")
		}
		endOld()
		synctest.Wait()
		if !reading.Load() {
			t.Error("the new stream is not read")
		}
	})
}

// What waits when a line is offered again is not sent twice.
func TestWaitingCommandsAreOfferedOnceAfterAGap(t *testing.T) {
	f, a := newTestForwarder(), answers{}
	a.submit(f, testLine, 1, 2, 3)
	f.mu.Lock()
	f.reofferLocked(f.sessions[lineKey{testLine.Session, testLine.Generation}])
	f.mu.Unlock()
	if got := seqs(offered(t, f)); got != " 1/1 2/1 3/1" {
		t.Errorf("offered%s", got)
	}
}
