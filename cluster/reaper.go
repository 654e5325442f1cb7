package cluster

import (
	"context"
	"time"

	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/znode"
)

const (
	// reapTick is how often the leader looks for containers and znodes with a TTL
	// whose time has come. Somebody may wait for such a one to go, as for a lock
	// whose holder is lost, so it is short; a look costs a read lock and the
	// first entry of a list, and nothing is proposed when nothing is due.
	reapTick = 100 * time.Millisecond
	// maxReaps bounds one command of the reaper.
	maxReaps = 1000
)

// reapLoop deletes empty containers and znodes past their TTL, while r
// lasts. The deletion is conditional on what was found, so a znode that is
// used meanwhile stays.
func (n *Node) reapLoop(ctx context.Context, r *reign) {
	every(ctx, n.cfg.slowly(reapTick), func() { n.reapOnce(ctx, r) })
}

func (n *Node) reapOnce(ctx context.Context, r *reign) {
	for {
		now := r.batch.clock()
		var found []znode.Reap
		n.machine.View(func(v *fsm.View) { found = v.Tree.Expired(now, maxReaps) })
		if len(found) == 0 {
			return
		}
		done := make(chan error, 1)
		r.batch.propose(&fsm.Command{Kind: fsm.CmdReap, Reap: found, Term: r.term}, func(err error) { done <- err })
		select {
		case err := <-done:
			if err != nil || len(found) < maxReaps {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

const (
	// trimTick is how often the answers of idle sessions are dropped.
	trimTick = 2 * time.Second
	// maxTrims bounds one command, and maxTrimsNoted what waits for it. A client
	// that is not noted says it again with its next write.
	maxTrims      = 1000
	maxTrimsNoted = 1 << 16
)

// trimLoop tells the state which answers idle clients have.
func (n *Node) trimLoop(ctx context.Context) {
	every(ctx, n.cfg.slowly(trimTick), func() {
		if _, _, ok := n.leader(); !ok {
			return // they would only pile up
		}
		for _, trims := range n.dueTrims() {
			n.Propose(&fsm.Command{Kind: fsm.CmdTrim, Trim: trims}, nil)
		}
	})
}

// dueTrims turns what was noted into commands, without what the state knows.
func (n *Node) dueTrims() [][]fsm.Trim {
	noted := n.trims.take()
	if len(noted) == 0 {
		return nil
	}
	var due []fsm.Trim
	n.machine.View(func(v *fsm.View) {
		for id, upto := range noted {
			if s := v.Sessions.Get(id); s != nil && s.Line.Acked() < upto {
				due = append(due, fsm.Trim{Session: id, Upto: upto})
			}
		}
	})
	var out [][]fsm.Trim
	for len(due) > maxTrims {
		out, due = append(out, due[:maxTrims]), due[maxTrims:]
	}
	if len(due) > 0 {
		out = append(out, due)
	}
	return out
}
