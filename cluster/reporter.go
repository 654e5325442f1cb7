package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/fsm"
	"github.com/coordd/coord/session"
)

// reporter tells the leader, again and again, which sessions were heard here
// and how this server is; the leader's own server reports to itself. From what
// is acknowledged it also knows how old the state here may be.
type reporter struct {
	node     *Node
	interval time.Duration
	timeout  time.Duration // of one report
	last     time.Duration // when the last one began, on the node's clock
	digests  digestState

	mu    sync.Mutex
	marks []currency // acknowledged and not yet reached by the state machine, oldest first
	fresh time.Duration
	known bool // fresh is set
}

// currency says that everything committed by the time at has an index up to
// commit.
type currency struct {
	commit uint64
	at     time.Duration
}

// idleReport is how often a server reports that has heard nothing: the leader
// must know that it is alive, and it how old its state is.
const idleReport = 300 * time.Millisecond

// maxCurrencies bounds the acknowledgements that wait for the state machine. If
// it is that far behind, the newest one in the list stands for those dropped.
const maxCurrencies = 64

func newReporter(n *Node) *reporter {
	interval := n.cfg.reportInterval()
	return &reporter{node: n, interval: interval, timeout: max(4*interval, 2*n.cfg.Election)}
}

// run reports until ctx ends.
func (r *reporter) run(ctx context.Context) {
	tick := time.NewTicker(r.interval)
	defer tick.Stop()
	ask := newLeaderDialogue(r.node, r.timeout, openReports)
	defer ask.close()
	for {
		r.reportOnce(ctx, ask)
		select {
		case <-ctx.Done():
			r.node.signs.close(ErrStopped)
			return
		case <-tick.C:
		}
	}
}

func (r *reporter) reportOnce(ctx context.Context, link *leaderDialogue[peerpb.ReportRequest, peerpb.ReportReply]) {
	leader, term, ok := r.node.leader()
	now := r.node.now()
	if !ok || r.node.signs.none() && now-r.last < r.node.cfg.slowly(idleReport) {
		return
	}
	r.last = now
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	heard := r.node.signs.take()
	sent := r.node.now()
	req := r.request(term, heard)
	rep, err := r.send(ctx, link, leader, req)
	if err == nil && rep.GetRefused() != "" {
		err = errors.New(rep.GetRefused())
	}
	if err != nil {
		r.node.signs.failed()
		r.node.log.Debug("report not acknowledged", "peer", string(leader), "err", err)
		return
	}
	r.digests.answered(req.GetDigests())
	r.node.heed(rep)
	r.node.noteQuorum(quorumRoom{low: rep.GetDiskFull(), spent: rep.GetDiskSpent(), why: rep.GetDiskWhy()})
	if rep.GetFormed() {
		r.node.formed.Store(true)
	}
	r.acknowledge(currency{rep.GetCommitIndex(), sent})
	r.node.signs.acked(r.judge(rep.GetDropped(), heard))
}

func (r *reporter) send(ctx context.Context, link *leaderDialogue[peerpb.ReportRequest, peerpb.ReportReply],
	leader serverID, req *peerpb.ReportRequest,
) (*peerpb.ReportReply, error) {
	lose := r.node.cfg.Faults.Report
	if lose == nil {
		lose = func(bool) error { return nil }
	}
	if err := lose(false); err != nil {
		return nil, err
	}
	if leader == r.node.id {
		return r.node.handleReport(ctx, r.node.id, req), lose(true)
	}
	rep, err := link.ask(ctx, leader, req)
	return rep, errors.Join(err, lose(true))
}

func (r *reporter) request(term uint64, heard []reported) *peerpb.ReportRequest {
	req := &peerpb.ReportRequest{
		Term: term, Id: string(r.node.id), Boot: r.node.boot, Self: r.node.selfState(),
		Heard:   make([]*peerpb.HeardSession, len(heard)),
		Digests: r.digests.newMarks(r.node.machine, term), DigestVersion: fsm.DigestVersion,
	}
	now := r.node.signs.time()
	for i, h := range heard {
		req.Heard[i] = &peerpb.HeardSession{
			Session: uint64(h.id), Generation: h.generation,
			AgeUs: int64((now - h.last + time.Microsecond - 1) / time.Microsecond),
		}
	}
	return req
}

// judge looks in the own table for the reason why a session was dropped; nil if
// there is none here.
func (r *reporter) judge(dropped []uint64, heard []reported) map[session.ID]error {
	if len(dropped) == 0 {
		return nil
	}
	generations := make(map[session.ID]uint64, len(heard))
	for _, h := range heard {
		generations[h.id] = h.generation
	}
	out := make(map[session.ID]error, len(dropped))
	r.node.machine.View(func(v *fsm.View) {
		for _, d := range dropped {
			id := session.ID(d)
			out[id] = stateOf(v.Sessions, id, generations[id])
		}
	})
	return out
}

// stateOf says whether the session is open at generation, as far as this server
// has applied.
func stateOf(t *session.Table, id session.ID, generation uint64) error {
	s := t.Get(id)
	switch {
	case s == nil:
		return t.Gone(id)
	case s.Generation > generation:
		return session.ErrMoved
	default:
		return nil
	}
}

// acknowledge notes a commit index that a proven leader named after at.
func (r *reporter) acknowledge(c currency) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.marks) == maxCurrencies {
		r.marks = r.marks[:maxCurrencies-1]
	}
	r.marks = append(r.marks, c)
	r.settleLocked()
}

func (r *reporter) settleLocked() {
	applied := r.node.machine.Index()
	n := 0
	for _, m := range r.marks {
		if m.commit > applied {
			break
		}
		r.fresh, r.known = m.at, true
		n++
	}
	r.marks = r.marks[n:]
}

// staleAge is the time since the state here was known to be current.
func (r *reporter) staleAge() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settleLocked()
	if !r.known {
		return r.node.now() - r.node.born // it never was current
	}
	return r.node.now() - r.fresh
}
