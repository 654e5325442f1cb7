package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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
// taken in. It gets no vote yet (see memberLoop).
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
	if err := n.checkLevel(id.name(), q.GetFeatureLevel()); err != nil {
		return &peerpb.JoinReply{Refused: err.Error(), Retry: true}, nil
	}
	if err := n.admitMember(ctx, r, id, q.GetAddress()); err != nil {
		return &peerpb.JoinReply{Refused: err.Error(), Retry: true}, nil
	}
	return &peerpb.JoinReply{ClusterId: n.stores.cluster()}, nil
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
		rep.LeaderAddress, _ = n.addresses.of(id.name())
	}
	return rep
}

// admitMember puts a server into the configuration, without a vote. While
// another incarnation of its name is alive it is refused: two disks claim to be
// the same server, and only the operator knows which one is meant.
func (n *Node) admitMember(ctx context.Context, r *reign, id serverID, address string) error {
	members := n.members()
	if slices.ContainsFunc(members, func(s raft.Server) bool { return serverID(s.ID) == id }) {
		n.addresses.learn(id.name(), address)
		return nil
	}
	if err := n.changesRefused(); err != nil {
		return err
	}
	if len(members) >= maxMembers {
		return fmt.Errorf("the cluster has %d members, no more are taken in", len(members))
	}
	for _, s := range members {
		old := serverID(s.ID)
		if old.name() != id.name() {
			continue
		}
		if !n.settledIn(r) {
			return fmt.Errorf("this leader is new and does not know yet whether %s is alive", old)
		}
		if n.inContact(old) {
			at, _ := n.addresses.of(old.name())
			return fmt.Errorf("%s is alive at %s; stop it before another one takes its name", old, at)
		}
	}
	n.addresses.learn(id.name(), address)
	f := n.raft.Load().AddNonvoter(raft.ServerID(id), raft.ServerAddress(id), 0, memberChangeTimeout)
	if err := await(ctx, f); err != nil {
		return fmt.Errorf("take %s in: %w", id, err)
	}
	n.log.Info("a server joined without a vote", "event", "member_joined", "peer", string(id), "address", address)
	return nil
}

// settledIn says that this leadership is old enough for every server that is
// alive to have reported.
func (n *Node) settledIn(r *reign) bool { return n.now()-r.since > n.contactTimeout() }
