package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coordd/coord/cluster/peerpb"
	"github.com/coordd/coord/internal/planted"
)

const (
	// readRetry is the pause before a linearizable read that could not be
	// confirmed is tried again.
	readRetry = 5 * time.Millisecond
	// maxReadsWaiting bounds the reads that wait for the leader's answer.
	maxReadsWaiting = 1 << 16
)

// Linearize returns when this server has applied everything that was committed
// anywhere when it was called: a read of the local state afterwards is
// linearizable. Many calls share one round. It returns the error of ctx, or
// ErrOverloaded.
func (n *Node) Linearize(ctx context.Context) error {
	for {
		changed := n.changed.C()
		index, err := n.readIndex(ctx)
		if err == nil {
			return n.machine.WaitIndex(ctx, index)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrOverloaded) || errors.Is(err, ErrStopped) {
			return err
		}
		pause(ctx, changed, readRetry)
	}
}

// readIndex asks once for an index to read at.
func (n *Node) readIndex(ctx context.Context) (uint64, error) {
	leader, _, ok := n.leader()
	switch {
	case !ok:
		return 0, ErrNotLeader
	case leader == n.id:
		return n.leaderReadIndex(ctx)
	default:
		return n.reads.ask(ctx)
	}
}

// leaderReadIndex is the leader's side: its commit index, read after the call
// began, if a round shows that it still led then. It is the commit index and
// not the index that this server has applied, because a follower may have
// applied more. Only a leader whose NewEpoch is applied answers: before, its
// commit index may be an old one, and the no-op of its term, which no state
// machine sees, may be the newest entry.
func (n *Node) leaderReadIndex(ctx context.Context) (uint64, error) {
	term, ok := n.leads()
	if !ok || n.machine.EpochTerm() != term && !planted.On(planted.StaleAfterElection) {
		return 0, ErrNotLeader
	}
	p, err := n.rounds.join(ctx)
	if err != nil {
		return 0, err
	}
	if p.term != term {
		return 0, ErrNotLeader
	}
	return p.commit, nil
}

// reads asks the leader for indexes on behalf of the reads of a follower. One
// question serves all reads that wait when it is sent.
type reads struct {
	node *Node
	wake nudge

	mu      sync.Mutex
	waiting []chan indexAnswer
	closed  bool
}

type indexAnswer struct {
	index uint64
	err   error
}

func newReads(n *Node) *reads { return &reads{node: n, wake: newNudge()} }

func (r *reads) ask(ctx context.Context) (uint64, error) {
	ch := make(chan indexAnswer, 1)
	r.mu.Lock()
	switch {
	case r.closed:
		r.mu.Unlock()
		return 0, ErrStopped
	case len(r.waiting) >= maxReadsWaiting:
		r.mu.Unlock()
		return 0, ErrOverloaded
	}
	r.waiting = append(r.waiting, ch)
	r.mu.Unlock()
	r.wake.push()
	select {
	case a := <-ch:
		return a.index, a.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (r *reads) take(closing bool) []chan indexAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = r.closed || closing
	w := r.waiting
	r.waiting = nil
	return w
}

// run asks until ctx ends.
func (r *reads) run(ctx context.Context) {
	link := newLeaderDialogue(r.node, r.node.readPatience(), openReadIndexes)
	defer link.close()
	for {
		select {
		case <-ctx.Done():
			answerReads(r.take(true), indexAnswer{err: ErrStopped})
			return
		case <-r.wake:
		}
		if waiting := r.take(false); len(waiting) > 0 {
			answerReads(waiting, r.askLeader(ctx, link))
		}
	}
}

func answerReads(waiting []chan indexAnswer, a indexAnswer) {
	for _, w := range waiting {
		w <- a // has room for one
	}
}

func (r *reads) askLeader(ctx context.Context, link *leaderDialogue[peerpb.ReadIndexRequest, peerpb.ReadIndexReply]) indexAnswer {
	leader, _, ok := r.node.leader()
	if !ok || leader == r.node.id {
		return indexAnswer{err: ErrNotLeader}
	}
	rep, err := link.ask(ctx, leader, &peerpb.ReadIndexRequest{})
	if err != nil {
		return indexAnswer{err: err}
	}
	if rep.GetRefused() != "" {
		return indexAnswer{err: errors.New(rep.GetRefused())}
	}
	return indexAnswer{index: rep.GetIndex()}
}

// readPatience is how long the leader may take to answer, its round included.
func (n *Node) readPatience() time.Duration { return (roundTimeout + 1) * n.cfg.Election }
