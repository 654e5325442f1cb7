package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// Role is what a server is in the cluster.
type Role string

const (
	// RoleLeader is the voter that leads.
	RoleLeader Role = "leader"
	// RoleVoter is a server with a vote.
	RoleVoter Role = "voter"
	// RoleJoining is a server that has no vote yet.
	RoleJoining Role = "joining"
	// RoleMissing is a listed peer that is not in the cluster.
	RoleMissing Role = "missing"
)

// Member is a server as the leader, or the server that was asked, sees it.
type Member struct {
	Name, ID         string // ID is empty for RoleMissing
	PeerAddress      string
	GRPCAddress      string
	HTTPAddress      string
	Role             Role
	InContact        bool // the leader heard of it within a second or so
	Ready            bool
	Version          string
	AppliedIndex     uint64
	LastContact      time.Duration // ago; negative: never
	Detail           string        // why it is not ready, or not in contact
	Sessions         int64         // attached there
	Uptime           time.Duration
	DiskLow          bool
	FeatureLevel     uint32
	ZooKeeperAddress string
}

// Members is the cluster as one server sees it.
type Members struct {
	Members []Member // in the order of their names
	// FromLeader says that the leader was asked. Otherwise this server names the
	// members as it last knew them, and can say only of itself how it is.
	FromLeader bool
	Term       uint64
}

// Members asks the leader about all servers. If there is none, or it does not
// answer before ctx ends or within a second, it says what is known here.
func (n *Node) Members(ctx context.Context) Members {
	if rep, ok := n.askMembers(ctx); ok {
		return membersFrom(rep, true)
	}
	return membersFrom(n.membersReply(), false)
}

// askPatience is how long a question of an operator to the leader may take.
const askPatience = time.Second

func (n *Node) askMembers(ctx context.Context) (*peerpb.MembersReply, bool) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	leader, _, ok := n.leader()
	if !ok {
		return nil, false
	}
	if leader == n.id {
		return n.membersReply(), n.reign.Load() != nil
	}
	client, err := n.peers.client(leader)
	if err != nil {
		return nil, false
	}
	rep, err := client.Members(ctx, &peerpb.MembersRequest{})
	return rep, err == nil && rep.GetRefused() == ""
}

// membersReply lists the members as this server knows them; Refused is set if
// it does not lead.
func (n *Node) membersReply() *peerpb.MembersReply {
	rep := &peerpb.MembersReply{}
	if r := n.reign.Load(); r != nil {
		rep.Term = r.term
	} else {
		rep.Refused = ErrNotLeader.Error()
	}
	leader, _, _ := n.leader()
	present := map[string]bool{}
	for _, s := range n.members() {
		id := serverID(s.ID)
		present[id.name()] = true
		rep.Members = append(rep.Members, n.member(id, s.Suffrage, leader == id))
	}
	for _, p := range n.cfg.Peers {
		if !present[p.Name] {
			rep.Members = append(rep.Members, &peerpb.MembersReply_Member{
				State:  &peerpb.ServerState{Name: p.Name, PeerAddress: p.Address},
				Detail: "listed, but not in the cluster", LastContactMs: -1,
			})
		}
	}
	return rep
}

func (n *Node) member(id serverID, suffrage raft.ServerSuffrage, leads bool) *peerpb.MembersReply_Member {
	m := &peerpb.MembersReply_Member{Suffrage: suffrage.String(), Leader: leads, InContact: n.inContact(id)}
	state, ago, ok := n.stateOfServer(id)
	if !ok {
		address, _ := n.addresses.of(id.name())
		m.State = &peerpb.ServerState{Name: id.name(), Id: string(id), PeerAddress: address}
		m.LastContactMs = -1
		m.Detail = "never heard of by this leader"
		return m
	}
	m.State, m.LastContactMs = state, ago.Milliseconds()
	if m.Detail = state.GetDetail(); !m.InContact {
		m.State.Ready = false
		m.Detail = fmt.Sprintf("no report for %v", ago.Round(100*time.Millisecond))
	}
	return m
}

func membersFrom(rep *peerpb.MembersReply, fromLeader bool) Members {
	out := Members{FromLeader: fromLeader, Term: rep.GetTerm()}
	for _, m := range rep.GetMembers() {
		s := m.GetState()
		out.Members = append(out.Members, Member{
			Name: s.GetName(), ID: s.GetId(), PeerAddress: s.GetPeerAddress(),
			GRPCAddress: s.GetGrpcAddress(), HTTPAddress: s.GetHttpAddress(), ZooKeeperAddress: s.GetZookeeperAddress(),
			Role: roleOf(m), InContact: m.GetInContact(), Ready: s.GetReady(), Version: s.GetVersion(),
			AppliedIndex: s.GetAppliedIndex(), LastContact: time.Duration(m.GetLastContactMs()) * time.Millisecond,
			Detail: m.GetDetail(), Sessions: s.GetSessions(), Uptime: time.Duration(s.GetUptimeMs()) * time.Millisecond,
			DiskLow: s.GetDiskLow(), FeatureLevel: s.GetFeatureLevel(),
		})
	}
	sortMembers(out.Members)
	return out
}

func roleOf(m *peerpb.MembersReply_Member) Role {
	switch {
	case m.GetState().GetId() == "":
		return RoleMissing
	case m.GetLeader():
		return RoleLeader
	case m.GetSuffrage() == raft.Voter.String():
		return RoleVoter
	default:
		return RoleJoining
	}
}
