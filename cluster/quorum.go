package cluster

import (
	"fmt"

	"github.com/hashicorp/raft"
)

// tally is what counts for a quorum: how many voters there are, and how many of
// them are alive, that is in contact with the leader and not far behind. Servers
// without a vote, observers among them, are in neither.
type tally struct{ voters, alive int }

// quorum is how many voters have to agree.
func (t tally) quorum() int { return t.voters/2 + 1 }

// spare is how many voters may still fail; negative if a quorum is missing.
func (t tally) spare() int { return t.alive - t.quorum() }

// without is the tally once a voter has gone.
func (t tally) without(alive bool) tally {
	t.voters--
	if alive {
		t.alive--
	}
	return t
}

func (t tally) String() string {
	switch spare := t.spare(); {
	case spare < 0:
		return fmt.Sprintf("%d of %d voters alive, %d needed: no quorum", t.alive, t.voters, t.quorum())
	case spare == 0:
		return fmt.Sprintf("%d of %d voters alive, %d needed: 1 more failure stops writes", t.alive, t.voters, t.quorum())
	default:
		return fmt.Sprintf("%d of %d voters alive, %d needed: %d more may fail", t.alive, t.voters, t.quorum(), spare)
	}
}

// count is the tally of a membership as this leader sees it.
func (n *Node) count(servers []raft.Server) (t tally) {
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		t.voters++
		if n.isAlive(serverID(s.ID)) {
			t.alive++
		}
	}
	return t
}

// isAlive says, at the leader, that a server is in contact and nearly as far as
// this one. One that gets a snapshot is not, however few entries that are: until it
// has all of it, it takes no entry into its log.
func (n *Node) isAlive(id serverID) bool {
	if id == n.id {
		return true
	}
	state, _, ok := n.stateOfServer(id)
	return ok && n.inContact(id) && !n.getsSnapshot(id) && state.GetAppliedIndex()+maxBehindForVote >= n.commitIndex()
}

// weighRemoval refuses the removal of a voter that leaves no quorum of voters that
// are alive. The effect is what is left.
func (n *Node) weighRemoval(servers []raft.Server, s raft.Server) (effect string, err error) {
	have := n.count(servers)
	if s.Suffrage != raft.Voter {
		return have.String(), nil
	}
	id := serverID(s.ID)
	left := have.without(n.isAlive(id))
	switch {
	case left.voters == 0:
		return "", fmt.Errorf("%w: %s is the only voter, without it there is no cluster", ErrUnsafe, id.name())
	case left.spare() < 0:
		return "", fmt.Errorf("%w: %d voters, %d of them alive: without %s, %d of %d would be alive, and %d are needed",
			ErrUnsafe, have.voters, have.alive, id.name(), left.alive, left.voters, left.quorum())
	}
	return left.String(), nil
}

// removal is the removal of s from servers, at the leader.
func (n *Node) removal(servers []raft.Server, s raft.Server, dryRun bool) (*change, string, error) {
	effect, err := n.weighRemoval(servers, s)
	if err != nil || dryRun {
		return nil, effect, err
	}
	if serverID(s.ID) == n.id {
		return nil, effect, errLeaves
	}
	return removeChange(servers, s), effect, nil
}

// promotion gives s a vote, at the leader.
func (n *Node) promotion(servers []raft.Server, s raft.Server, dryRun bool) (*change, string, error) {
	id := serverID(s.ID)
	have := n.count(servers)
	grown := tally{have.voters + 1, have.alive + 1}
	state, _, heard := n.stateOfServer(id)
	switch {
	case s.Suffrage == raft.Voter:
		return nil, "", fmt.Errorf("%w: %s has a vote already", ErrUnsafe, id.name())
	case n.isObserver(id):
		return nil, "", fmt.Errorf("%w: %s is an observer: start it with its name in cluster.peers and not in cluster.observers", ErrUnsafe, id.name())
	case !heard || !n.inContact(id):
		return nil, "", fmt.Errorf("%w: %s is not in contact", ErrUnsafe, id.name())
	case !n.isAlive(id):
		return nil, "", fmt.Errorf("%w: %s is %d entries behind, and would be needed for each write", ErrUnsafe, id.name(), n.commitIndex()-state.GetAppliedIndex())
	case replacing(id, servers):
		return nil, "", fmt.Errorf("%w: an older server called %s is still a member: remove that one first", ErrUnsafe, id.name())
	case dryRun:
		return nil, grown.String(), nil
	}
	return promoteChange(servers, s), grown.String(), nil
}

// isObserver says that a server wants no vote. What it says of itself counts; of
// one that was not heard, what the own list says.
func (n *Node) isObserver(id serverID) bool {
	if state, _, ok := n.stateOfServer(id); ok {
		return state.GetObserver()
	}
	return n.cfg.isObserver(id.name())
}
