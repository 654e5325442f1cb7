package cluster

import (
	"context"
	"fmt"
	"strings"
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
	// RoleObserver is a server that never gets a vote.
	RoleObserver Role = "observer"
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
	Disk             *DiskUse // nil: not known
	FeatureLevel     uint32
	ZooKeeperAddress string
	// RoleFor is for how long it has had its role, counted from its start at most;
	// negative: not known.
	RoleFor time.Duration
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
	servers := n.members()
	have := n.count(servers)
	for _, s := range servers {
		id := serverID(s.ID)
		present[id.name()] = true
		m := n.member(id, s.Suffrage, leader == id)
		m.Detail = n.explain(m, s, have)
		rep.Members = append(rep.Members, m)
	}
	for _, p := range n.cfg.servers() {
		if !present[p.Name] {
			rep.Members = append(rep.Members, &peerpb.MembersReply_Member{
				State:  &peerpb.ServerState{Name: p.Name, PeerAddress: p.Address, Observer: n.cfg.isObserver(p.Name), RoleSinceMs: -1},
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
		address, _ := n.addresses.of(id)
		m.State = &peerpb.ServerState{
			Name: id.name(), Id: string(id), PeerAddress: address, Observer: n.cfg.isObserver(id.name()), RoleSinceMs: -1,
		}
		m.LastContactMs = -1
		return m
	}
	m.State, m.LastContactMs = state, ago.Milliseconds()
	if !m.InContact {
		m.State.Ready = false
	}
	return m
}

// explain says why a member is not in contact, not ready or has no vote, and what
// that means; have is the tally of all.
func (n *Node) explain(m *peerpb.MembersReply_Member, s raft.Server, have tally) string {
	id := serverID(s.ID)
	r := n.reign.Load()
	snapshot := n.snapshotFor(id)
	if !m.GetInContact() {
		parts := append([]string{n.silence(id, m.GetLastContactMs())}, nonEmpty(snapshot)...)
		if spare := have.spare(); r != nil && s.Suffrage == raft.Voter && spare <= 0 {
			parts = append(parts, map[bool]string{true: "1 more failure stops writes", false: "there is no quorum"}[spare == 0])
		}
		return strings.Join(parts, "; ")
	}
	if r == nil || s.Suffrage == raft.Voter || m.GetState().GetObserver() {
		return strings.Join(append(nonEmpty(m.GetState().GetDetail()), nonEmpty(snapshot)...), "; ")
	}
	if snapshot == "" {
		return strings.Join(append(nonEmpty(m.GetState().GetDetail()), n.untilVote(r, id, m.GetState().GetAppliedIndex())), "; ")
	}
	// What the server itself says of being behind is what the snapshot will end.
	return fmt.Sprintf("%s, then %v of stability, then it votes", snapshot, n.cfg.StableBeforeVote)
}

// getsSnapshot says whether this server is sending another one a snapshot.
func (n *Node) getsSnapshot(id serverID) bool {
	t := n.transport.Load()
	return t != nil && t.sending.present(id) != nil
}

// snapshotFor says how far the snapshot has come that this server sends to another
// one, "" if it sends none.
func (n *Node) snapshotFor(id serverID) string {
	if t := n.transport.Load(); t != nil {
		return t.sending.progress(id)
	}
	return ""
}

// silence says why nothing is heard of a server.
func (n *Node) silence(id serverID, agoMS int64) string {
	parts := nonEmpty(n.contacts.troubleWith(id))
	if agoMS < 0 {
		parts = append(parts, "never heard of by this leader")
	} else {
		parts = append(parts, fmt.Sprintf("no report for %v", (time.Duration(agoMS)*time.Millisecond).Round(100*time.Millisecond)))
	}
	return strings.Join(parts, "; ")
}

// untilVote says what a joining server that is in contact waits for.
func (n *Node) untilVote(r *reign, id serverID, applied uint64) string {
	since, steady := r.steady.since(id)
	if !steady {
		behind := max(int64(n.commitIndex())-int64(applied), 0)
		return fmt.Sprintf("%d entries behind, then %v of stability, then it votes", behind, n.cfg.StableBeforeVote)
	}
	left := max(n.cfg.StableBeforeVote-(n.now()-since), 0)
	return fmt.Sprintf("votes after %v more of stability", left.Round(100*time.Millisecond))
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
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
			Disk: diskIn(s), FeatureLevel: s.GetFeatureLevel(), RoleFor: time.Duration(s.GetRoleSinceMs()) * time.Millisecond,
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
	case m.GetState().GetObserver():
		return RoleObserver
	default:
		return RoleJoining
	}
}
