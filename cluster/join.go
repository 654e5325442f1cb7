package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

// memberChangeTimeout bounds how long one change of the membership waits for
// its turn at the leader.
const memberChangeTimeout = 2 * time.Second

// maxMembers bounds the configuration: a server that loses its disk again and
// again must not fill it.
const maxMembers = 2 * maxPeers

// errBadJoin is returned for a request to join that no server makes.
var errBadJoin = errors.New("not a valid request to join")

// Join implements peerpb.PeerServer: a server that has no cluster asks to be
// taken in. It gets no vote yet (see memberLoop). One that belongs to this cluster
// asks whether it still does, and says where it is.
func (s *peerService) Join(ctx context.Context, q *peerpb.JoinRequest) (*peerpb.JoinReply, error) {
	n := s.node
	id, err := checkJoin(q, callerID(ctx))
	if err != nil {
		return &peerpb.JoinReply{Refused: err.Error()}, nil
	}
	if q.GetClusterName() != n.cfg.ClusterName {
		return &peerpb.JoinReply{Refused: fmt.Sprintf("this cluster is called %s, not %s", n.cfg.ClusterName, clip(q.GetClusterName()))}, nil
	}
	r := n.reign.Load()
	if r == nil {
		return n.sendToLeader(), nil
	}
	if own := n.stores.cluster(); own != "" && callerCluster(ctx) == own {
		return n.recognise(ctx, r, id, q.GetAddress()), nil
	}
	if err := n.checkLevel(id.name(), q.GetFeatureLevel()); err != nil {
		return &peerpb.JoinReply{Refused: err.Error(), Retry: true}, nil
	}
	if err := n.admitMember(ctx, r, id, q); err != nil {
		return &peerpb.JoinReply{Refused: err.Error(), Retry: true}, nil
	}
	return &peerpb.JoinReply{ClusterId: n.stores.cluster()}, nil
}

// recognise answers a server that belongs to this cluster: it is a member, or it
// has left for good.
func (n *Node) recognise(ctx context.Context, r *reign, id serverID, address string) *peerpb.JoinReply {
	if !n.isMember(id) {
		switch left, err := n.hasLeft(ctx, r, id); {
		case err != nil:
			return &peerpb.JoinReply{Refused: err.Error(), Retry: true}
		case left:
			return &peerpb.JoinReply{ClusterId: n.stores.cluster(), Removed: true, Leader: string(n.id)}
		}
	}
	n.learnAddress(id, address)
	return &peerpb.JoinReply{ClusterId: n.stores.cluster()}
}

// checkJoin allows a server to ask for itself only.
func checkJoin(q *peerpb.JoinRequest, caller serverID) (serverID, error) {
	id, err := parseServerID(q.GetId())
	if err != nil {
		return "", fmt.Errorf("%w: %w", errBadJoin, err)
	}
	if id != caller || id.name() != q.GetName() {
		return "", fmt.Errorf("%w: %s asks for %s, called %s", errBadJoin, caller, id, clip(q.GetName()))
	}
	if _, _, err := net.SplitHostPort(q.GetAddress()); err != nil || len(q.GetAddress()) > maxNameBytes {
		return "", fmt.Errorf("%w: address %s", errBadJoin, clip(q.GetAddress()))
	}
	return id, nil
}

func (n *Node) sendToLeader() *peerpb.JoinReply {
	rep := &peerpb.JoinReply{Refused: "this server does not lead", Retry: true}
	if id, _, ok := n.leader(); ok && id != n.id {
		rep.LeaderAddress, _ = n.addresses.of(id)
	}
	return rep
}

// admitMember puts a server into the configuration, without a vote. While
// another incarnation of its name is alive it is refused: two disks claim to be
// the same server, and only the operator knows which one is meant.
func (n *Node) admitMember(ctx context.Context, r *reign, id serverID, q *peerpb.JoinRequest) error {
	known := false
	err := n.changeMembership(ctx, r, func(servers []raft.Server) (*change, error) {
		known = contains(servers, id)
		if err := n.mayJoin(r, servers, id); known || err != nil {
			return nil, err
		}
		n.learnAddress(id, q.GetAddress())
		return &change{begin: func(r *raft.Raft) raft.Future {
			return r.AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, memberChangeTimeout)
		}}, nil
	})
	if err == nil && known {
		// Who is told that it is a member says so for ever. A leader that was
		// deposed may have it in a membership that nobody else has ever had.
		err = n.proveReign(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("take %s in: %w", id, err)
	}
	if known {
		n.learnAddress(id, q.GetAddress())
		return nil
	}
	n.log.Info("a server joined without a vote", "event", "member_joined", "peer", string(id), "address", q.GetAddress(), "observer", q.GetObserver())
	return nil
}

// mayJoin says what is in the way of a new member.
func (n *Node) mayJoin(r *reign, servers []raft.Server, id serverID) error {
	if len(servers) >= maxMembers && !contains(servers, id) {
		return fmt.Errorf("the cluster has %d members, no more are taken in", len(servers))
	}
	for _, s := range servers {
		old := serverID(s.ID)
		if old == id || old.name() != id.name() {
			continue
		}
		if !n.settledIn(r) {
			return fmt.Errorf("this leader is new and does not know yet whether %s is alive", old)
		}
		if n.inContact(old) {
			at, _ := n.addresses.of(old)
			return fmt.Errorf("%s is alive at %s; stop it before another one takes its name", old, at)
		}
	}
	return nil
}

// settledIn says that this leadership is old enough for every server that is
// alive to have reported.
func (n *Node) settledIn(r *reign) bool { return n.now()-r.since > n.contactTimeout() }
