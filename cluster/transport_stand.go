package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

const (
	// standDoor bounds the wait for messages that Raft is handling when this
	// server wants to stand.
	standDoor = 20 * time.Millisecond
	// transferDoor is the same bound where another server wants this one to lead.
	transferDoor = 200 * time.Millisecond
	// standTime bounds the wait for Raft to take its new term, which it writes
	// to the disk.
	standTime = 2 * time.Second
	standLook = 500 * time.Microsecond
)

// standing is an election that this server begins itself, in the term after that
// of a leader whose process has ended.
type standing struct {
	term uint64 // of the leader that is gone
	// witnesses have lost that leader, too. Only they are asked to vote in spite
	// of a leader that they may know.
	witnesses []serverID
	// still says, at the last moment, that nothing has changed.
	still func() bool
	begun chan bool // has room for one
}

// stand makes Raft a candidate in the term after s.term, now, without the round
// of questions in which the others would say that they know a leader (a message
// TimeoutNow, as in a transfer of leadership). It reports false if something came
// in between.
//
// An election in any later term would depose a leader that was elected in the
// meantime. So no message reaches Raft from the last look at its term until it has
// taken the next one.
func (g *inbox) stand(s *standing) bool {
	r := g.node.Load()
	if r == nil || !g.door.shut(standDoor) {
		return false
	}
	defer g.door.open()
	// What was handed to Raft before may still be in its hands. A message of term
	// 0 is answered and changes nothing.
	if !g.ask(&raft.AppendEntriesRequest{RPCHeader: g.ownHeader()}) || !s.still() {
		return false
	}
	g.standing.Store(s)
	if !g.ask(&raft.TimeoutNowRequest{RPCHeader: g.ownHeader()}) {
		return false
	}
	awaitTerm(r, s.term)
	return r.CurrentTerm() == s.term+1
}

// awaitTerm waits until Raft, which TimeoutNow has made a candidate, has taken the
// term after this one.
//
// A heartbeat of the old leader must not reach it before. Raft would stay a
// candidate and note the leader, which it forgets only as a follower: it would
// refuse every other candidate for ever, as it knows a leader, and if its log is
// behind theirs, nobody could be elected any more.
func awaitTerm(r *raft.Raft, term uint64) {
	for until := time.Now().Add(standTime); r.CurrentTerm() == term && r.State() == raft.Candidate; {
		if time.Now().After(until) {
			return
		}
		time.Sleep(standLook)
	}
}

// transfer passes on the wish of the leader that this server leads. It reports
// false if the inbox was closed.
func (g *inbox) transfer(rpc raft.RPC) bool {
	r := g.node.Load()
	if r == nil || r.State() != raft.Follower || !g.door.shut(transferDoor) {
		return g.pass(rpc)
	}
	defer g.door.open()
	term := r.CurrentTerm()
	answer := make(chan raft.RPCResponse, 1)
	if !g.pass(raft.RPC{Command: rpc.Command, RespChan: answer}) {
		return false
	}
	select {
	case a := <-answer:
		rpc.RespChan <- a // buffered by the library
	case <-g.done:
		return false
	}
	awaitTerm(r, term)
	return true
}

func (g *inbox) ownHeader() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
}

// ask hands a message of our own to Raft and waits until it has been handled.
func (g *inbox) ask(command any) bool {
	answer := make(chan raft.RPCResponse, 1)
	if !g.pass(raft.RPC{Command: command, RespChan: answer}) {
		return false
	}
	select {
	case a := <-answer:
		return a.Error == nil
	case <-g.done:
		return false
	}
}

// begin stands, in turn with the messages that come in.
func (g *inbox) begin(s *standing) bool {
	select {
	case g.stands <- s:
	case <-g.done:
		return false
	}
	select {
	case ok := <-s.begun:
		return ok
	case <-g.done:
		return false
	}
}

// SetHeartbeatHandler implements raft.Transport. Heartbeats do not go through the
// inbox; they wait outside while this server begins to stand.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	if handle == nil {
		t.NetworkTransport.SetHeartbeatHandler(nil)
		return
	}
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if t.inbox.door.enter(t.inbox.done) {
			defer t.inbox.door.leave()
			handle(rpc)
		}
	})
}

// modest takes the claim to be a transfer of leadership away from a request for
// a vote, unless it goes to a server that said itself that the leader is gone. The
// others refuse then if they know a leader, and a leader that they hear is left
// in peace.
func (g *inbox) modest(to raft.ServerID, req *raft.RequestVoteRequest) *raft.RequestVoteRequest {
	s := g.standing.Load()
	if s == nil || !req.LeadershipTransfer || req.Term != s.term+1 || slices.Contains(s.witnesses, serverID(to)) {
		return req
	}
	modest := *req
	modest.LeadershipTransfer = false
	return &modest
}
