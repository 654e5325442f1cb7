package cluster

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

const (
	// lostPatience bounds one look: the dialling, and the questions to the others.
	lostPatience = 60 * time.Millisecond
	// lostRetry is the pause before the next try to reach a leader whose port did
	// not refuse: a process that ends closes one thing after the other.
	lostRetry = 5 * time.Millisecond
	// lostTurn is how long a server lets each one stand first that has more
	// entries, or as many and a smaller id, so that two do not split the votes.
	lostTurn = 25 * time.Millisecond
	// lostStragglers is how long others are waited for once there is a majority:
	// one may have the longer log, or be dead as well.
	lostStragglers = 10 * time.Millisecond
	// lostLooks bounds the attempts for one leader; then the timers decide.
	lostLooks = 5
	// lostFresh is how old the word of another server may be when we stand.
	lostFresh = 200 * time.Millisecond
)

// losses lets the followers of a leader whose process has ended elect at once,
// without waiting for their timers. When the last Raft connection from the leader
// has ended, and a new one to it is refused, a follower asks the other voters; if a
// majority, itself included, has lost the leader like that, it stands for
// election (see inbox.stand).
//
// A leader is never given up for silence: a machine that is dead, cut off, slow or
// stopped refuses nothing, and is left to the timers of Raft. It is not given up
// for what one follower sees either: who still hears it is no witness, and does
// not vote for another.
type losses struct {
	node  *Node
	wake  nudge   // the last Raft connection from some server has ended
	ended *beacon // the same
	tried uint64  // of run: the newest term whose leader was given up
}

func newLosses(n *Node) *losses { return &losses{node: n, wake: newNudge(), ended: &beacon{}} }

// connectionsEnded is called when the last Raft connection from a server has
// ended. It does not block.
func (l *losses) connectionsEnded() {
	l.ended.flash()
	l.wake.push()
}

// run looks after each loss until ctx ends.
func (l *losses) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		if id, term, ok := l.node.leader(); ok && l.mayFollow(id, term) {
			l.succeed(ctx, id, term)
		}
	}
}

// mayFollow says whether this server may stand if the leader of term is gone:
// once for each term, as a voter that follows.
func (l *losses) mayFollow(leader serverID, term uint64) bool {
	n := l.node
	return leader != n.id && term > l.tried && !n.stopping.Load() && isVoter(n.voters(), n.id) && n.follows(leader, term)
}

func isVoter(voters []serverID, id serverID) bool {
	for _, v := range voters {
		if v == id {
			return true
		}
	}
	return false
}

// follows says whether this server is a follower of that very leader.
func (n *Node) follows(leader serverID, term uint64) bool {
	id, now, ok := n.leader()
	return ok && id == leader && now == term && n.raft.Load().State() == raft.Follower
}

// succeed stands when the leader of term is gone and it is this server's turn.
func (l *losses) succeed(ctx context.Context, leader serverID, term uint64) {
	n := l.node
	waited := false
	for range lostLooks {
		asked := n.now()
		if !l.mayFollow(leader, term) || !l.gone(ctx, leader, term) {
			return
		}
		witnesses, ahead, majority := l.witnesses(ctx, leader, term)
		if !majority {
			pause(ctx, nil, lostRetry)
			continue
		}
		if ahead > 0 && !waited {
			waited = true
			n.waitWhileFollowing(ctx, leader, term, time.Duration(ahead)*lostTurn)
			continue
		}
		l.tried = term
		s := &standing{term: term, witnesses: witnesses, begun: make(chan bool, 1), still: func() bool {
			return n.now()-asked < lostFresh && n.follows(leader, term) && n.net.raftConnsFrom(leader) == 0 && !n.stopping.Load()
		}}
		began := n.transport.Load().inbox.begin(s)
		n.log.Info("the leader is gone", "event", "leader_lost", "peer", string(leader), "term", term,
			"witnesses", len(witnesses), "stands", began)
		return
	}
}

// waitWhileFollowing waits for d, or until this server follows somebody else.
func (n *Node) waitWhileFollowing(ctx context.Context, leader serverID, term uint64, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for ctx.Err() == nil {
		changed := n.changed.C()
		if !n.follows(leader, term) {
			return
		}
		awaitChange(ctx, changed)
	}
}

// gone says whether the process of the leader of term has ended, as far as this
// server can see: none of its Raft connections is left, and its port refuses. It
// waits for that for a moment.
func (l *losses) gone(ctx context.Context, leader serverID, term uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, lostPatience)
	defer cancel()
	for ctx.Err() == nil {
		ended := l.ended.C()
		if !l.node.atTerm(leader, term) {
			return false
		}
		if l.node.net.raftConnsFrom(leader) > 0 {
			pause(ctx, ended, lostPatience)
			continue
		}
		if l.refuses(ctx, leader) {
			return l.node.net.raftConnsFrom(leader) == 0
		}
		pause(ctx, nil, lostRetry)
	}
	return false
}

// atTerm says whether this server knows of nothing after the leader of term. Its
// own timer may have made it forget the leader.
func (n *Node) atTerm(leader serverID, term uint64) bool {
	r := n.raft.Load()
	if r == nil || n.id == leader {
		return false
	}
	_, id := r.LeaderWithID()
	return (id == "" || serverID(id) == leader) && r.State() != raft.Leader && r.CurrentTerm() == term
}

// refuses says whether the port of a server turns connections down, as that of a
// machine without the process. Everything else may be a network.
func (l *losses) refuses(ctx context.Context, id serverID) bool {
	n := l.node
	address, err := n.addresses.resolve(id)
	if err != nil {
		return false
	}
	c, err := n.dialing.around(n.cfg.Net.Dial)(ctx, address)
	if err != nil {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	_ = c.Close() // nobody has said anything on it
	return false
}

// witnesses asks the other voters. ahead is how many of those that lost the
// leader should stand before this server.
func (l *losses) witnesses(ctx context.Context, leader serverID, term uint64) (lost []serverID, ahead int, majority bool) {
	n := l.node
	ctx, cancel := context.WithTimeout(ctx, 2*lostPatience)
	voters := n.voters()
	replies := make(chan witness, len(voters))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	waiting := 0
	for _, v := range voters {
		if v != n.id && v != leader {
			waiting++
			asking.Go(func() { replies <- witness{v, l.ask(ctx, v, leader, term)} })
		}
	}
	own, enough := n.logEnd(), time.NewTimer(2*lostPatience)
	defer enough.Stop()
	for ; waiting > 0; waiting-- {
		select {
		case w := <-replies:
			if !w.reply.GetLost() || w.reply.GetTerm() != term {
				continue
			}
			lost = append(lost, w.id)
			if before(logPosition{w.reply.GetLastIndex(), w.reply.GetLastTerm()}, w.id, own, n.id) {
				ahead++
			}
			if majority = len(lost)+1 > len(voters)/2; majority {
				enough.Reset(lostStragglers)
			}
		case <-enough.C:
			return lost, ahead, majority
		}
	}
	return lost, ahead, majority
}

// witness is the answer of one server; nil: it gave none.
type witness struct {
	id    serverID
	reply *peerpb.LeaderLostReply
}

// before says whether server a should stand before b: it has the better log, or
// as good a one and the smaller id.
func before(endA logPosition, a serverID, endB logPosition, b serverID) bool {
	switch {
	case endA.term != endB.term:
		return endA.term > endB.term
	case endA.index != endB.index:
		return endA.index > endB.index
	}
	return a < b
}

func (l *losses) ask(ctx context.Context, to, leader serverID, term uint64) *peerpb.LeaderLostReply {
	client, err := l.node.peers.client(to)
	if err != nil {
		return nil
	}
	r, err := client.LeaderLost(ctx, &peerpb.LeaderLostRequest{Term: term, Leader: string(leader)})
	if err != nil {
		l.node.log.Debug("cannot ask whether the leader is gone", "peer", string(to), "err", err)
		return nil
	}
	return r
}

// logEnd is the last entry of the own log.
func (n *Node) logEnd() logPosition {
	last, _ := n.stores.log.LastIndex() // from memory: cannot fail
	var e raft.Log
	if last == 0 || n.stores.log.GetLog(last, &e) != nil {
		return n.stores.log.snapshot()
	}
	return logPosition{e.Index, e.Term}
}

// LeaderLost implements peerpb.PeerServer.
func (s *peerService) LeaderLost(ctx context.Context, q *peerpb.LeaderLostRequest) (*peerpb.LeaderLostReply, error) {
	n := s.node
	r := n.raft.Load()
	if r == nil {
		return &peerpb.LeaderLostReply{}, nil
	}
	lost := n.losses.gone(ctx, serverID(q.GetLeader()), q.GetTerm())
	end := n.logEnd()
	return &peerpb.LeaderLostReply{Lost: lost, Term: r.CurrentTerm(), LastIndex: end.index, LastTerm: end.term}, nil
}
