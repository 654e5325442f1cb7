package cluster

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/zxid"
)

// maxBehind is how many entries a ready server may be behind the commit index.
const maxBehind = 1000

// Status is what a server knows about itself and its cluster.
type Status struct {
	Name, ID               string
	ClusterName, ClusterID string // ClusterID is empty until there is a cluster
	Leader                 string // name; empty if none is known
	LeaderID               string
	Leading                bool // this server leads and its epoch is open
	Term                   uint64
	Zxid                   zxid.ID
	AppliedIndex           uint64
	CommitIndex            uint64
	LastIndex              uint64
	Voter                  bool // this server has a vote
	Servers                int  // members, with a vote or without
	Formed                 bool
	Waiting                string // not formed: for what
	StaleAge               time.Duration
	// LastContact is the time since the leader was heard of: 0 at the leader, and
	// since the start of the server if it never heard of one.
	LastContact  time.Duration
	Pending      int   // proposals of this server that are unanswered
	PendingBytes int64 // their size
	Uptime       time.Duration
	Alarm        string // why snapshots and changes of the membership are refused; empty: they are not
	FeatureLevel uint32 // agreed on
	// Checks are what readiness depends on; Ready says that all are met.
	Checks []Check
	Ready  bool
}

// Check is one condition of readiness.
type Check struct {
	Name   string // as /readyz prints it
	OK     bool
	Detail string
}

// Status returns what this server knows. It asks nobody and does not wait, so
// it also answers while there is no quorum.
func (n *Node) Status() Status {
	s := Status{
		Name: n.cfg.Name, ID: string(n.id), ClusterName: n.cfg.ClusterName, ClusterID: n.stores.cluster(),
		Zxid: n.machine.Zxid(), AppliedIndex: n.machine.Index(), StaleAge: n.StaleAge(), Uptime: n.now() - n.born,
		LastContact: n.lastContact(),
	}
	s.Alarm, s.FeatureLevel = n.Alarm(), n.machine.FeatureLevel()
	pending, size := n.fwd.load()
	s.Pending, s.PendingBytes = pending, int64(size)
	if r := n.raft.Load(); r != nil {
		s.Term, s.CommitIndex, s.LastIndex = r.CurrentTerm(), r.CommitIndex(), r.LastIndex()
	}
	if id, _, ok := n.leader(); ok {
		s.Leader, s.LeaderID = id.name(), string(id)
	}
	s.Leading = n.reign.Load() != nil
	servers := n.members()
	s.Servers = len(servers)
	for _, m := range servers {
		s.Voter = s.Voter || serverID(m.ID) == n.id && m.Suffrage == raft.Voter
	}
	if err := n.Formed(); err != nil {
		s.Waiting = strings.TrimPrefix(err.Error(), ErrNotFormed.Error()+", ")
	} else {
		s.Formed = true
	}
	s.Checks = n.checks(&s)
	s.Ready = true
	for _, c := range s.Checks {
		s.Ready = s.Ready && c.OK
	}
	return s
}

func (n *Node) lastContact() time.Duration {
	if r := n.raft.Load(); r != nil {
		if _, leads := n.leads(); leads {
			return 0
		}
		if last := r.LastContact(); !last.IsZero() {
			return max(0, time.Since(last))
		}
	}
	return n.now() - n.born
}

func (n *Node) checks(s *Status) []Check {
	behind := int64(s.CommitIndex) - int64(s.AppliedIndex)
	return []Check{
		{"started", n.raft.Load() != nil && !n.stopping.Load(), "raft runs and is not told to stop"},
		{"formed", s.Formed, orElse(s.Waiting, "a majority of the listed peers have a vote")},
		{"leader", s.Leader != "", orElse(s.Leader, "no leader is known")},
		{"applied", behind <= maxBehind, fmt.Sprintf("%d entries behind", max(behind, 0))},
		{"restored", !n.restoring(), "no snapshot is being installed"},
		{"disk", !n.disk.isSpent(), n.disk.detail()},
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
