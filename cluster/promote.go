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
	// keeperRetry is how long a change that failed is left alone: what was in its way
	// stays for a moment, and each failure is a line in the log.
	keeperRetry = time.Second
)

// keeper looks after the membership during one reign: it gives a vote to servers
// that have caught up, takes it from those that want none any more, and takes out
// the incarnation that a newer one replaces and voters that are dead for long. It
// makes one change at a time, each weighed against the membership it changes.
type keeper struct {
	node  *Node
	reign *reign
	ticks int
	rest  time.Duration // no change before, on the node's clock
}

// memberLoop runs until ctx ends.
func (n *Node) memberLoop(ctx context.Context, r *reign) {
	k := &keeper{node: n, reign: r}
	every(ctx, n.cfg.slowly(memberTick), func() { k.look(ctx) })
}

func (k *keeper) look(ctx context.Context) {
	if k.ticks++; k.ticks%50 == 0 {
		k.forgetLeft()
	}
	k.reign.steady.look(k.node)
	k.makeFirst(ctx, k.replaced, k.unwilling, k.ready, k.dead)
}

// makeFirst makes the step of the first that wants one.
func (k *keeper) makeFirst(ctx context.Context, finds ...func([]raft.Server) *step) {
	if k.node.changesRefused() != nil || k.node.now() < k.rest {
		return
	}
	for _, find := range finds {
		if find(k.node.members()) != nil {
			k.carryOut(ctx, find)
			return // the next look sees its outcome
		}
	}
}

// step is a change of the membership that the keeper wants.
type step struct {
	event, text string
	server      raft.Server
	change      *change
	// handOver: the change is for another leader to make.
	handOver bool
}

// carryOut makes the step that find wants once nothing else is being changed.
func (k *keeper) carryOut(ctx context.Context, find func([]raft.Server) *step) {
	var s *step
	err := k.node.changeMembership(ctx, k.reign, func(servers []raft.Server) (*change, error) {
		if s = find(servers); s == nil || s.handOver {
			return nil, nil
		}
		return s.change, nil
	})
	if s == nil {
		return // it is not wanted any more
	}
	if s.handOver {
		_, err = k.node.transferHere(ctx, "")
	}
	switch {
	case err == nil && s.handOver:
		k.node.log.Info("leadership goes to another server, which is to change the membership", "peer", string(s.server.ID), "wanted", s.event)
	case err == nil:
		k.node.log.Info(s.text, "event", s.event, "peer", string(s.server.ID))
	case ctx.Err() == nil:
		k.rest = k.node.now() + keeperRetry
		k.node.log.Warn("a change of the membership failed", "event", "member_change_failed", "peer", string(s.server.ID), "wanted", s.event, "err", err)
	}
}

// remove is the step that takes a server out, if that is safe.
func (k *keeper) remove(servers []raft.Server, s raft.Server, text string) *step {
	if _, err := k.node.weighRemoval(servers, s); err != nil {
		return nil
	}
	return &step{event: "member_removed", text: text, server: s, change: removeChange(servers, s)}
}

// replaced looks for a server of which a newer incarnation has joined, and which
// is not in contact.
func (k *keeper) replaced(servers []raft.Server) *step {
	if !k.node.settledIn(k.reign) {
		return nil
	}
	last := map[string]serverID{} // the configuration is in order of joining
	for _, s := range servers {
		last[serverID(s.ID).name()] = serverID(s.ID)
	}
	for _, s := range servers {
		id := serverID(s.ID)
		if newer := last[id.name()]; newer != id && id != k.node.id && !k.node.inContact(id) && k.node.inContact(newer) {
			if st := k.remove(servers, s, "removed a server that was replaced"); st != nil {
				return st
			}
		}
	}
	return nil
}

// dead looks for a voter that was silent for RemoveDeadAfter. It is removed only
// from an even number of voters: that lowers the quorum, so one more server may
// fail afterwards. From an odd number it would gain nothing, and a cluster whose
// servers are down for maintenance would dwindle; there a replacement makes the
// number even first.
func (k *keeper) dead(servers []raft.Server) *step {
	after := k.node.cfg.RemoveDeadAfter
	if after <= 0 || !k.node.settledIn(k.reign) || k.node.count(servers).voters%2 != 0 {
		return nil
	}
	for _, s := range servers {
		id := serverID(s.ID)
		if s.Suffrage != raft.Voter || id == k.node.id || k.silence(id) < after {
			continue
		}
		if st := k.remove(servers, s, "removed a voter that was dead"); st != nil {
			return st
		}
	}
	return nil
}

// silence is for how long this leader has not heard of a server.
func (k *keeper) silence(id serverID) time.Duration {
	since := k.reign.since
	if c, ok := k.node.contacts.of(id); ok {
		since = max(since, c.at)
	}
	return k.node.now() - since
}

// unwilling looks for a voter that was started again as an observer.
func (k *keeper) unwilling(servers []raft.Server) *step {
	for _, s := range servers {
		id := serverID(s.ID)
		if s.Suffrage != raft.Voter || !k.node.inContact(id) || !k.node.isObserver(id) || !k.node.settledIn(k.reign) {
			continue
		}
		if _, err := k.node.weighRemoval(servers, s); err != nil {
			continue
		}
		return &step{
			event: "member_demoted", text: "a server gives its vote back", server: s, handOver: id == k.node.id,
			change: demoteChange(servers, s),
		}
	}
	return nil
}

// ready looks for a server that has earned a vote.
func (k *keeper) ready(servers []raft.Server) *step {
	voters := 0
	var ready, waiting []raft.Server
	for _, s := range servers {
		since, steady := k.reign.steady.since(serverID(s.ID))
		switch {
		case s.Suffrage == raft.Voter:
			voters++
		case steady && !replacing(serverID(s.ID), servers):
			waiting = append(waiting, s)
			if k.node.now()-since >= k.node.cfg.StableBeforeVote {
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
	if len(ready) == 0 {
		return nil
	}
	s := ready[0]
	return &step{event: "member_promoted", text: "a server gets a vote", server: s, change: promoteChange(servers, s)}
}

// replacing says whether another incarnation of the server is a member, too.
func replacing(id serverID, servers []raft.Server) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool {
		other := serverID(s.ID)
		return other != id && other.name() == id.name()
	})
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
	keep := func(id serverID) bool { return present[id] }
	left := slices.DeleteFunc(lines, func(l string) bool { return present[serverID(l)] })
	k.node.contacts.forget(keep)
	k.node.peers.prune(keep)
	if err := k.node.addresses.forget(keep); err != nil {
		k.node.log.Warn("cannot write the addresses of the members down", "err", err)
	}
	for _, server := range left {
		k.reign.batch.propose(&fsm.Command{Kind: fsm.CmdRemoveServer, Server: server, Term: k.reign.term}, func(error) {})
	}
}
