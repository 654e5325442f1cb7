package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

// reign is one leadership of this server, from the moment its state machine has
// applied the NewEpoch of term until it is known to be over.
type reign struct {
	term   uint64
	since  time.Duration // on the node's monotonic clock
	batch  *batcher
	live   *liveness
	steady steadiness
	// digests compares the states of the servers.
	digests *digests
	// over is closed at the end, when nothing offered here is proposed any more.
	over chan struct{}
}

// epochRetry is how long the leader waits before it asks or proposes again.
const epochRetry = 10 * time.Millisecond

// leadLoop opens the state for each leadership of this server and reigns as
// long as it lasts. It compares terms and needs no signal that one began or
// ended: two leaderships within a moment may give one signal, or two.
func (n *Node) leadLoop(ctx context.Context) {
	said := announcer{log: n.log}
	defer said.look(0, false)
	for ctx.Err() == nil {
		changed := n.changed.C()
		term, ok := n.leads()
		if said.look(term, ok); !ok {
			pause(ctx, changed, n.cfg.slowly(roleTick))
			continue
		}
		if n.machine.EpochTerm() != term {
			if err := n.openEpoch(ctx, term); err != nil {
				n.log.Debug("cannot open the epoch", "term", term, "err", err)
				pause(ctx, nil, epochRetry)
			}
			continue
		}
		n.reignOver(ctx, term, &said)
	}
}

// openEpoch proposes NewEpoch for term with the lower median of a majority's
// clocks, and waits until it is applied here.
func (n *Node) openEpoch(ctx context.Context, term uint64) error {
	p, err := n.rounds.join(ctx)
	if err != nil {
		return err
	}
	if p.term != term {
		return errRound
	}
	clock := lowerMedian(p.clocks)
	n.warnOfClock(clock)
	e := &fsm.NewEpoch{Term: term, Clock: clock, ClusterID: n.stores.cluster()}
	if n.machine.EpochTerm() == 0 {
		e.MinEpoch = n.cfg.firstEpoch(time.UnixMilli(clock))
	}
	entry := fsm.NewBatch(nil, clock)
	entry = fsm.AppendToBatch(entry, fsm.AppendCommand(nil, &fsm.Command{Kind: fsm.CmdNewEpoch, Epoch: e}))
	return n.raft.Load().Apply(entry, 0).Error()
}

// maxClockSkew is how far this server's clock may be from the cluster's before
// somebody must look.
const maxClockSkew = time.Minute

func (n *Node) warnOfClock(clock int64) {
	off := time.Duration(n.clockMS()-clock) * time.Millisecond
	if off.Abs() > maxClockSkew {
		n.log.Error("the clock of this server is far from that of the others", "event", "clock_skew", "off", off)
	}
}

// reignOver leads until the leadership of term is lost or ctx ends.
func (n *Node) reignOver(ctx context.Context, term uint64, said *announcer) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := n.newReign(term)
	said.reigns(term)
	n.reign.Store(r)
	n.changed.flash()
	var parts sync.WaitGroup
	parts.Go(func() {
		defer cancel()
		if err := r.batch.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			said.fails(err)
		}
	})
	parts.Go(func() { r.live.run(ctx) })
	parts.Go(func() { n.reapLoop(ctx, r) })
	parts.Go(func() { n.memberLoop(ctx, r) })
	n.awaitDeposition(ctx, term)
	cancel()
	n.reign.Store(nil)
	r.batch.end()
	parts.Wait()
	close(r.over)
	n.changed.flash()
}

func (n *Node) awaitDeposition(ctx context.Context, term uint64) {
	for ctx.Err() == nil {
		changed := n.changed.C()
		if now, ok := n.leads(); !ok || now != term {
			return
		}
		pause(ctx, changed, n.cfg.slowly(roleTick))
	}
}

// newReign makes the parts of a reign. The cluster clock goes on from the
// state's, which NewEpoch has just set, by this server's monotonic clock: never
// by its wall clock.
func (n *Node) newReign(term uint64) *reign {
	since := n.now()
	base := n.stateClock()
	clock := func() int64 { return base + (n.now() - since).Milliseconds() }
	r := &reign{term: term, since: since, digests: newDigests(), over: make(chan struct{})}
	r.batch = newBatcher(n.raft.Load(), clock, n.entryCommitted, n.cfg.Timings.Commit)
	r.batch.failed = func(commands int) { n.counters.unsettled.Add(uint64(commands)) }
	r.batch.may = n.mayPropose
	r.live = newLiveness(n, r)
	return r
}

func (n *Node) stateClock() (ms int64) {
	n.machine.View(func(v *fsm.View) { ms = v.Clock })
	return ms
}

// awaitReign returns this server's reign of term, waiting for its NewEpoch. It
// returns errReignOver if this server does not lead the term, or no more.
func (n *Node) awaitReign(ctx context.Context, term uint64) (*reign, error) {
	for {
		changed := n.changed.C()
		if r := n.reign.Load(); r != nil && r.term == term {
			return r, nil
		}
		if now, ok := n.leads(); !ok || now != term {
			return nil, errReignOver
		}
		if awaitChange(ctx, changed); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// entryCommitted tells the followers at once that an entry of ours is
// committed: they would learn it from the next entry only, or 50 ms later. The
// term is the entry's own, as the state machine saw it.
func (n *Node) entryCommitted(index uint64) {
	e := n.lastEntry.Load()
	if e == nil || e.index != index {
		return // a newer entry is on its way, and says it
	}
	self := func(s raft.Server) bool { return s.ID == raft.ServerID(n.id) }
	n.notifier.committed(e.index, e.term, slices.DeleteFunc(slices.Clone(n.members()), self))
}
