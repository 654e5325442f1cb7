package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/coordd/coord/fsm"
)

// A command that cannot be read stops every replica that comes to it.
func TestBadlyMadeCommandIsAnsweredAndStopsNobody(t *testing.T) {
	inFakeTime(t, 3, nil, func(w *world) {
		w.start()
		w.awaitFormed()
		for i, at := range []string{w.leader(), w.followers()[0]} {
			c := w.open(at, 30*time.Second)
			c.seq++
			bad := newMailbox()
			c.host.node.Submit(c.line(), c.seq, []byte("no command"), bad)
			good := c.send(createOp("/behind-" + at)) // not stuck behind it
			if r := bad.wait(t, 5*time.Second); !errors.Is(r.Err, fsm.ErrInternal) {
				t.Errorf("at %s a badly made command was answered %v %v", at, r.Status, r.Err)
			}
			checkDone(t, good)

			own := newMailbox()
			c.host.node.Propose(&fsm.Command{Kind: fsm.CmdRemoveServer, Server: "n3~1", Term: 1}, own) // for the leader alone
			if r := own.wait(t, 5*time.Second); !errors.Is(r.Err, fsm.ErrInternal) {
				t.Errorf("at %s a command for the leader alone was answered %v %v", at, r.Status, r.Err)
			}
			if n := c.host.node.Counters().Malformed; n != 2 {
				t.Errorf("%d malformed at server %d", n, i)
			}
		}
		w.converged()
		for name, h := range w.hosts {
			if len(h.fatals) > 0 {
				t.Errorf("%s: %v", name, h.fatals)
			}
		}
	})
}
