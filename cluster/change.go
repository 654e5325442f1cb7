package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/coordd/coord/cluster/peerpb"
)

var (
	// ErrUnsafe is returned for a change of the membership that would leave too
	// few servers, or give a vote too early; the message has the arithmetic.
	ErrUnsafe = errors.New("refused")
	// ErrNoMember is returned for a name that no member has.
	ErrNoMember = errors.New("no such member")
	// errNotNow is returned for a change that may be possible in a moment, or may
	// have been done.
	errNotNow = errors.New("not now")
)

// MemberChange is what became of a change of the membership, or would become.
type MemberChange struct {
	ID     string // name~incarnation
	Effect string // what is left afterwards
}

// RemoveMember takes a server out of the cluster, named by its name or by
// name~incarnation. A leader hands over first. It returns ErrNoMember if there is
// no such member, ErrUnsafe if what remains could not reach a quorum, and
// ErrNotLeader if nobody has led until ctx ended. With dryRun nothing is done.
func (n *Node) RemoveMember(ctx context.Context, name string, dryRun bool) (MemberChange, error) {
	plan, err := n.changeMember(ctx, &peerpb.ChangeMemberRequest{Name: name, Remove: true, DryRun: true})
	if err != nil || dryRun {
		return plan, err
	}
	done, err := n.changeMember(ctx, &peerpb.ChangeMemberRequest{Name: plan.ID, Remove: true})
	if errors.Is(err, ErrNoMember) { // an answer that was lost said so first, or somebody else was quicker
		return plan, nil
	}
	return done, err
}

// PromoteMember gives a vote to a server that has caught up, without waiting for
// it to be stable. Errors are those of RemoveMember.
func (n *Node) PromoteMember(ctx context.Context, name string) (MemberChange, error) {
	plan, err := n.changeMember(ctx, &peerpb.ChangeMemberRequest{Name: name, DryRun: true})
	if err != nil {
		return plan, err
	}
	return n.promotePlanned(ctx, plan)
}

// promotePlanned gives a vote to a server that had none. If it has one by then, an
// answer that was lost said so first, or the leader's keeper was quicker.
func (n *Node) promotePlanned(ctx context.Context, plan MemberChange) (MemberChange, error) {
	done, err := n.changeMember(ctx, &peerpb.ChangeMemberRequest{Name: plan.ID})
	if errors.Is(err, ErrUnsafe) && n.votes(ctx, plan.ID) {
		return plan, nil
	}
	return done, err
}

// votes says whether the leader says that a server has a vote.
func (n *Node) votes(ctx context.Context, id string) bool {
	m := n.Members(ctx)
	return m.FromLeader && slices.ContainsFunc(m.Members, func(m Member) bool {
		return m.ID == id && (m.Role == RoleVoter || m.Role == RoleLeader)
	})
}

// changeMember asks the leaders to come until one decides or ctx ends.
func (n *Node) changeMember(ctx context.Context, q *peerpb.ChangeMemberRequest) (MemberChange, error) {
	last := ErrNotLeader
	for {
		changed := n.changed.C()
		rep, err := n.askChange(ctx, q)
		switch {
		case err != nil:
			last = err
		case rep.GetNotLeader():
		case rep.GetRetry():
			last = fmt.Errorf("%w: %s", ErrRefused, rep.GetRefused())
		case rep.GetUnknown():
			return MemberChange{}, fmt.Errorf("%w: %s", ErrNoMember, rep.GetRefused())
		case rep.GetRefused() != "":
			return MemberChange{}, fmt.Errorf("%w: %s", ErrUnsafe, rep.GetRefused())
		default:
			return MemberChange{ID: rep.GetId(), Effect: rep.GetEffect()}, nil
		}
		if awaitChange(ctx, changed); ctx.Err() != nil {
			return MemberChange{}, fmt.Errorf("%w: %w", last, ctx.Err())
		}
	}
}

func (n *Node) askChange(ctx context.Context, q *peerpb.ChangeMemberRequest) (*peerpb.ChangeMemberReply, error) {
	leader, _, ok := n.leader()
	if !ok {
		return &peerpb.ChangeMemberReply{NotLeader: true}, nil
	}
	if leader == n.id {
		return n.changeHere(ctx, q), nil
	}
	client, err := n.peers.client(leader)
	if err != nil {
		return nil, err
	}
	rep, err := client.ChangeMember(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("ask the leader %s: %w", leader.name(), err)
	}
	return rep, nil
}

// ChangeMember implements peerpb.PeerServer.
func (s *peerService) ChangeMember(ctx context.Context, q *peerpb.ChangeMemberRequest) (*peerpb.ChangeMemberReply, error) {
	return s.node.changeHere(ctx, q), nil
}

// changeHere is a change of the membership at the leader.
func (n *Node) changeHere(ctx context.Context, q *peerpb.ChangeMemberRequest) *peerpb.ChangeMemberReply {
	r := n.reign.Load()
	if r == nil {
		return &peerpb.ChangeMemberReply{NotLeader: true}
	}
	consider := n.promotion
	if q.GetRemove() {
		consider = n.removal
	}
	rep := &peerpb.ChangeMemberReply{}
	err := n.changeMembership(ctx, r, func(servers []raft.Server) (*change, error) {
		s, err := findMember(servers, q.GetName())
		if err != nil {
			return nil, err
		}
		rep.Id = string(s.ID)
		if !n.settledIn(r) {
			return nil, fmt.Errorf("%w: this leader is new and does not know yet who is alive", errNotNow)
		}
		c, effect, err := consider(servers, s, q.GetDryRun())
		rep.Effect = effect
		return c, err
	})
	if errors.Is(err, errLeaves) {
		return n.handOverFirst(ctx, rep)
	}
	if err != nil {
		rep.Refused, rep.Unknown = withoutKind(err), errors.Is(err, ErrNoMember)
		rep.Retry = errors.Is(err, errNotNow)
		return rep
	}
	if !q.GetDryRun() {
		n.log.Info("the membership was changed by an operator", "event", "member_changed", "peer", rep.GetId(), "remove", q.GetRemove())
	}
	return rep
}

// withoutKind is the text of a refusal without its sentinel, which the asker puts
// in front again.
func withoutKind(err error) string {
	for _, kind := range []error{ErrUnsafe, ErrNoMember, errNotNow} {
		if text, ok := strings.CutPrefix(err.Error(), kind.Error()+": "); ok {
			return text
		}
	}
	return err.Error()
}

// errLeaves is returned for the removal of the leader by itself.
var errLeaves = errors.New("this server leads")

// handOverFirst lets another server lead, who then removes this one.
func (n *Node) handOverFirst(ctx context.Context, rep *peerpb.ChangeMemberReply) *peerpb.ChangeMemberReply {
	if _, err := n.transferHere(ctx, ""); err != nil {
		rep.Refused, rep.Retry = fmt.Sprintf("%s leads, and leadership was not handed over: %v", rep.GetId(), err), true
		return rep
	}
	return &peerpb.ChangeMemberReply{NotLeader: true}
}

// findMember finds a member by its name or by name~incarnation.
func findMember(servers []raft.Server, name string) (raft.Server, error) {
	var hits []raft.Server
	for _, s := range servers {
		if id := serverID(s.ID); string(id) == name || id.name() == name {
			hits = append(hits, s)
		}
	}
	switch len(hits) {
	case 0:
		return raft.Server{}, fmt.Errorf("%w: %s was removed, or never was one", ErrNoMember, clip(name))
	case 1:
		return hits[0], nil
	default:
		return raft.Server{}, fmt.Errorf("%w: %s is two servers, %s and %s: say which one", ErrNoMember, name, hits[0].ID, hits[1].ID)
	}
}
