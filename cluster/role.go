package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// roleTick is how often the role is looked at when no observation of Raft's
// says that it may have changed. Observations may be lost; this makes up for it.
const roleTick = 50 * time.Millisecond

// leads returns the term this server leads, if it does. It goes through none of
// Raft's queues, so it answers while the main loop hangs in a write.
//
// Raft gives up the state before it raises the term, and takes the term before
// it takes the state; so Leader between two equal readings of the term was
// leader of that term.
func (n *Node) leads() (term uint64, ok bool) {
	r := n.raft.Load()
	if r == nil {
		return 0, false
	}
	term = r.CurrentTerm()
	ok = r.State() == raft.Leader && r.CurrentTerm() == term
	return term, ok
}

// leader returns who leads, and in which term, as far as this server knows.
func (n *Node) leader() (id serverID, term uint64, ok bool) {
	r := n.raft.Load()
	if r == nil {
		return "", 0, false
	}
	term = r.CurrentTerm()
	_, lid := r.LeaderWithID()
	return serverID(lid), term, lid != "" && r.CurrentTerm() == term
}

// members is the latest configuration of the cluster that this server knows,
// committed or not.
func (n *Node) members() []raft.Server {
	r := n.raft.Load()
	if r == nil {
		return nil
	}
	f := r.GetConfiguration() // answered from memory, not by the main loop
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

// voters are the ids of the members with a vote.
func (n *Node) voters() []serverID {
	var out []serverID
	for _, s := range n.members() {
		if s.Suffrage == raft.Voter {
			out = append(out, serverID(s.ID))
		}
	}
	return out
}

// isMember says whether an incarnation is in the configuration.
func (n *Node) isMember(id serverID) bool { return contains(n.members(), id) }

func contains(servers []raft.Server, id serverID) bool {
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return serverID(s.ID) == id })
}

// watchRole flashes n.changed when Raft says that state or leader changed.
func (n *Node) watchRole(ctx context.Context, r *raft.Raft) {
	ch := make(chan raft.Observation, 16) // full: dropped, roleTick makes up for it
	o := raft.NewObserver(ch, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	r.RegisterObserver(o)
	defer r.DeregisterObserver(o)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ch:
			n.changed.flash()
		}
	}
}

// awaitChange waits for a flash of changed, which must have been taken before
// the state was looked at, for at most roleTick, or for the end of ctx.
func awaitChange(ctx context.Context, changed <-chan struct{}) {
	pause(ctx, changed, roleTick)
}

// pause waits for d, for early, or for the end of ctx.
func pause(ctx context.Context, early <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-early:
	case <-t.C:
	}
}

// ownRole is what this server is by the membership that it knows.
func (n *Node) ownRole() Role {
	if _, ok := n.leads(); ok {
		return RoleLeader
	}
	for _, s := range n.members() {
		switch {
		case serverID(s.ID) != n.id:
		case s.Suffrage == raft.Voter:
			return RoleVoter
		case n.cfg.isObserver(n.cfg.Name):
			return RoleObserver
		default:
			return RoleJoining
		}
	}
	return RoleMissing
}

// roleClock remembers since when this server has had its role. The zero value is
// ready.
type roleClock struct {
	mu    sync.Mutex
	role  Role
	since time.Duration // on the node's clock
}

// held is for how long the role has been this one.
func (c *roleClock) held(role Role, now time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.role != role {
		c.role, c.since = role, now
	}
	return now - c.since
}
