package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/fsm"
)

const (
	// memberTick is how often the leader looks at the membership.
	memberTick = 100 * time.Millisecond
	// maxBehindForVote is how many entries a server that gets a vote may be
	// behind the commit index.
	maxBehindForVote = 1000
)

// keeper looks after the membership during one reign: it gives a vote to
// servers that have caught up, and takes out the incarnation that a newer one
// replaces.
type keeper struct {
	node   *Node
	reign  *reign
	steady map[serverID]time.Duration // since when a server without a vote keeps up
	ticks  int
}

// memberLoop runs until ctx ends.
func (n *Node) memberLoop(ctx context.Context, r *reign) {
	k := &keeper{node: n, reign: r, steady: make(map[serverID]time.Duration)}
	every(ctx, memberTick, func() { k.look(ctx) })
}

func (k *keeper) look(ctx context.Context) {
	if k.node.changesRefused() != nil {
		return
	}
	members := k.node.members()
	if k.removeReplaced(ctx, members) {
		return // one change at a time; the next look sees its outcome
	}
	k.promote(ctx, members)
	if k.ticks++; k.ticks%50 == 0 {
		k.forgetLeft()
	}
}

// removeReplaced takes out a server of which a newer incarnation has joined,
// when it is not in contact.
func (k *keeper) removeReplaced(ctx context.Context, members []raft.Server) bool {
	if !k.node.settledIn(k.reign) {
		return false
	}
	last := map[string]serverID{} // the configuration is in order of joining
	for _, s := range members {
		last[serverID(s.ID).name()] = serverID(s.ID)
	}
	for _, s := range members {
		id := serverID(s.ID)
		if newer := last[id.name()]; newer != id && id != k.node.id && !k.node.inContact(id) && k.node.inContact(newer) {
			err := await(ctx, k.node.raft.Load().RemoveServer(s.ID, 0, memberChangeTimeout))
			k.node.log.Info("removed a server that was replaced", "event", "member_removed", "peer", s.ID, "by", newer, "err", err)
			return true
		}
	}
	return false
}

// promote gives a vote to one server that has earned it.
func (k *keeper) promote(ctx context.Context, members []raft.Server) {
	voters := 0
	var ready, waiting []raft.Server
	for _, s := range members {
		switch {
		case s.Suffrage == raft.Voter:
			voters++
		case k.keepsUp(serverID(s.ID)):
			waiting = append(waiting, s)
			if k.node.now()-k.steady[serverID(s.ID)] >= k.node.cfg.StableBeforeVote {
				ready = append(ready, s)
			}
		}
	}
	// A vote that makes the number odd raises no quorum, and so risks nothing.
	// One that makes it even does, unless another one follows at once, or nobody
	// is served yet.
	if len(waiting) > 0 && (voters%2 == 0 || len(waiting) >= 2 || k.node.Formed() != nil) {
		ready = waiting
	}
	if len(ready) == 0 || k.replacing(serverID(ready[0].ID), members) {
		return
	}
	s := ready[0]
	err := await(ctx, k.node.raft.Load().AddVoter(s.ID, s.Address, 0, memberChangeTimeout))
	k.node.log.Info("a server gets a vote", "event", "member_promoted", "peer", s.ID, "err", err)
}

// keepsUp says whether a server is in contact, and nearly as far as this one.
func (k *keeper) keepsUp(id serverID) bool {
	state, _, ok := k.node.stateOfServer(id)
	ok = ok && k.node.inContact(id) && state.GetAppliedIndex()+maxBehindForVote >= k.node.raft.Load().CommitIndex()
	if !ok {
		delete(k.steady, id)
		return false
	}
	if _, known := k.steady[id]; !known {
		k.steady[id] = k.node.now()
	}
	return true
}

// replacing says whether an older incarnation of the server is still a member.
func (k *keeper) replacing(id serverID, members []raft.Server) bool {
	for _, s := range members {
		if other := serverID(s.ID); other != id && other.name() == id.name() {
			return true
		}
	}
	return false
}

// forgetLeft drops what is kept of servers that are no members any more: their
// number lines in the state, and what this server knows of them. Lines are looked
// at before members: a server joins first and has a line then, so one that has a
// line and is no member afterwards has left. One that has just joined would lose
// its line for good.
func (k *keeper) forgetLeft() {
	var lines []string
	k.node.machine.View(func(v *fsm.View) {
		for l := range v.Sessions.Servers() {
			lines = append(lines, l.Server)
		}
	})
	present := map[serverID]bool{}
	for _, s := range k.node.members() {
		present[serverID(s.ID)] = true
	}
	left := slices.DeleteFunc(lines, func(l string) bool { return present[serverID(l)] })
	k.node.contacts.forget(func(id serverID) bool { return present[id] })
	k.node.peers.prune(func(id serverID) bool { return present[id] })
	for _, server := range left {
		k.reign.batch.propose(&fsm.Command{Kind: fsm.CmdRemoveServer, Server: server, Term: k.reign.term}, func(error) {})
	}
}
