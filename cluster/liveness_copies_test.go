package cluster

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// copier keeps the first command of a kind that is forwarded, and brings a copy
// of it before what is forwarded next when it is asked to.
type copier struct {
	kind fsm.Kind

	mu   sync.Mutex
	kept []byte
	due  bool
}

func (c *copier) forward(cmds [][]byte) [][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range cmds {
		var cmd fsm.Command
		if c.kept == nil && fsm.DecodeCommand(b, &cmd) == nil && cmd.Kind == c.kind {
			c.kept = slices.Clone(b)
		}
	}
	if c.due {
		c.due = false
		return append([][]byte{c.kept}, cmds...)
	}
	return cmds
}

// copyNow forwards the copy, together with a command of a session that never was
// open: a command on the server's own line would acknowledge the copy's number.
func (c *copier) copyNow(w *world, at string) {
	w.t.Helper()
	c.mu.Lock()
	c.due = true
	c.mu.Unlock()
	in, line := newMailbox(), fsm.LineRef{Session: 77, Generation: 1}
	w.node(at).Submit(line, 1, fsm.AppendCommand(nil, &fsm.Command{Kind: fsm.CmdClose, Line: line, Seq: 1}), in)
	in.wait(w.t, 5*time.Second)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.due || c.kept == nil {
		w.t.Fatal("nothing was copied: nothing is tested")
	}
}

// The mark of suspicion stays in the table when a copy of the attach arrives, so
// the leader must not forget it: the next leader counts from it.
func TestLateCopyOfAnAttachTakesNoSuspicionBack(t *testing.T) {
	var losing [4]atomic.Bool
	late := &copier{kind: fsm.CmdAttach}
	tune := func(c *Config) {
		i := c.Name[1] - '0'
		c.Faults.Forward = late.forward
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
		h.move(f)
		time.Sleep(testTimeout)
		losing[f[1]-'0'].Store(true)
		time.Sleep(testTimeout * 7 / 10)
		if !w.suspect(f, h.id) {
			t.Fatal("the session is not under suspicion: nothing is tested")
		}
		late.copyNow(w, f)
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

// A copy of the open of a session that has ended is answered from memory; the
// leader must not watch over that session again, for ever.
func TestLateCopyOfAnOpenBringsNoSessionBack(t *testing.T) {
	late := &copier{kind: fsm.CmdOpen}
	inFakeTime(t, 3, func(c *Config) { c.Faults.Forward = late.forward }, func(w *world) {
		w.start()
		w.awaitFormed()
		f := w.followers()[0]
		c := w.open(f, testTimeout)
		w.eventually(2*testTimeout, "the silent session has ended", func() bool { return !w.endedAt(c.id).IsZero() })
		late.copyNow(w, f)
		l := w.node(w.leader()).live.Load()
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.expiry.Len(); n != 0 {
			t.Errorf("the leader watches over %d sessions, and there is none", n)
		}
	})
}

// If a report could find the mark before the suspicion is in the queue, taking
// it back would come first in the log, and the suspicion would stay.
func TestSuspicionIsQueuedInTheStepThatMarksIt(t *testing.T) {
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
		c := w.open(w.followers()[0], testTimeout)
		l := w.node(w.leader()).live.Load()
		for silent, _ := l.silentFor(c.id); silent < session.FirstMark(testTimeout); silent, _ = l.silentFor(c.id) {
			time.Sleep(time.Millisecond)
		}
		if marked, _ := l.markedNow(c.id); marked {
			t.Fatal("it was marked before this test could look: nothing is tested")
		}
		// Nothing gets into the queue as long as this is held; fake time stands
		// still meanwhile, so nobody else looks.
		l.reign.batch.mu.Lock()
		done := make(chan struct{})
		go func() { l.look(); close(done) }()
		for held := 0; held < 1000; runtime.Gosched() {
			marked, free := l.markedNow(c.id)
			if marked {
				t.Error("a report can find the mark before the suspicion is queued")
				break
			}
			if held++; free {
				held = 0 // look has not come so far
			}
		}
		l.reign.batch.mu.Unlock()
		<-done
		if marked, _ := l.markedNow(c.id); !marked {
			t.Error("the silent session is not marked")
		}
	})
}

// markedNow says whether a suspicion of the session was proposed; free is false
// if that cannot be read because the lock is held.
func (l *liveness) markedNow(id session.ID) (marked, free bool) {
	if !l.mu.TryLock() {
		return false, false
	}
	defer l.mu.Unlock()
	return l.marked[id] > 0, true
}
