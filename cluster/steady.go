package cluster

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// steadiness is since when servers without a vote have kept up with the leader,
// during one reign. The keeper writes it, who asks for the members reads it.
//
// Bound: one for each member.
type steadiness struct {
	mu sync.Mutex
	by map[serverID]time.Duration // on the node's clock
}

// look notes which servers without a vote keep up now.
func (s *steadiness) look(n *Node) {
	now := n.now()
	keeping := map[serverID]bool{}
	for _, m := range n.members() {
		id := serverID(m.ID)
		if m.Suffrage != raft.Voter && n.inContact(id) && !n.isObserver(id) && n.isAlive(id) {
			keeping[id] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[serverID]time.Duration)
	}
	for id := range s.by {
		if !keeping[id] {
			delete(s.by, id)
		}
	}
	for id := range keeping {
		if _, known := s.by[id]; !known {
			s.by[id] = now
		}
	}
}

// since is from when on a server has kept up; false if it does not.
func (s *steadiness) since(id serverID) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.by[id]
	return at, ok
}
