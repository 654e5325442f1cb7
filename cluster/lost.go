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
	// lostStood is how long a server waits for the request for its vote of one
	// that has begun to stand, and has its new term and its own vote to write.
	lostStood = 100 * time.Millisecond
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
// Two that stand in the same term split the votes, and then all wait for timers.
// So of two that have asked each other only one stands: who has the better log, or
// as good a one and the smaller id. The other one waits for its turn when it hears
// of the better one, and also when it is asked by it; and who has begun to stand
// says so.
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

	mu       sync.Mutex    // guards below
	stood    uint64        // the newest term after which this server has begun to stand
	given    uint64        // the term after which others have their turn
	othersTo time.Duration // when that ends, by the clock of the node
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

// succeed stands when the leader of term is gone and it is this server's turn. It
// ends with this server's own timer at the latest: then it does not follow any more.
func (l *losses) succeed(ctx context.Context, leader serverID, term uint64) {
	n := l.node
	waited := turnsGiven{}
	for looks := 0; looks < lostLooks && ctx.Err() == nil; {
		asked := n.now()
		if !l.mayFollow(leader, term) || !l.gone(ctx, leader, term) {
			return
		}
		w := l.witnesses(ctx, leader, term)
		if !w.majority {
			looks++
			pause(ctx, nil, lostRetry)
			continue
		}
		if d := max(waited.wait(w), l.turnOfOthers(term)); d > 0 {
			n.waitWhileFollowing(ctx, leader, term, d)
			continue
		}
		looks++
		began := n.transport.Load().inbox.begin(&standing{term: term, witnesses: w.lost, begun: make(chan bool, 1), still: func() bool {
			return n.now()-asked < lostFresh && n.follows(leader, term) && n.net.raftConnsFrom(leader) == 0 && !n.stopping.Load() &&
				l.claim(term)
		}})
		if !began && l.turnOfOthers(term) > 0 {
			continue // a better one has asked in between
		}
		l.tried = term
		n.log.Info("the leader is gone", "event", "leader_lost", "peer", string(leader), "term", term,
			"witnesses", len(w.lost), "stands", began)
		return
	}
}

// turnsGiven are the servers that this one has waited for after one leader: for
// each once, and once more when it has begun to stand.
type turnsGiven struct{ better, stood map[serverID]bool }

// wait is how long to wait for those that were not waited for before.
func (g *turnsGiven) wait(w testimony) (d time.Duration) {
	if g.better == nil {
		g.better, g.stood = map[serverID]bool{}, map[serverID]bool{}
	}
	for _, id := range w.better {
		if !g.better[id] {
			g.better[id] = true
			d += lostTurn
		}
	}
	for _, id := range w.stood {
		if !g.stood[id] {
			g.stood[id] = true
			d = max(d, lostStood)
		}
	}
	return d
}

// claim says, at the last moment, that it is this server's turn to stand after
// term. From then on whoever asks hears that it stands.
func (l *losses) claim(term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given == term && l.node.now() < l.othersTo {
		return false
	}
	l.stood = max(l.stood, term)
	return true
}

// giveTurn lets a better one that asks stand first. It reports false if it is too
// late for that.
func (l *losses) giveTurn(term uint64, better bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stood >= term {
		return false
	}
	if better {
		l.given, l.othersTo = term, l.node.now()+lostTurn
	}
	return true
}

// turnOfOthers is for how long others that have asked may still stand first.
func (l *losses) turnOfOthers(term uint64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given != term {
		return 0
	}
	return max(0, l.othersTo-l.node.now())
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

// testimony is what the other voters say of the leader of a term.
type testimony struct {
	lost     []serverID // have lost it, too
	better   []serverID // of those, who should stand before this server
	stood    []serverID // are at a later term, or about to be
	majority bool       // lost it, this server included
}

// witnesses asks the other voters.
func (l *losses) witnesses(ctx context.Context, leader serverID, term uint64) (t testimony) {
	n := l.node
	ctx, cancel := context.WithTimeout(ctx, 2*lostPatience)
	voters, own := n.voters(), n.logEnd()
	replies := make(chan witness, len(voters))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	q := &peerpb.LeaderLostRequest{Term: term, Leader: string(leader), LastIndex: own.index, LastTerm: own.term}
	waiting := 0
	for _, v := range voters {
		if v != n.id && v != leader {
			waiting++
			asking.Go(func() { replies <- witness{v, l.ask(ctx, v, q)} })
		}
	}
	enough := time.NewTimer(2 * lostPatience)
	defer enough.Stop()
	for ; waiting > 0; waiting-- {
		select {
		case w := <-replies:
			t.hear(w, term, own, n.id)
			if t.majority = len(t.lost)+1 > len(voters)/2; t.majority {
				enough.Reset(lostStragglers)
			}
		case <-enough.C:
			return t
		}
	}
	return t
}

// hear adds the answer of one server.
func (t *testimony) hear(w witness, term uint64, own logPosition, self serverID) {
	switch {
	case w.reply.GetTerm() > term:
		t.stood = append(t.stood, w.id)
	case w.reply.GetTerm() < term || !w.reply.GetLost():
	default:
		t.lost = append(t.lost, w.id)
		if before(logPosition{w.reply.GetLastIndex(), w.reply.GetLastTerm()}, w.id, own, self) {
			t.better = append(t.better, w.id)
		}
	}
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

func (l *losses) ask(ctx context.Context, to serverID, q *peerpb.LeaderLostRequest) *peerpb.LeaderLostReply {
	client, err := l.node.peers.client(to)
	if err != nil {
		return nil
	}
	r, err := client.LeaderLost(ctx, q)
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
	term := q.GetTerm()
	lost := n.losses.gone(ctx, serverID(q.GetLeader()), term)
	end, asker := n.logEnd(), logPosition{q.GetLastIndex(), q.GetLastTerm()}
	reply := &peerpb.LeaderLostReply{Lost: lost, Term: r.CurrentTerm(), LastIndex: end.index, LastTerm: end.term}
	from, known := peerFromContext(ctx)
	if better := known && before(asker, from.server, end, n.id); lost && !n.losses.giveTurn(term, better) {
		reply.Lost, reply.Term = false, max(reply.GetTerm(), term+1)
	}
	return reply, nil
}
