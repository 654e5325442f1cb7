package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
	"github.com/coordd/coord/fsm"
)

// errNotAdmin is returned to callers of the admin service who are not.
var errNotAdmin = errors.New("needs an admin identity: a superuser's certificate, or the super digest")

// adminService implements coordpb.AdminServer. Every call needs an admin.
type adminService struct {
	coordpb.UnimplementedAdminServer
	s *Server
}

// enter checks the caller and writes down what he does, and what he was
// refused.
func (a adminService) enter(ctx context.Context, what string, args ...any) error {
	g, err := a.s.auth.caller(ctx)
	if err == nil && !g.admin {
		err = errNotAdmin
	}
	log := a.s.log.With(append([]any{"op", what, "peer", g.address, "identities", g.names()}, args...)...)
	if err != nil {
		a.s.metrics.refused.Add(1)
		log.Warn("admin call refused", "event", "admin_refused", "err", err)
		return statusOf(err)
	}
	if changes(what) {
		log.Info("admin call", "event", "admin_call")
	}
	return nil
}

// enterStream is enter for a call that streams, of a cluster that is formed. Without
// an error the caller must call s.streams.done at its end.
func (a adminService) enterStream(ctx context.Context, what string) error {
	if err := a.enter(ctx, what); err != nil {
		return err
	}
	if err := a.s.formed(); err != nil {
		return statusOf(err)
	}
	if !a.s.streams.begin() {
		return statusOf(fsm.ErrShuttingDown)
	}
	return nil
}

// changes says whether an admin call does more than look.
func changes(what string) bool {
	return what != "status" && what != "stats" && what != "sessions" && what != "upgrade-status"
}

// names lists who a guest has proved to be, without secrets.
func (g *guest) names() []string {
	out := make([]string, 0, len(g.identities))
	for _, id := range g.identities {
		out = append(out, id.Scheme+":"+maskDigest(id.Scheme, id.ID))
	}
	return out
}

// Status implements coordpb.AdminServer.
func (a adminService) Status(ctx context.Context, _ *coordpb.StatusRequest) (*coordpb.StatusReply, error) {
	if err := a.enter(ctx, "status"); err != nil {
		return nil, err
	}
	s, st := a.s, a.s.cluster.Status()
	rep := &coordpb.StatusReply{
		Server: st.Name, ServerId: st.ID, ClusterName: st.ClusterName, ClusterId: st.ClusterID,
		Leader: st.Leader, Term: st.Term, Ready: st.Ready, Version: s.cfg.Version,
		UptimeMs: st.Uptime.Milliseconds(), Waiting: st.Waiting, CommitIndex: st.CommitIndex, AppliedIndex: st.AppliedIndex,
		Watches: int64(s.hub.watchCount()), Alarm: st.Alarm, FeatureLevel: st.FeatureLevel,
	}
	digest, index, z := s.machine.Digest()
	rep.Digest, rep.DigestIndex, rep.Zxid = digest, index, uint64(z)
	s.machine.View(func(v *fsm.View) {
		counts := v.Tree.Counts()
		rep.Sessions, rep.Znodes, rep.DataBytes = int64(v.Sessions.Len()), int64(counts.Nodes), counts.DataBytes
	})
	for _, c := range st.Checks {
		rep.Checks = append(rep.Checks, &coordpb.Check{Name: c.Name, Ok: c.OK, Detail: c.Detail})
	}
	members := s.cluster.Members(ctx)
	rep.MembersFromLeader = members.FromLeader
	for i := range members.Members {
		rep.Members = append(rep.Members, memberOut(&members.Members[i]))
	}
	rep.ClockUs = s.cluster.WallClock().UnixMicro() // last: who compares clocks knows best when the answer came
	return rep, nil
}

func memberOut(m *cluster.Member) *coordpb.Member {
	out := &coordpb.Member{
		Name: m.Name, Id: m.ID, PeerAddress: m.PeerAddress, GrpcAddress: m.GRPCAddress, HttpAddress: m.HTTPAddress,
		InContact: m.InContact, Ready: m.Ready, Version: m.Version, AppliedIndex: m.AppliedIndex,
		LastContactMs: -1, RoleSinceMs: -1, FeatureLevel: m.FeatureLevel, Detail: m.Detail, Sessions: m.Sessions, UptimeMs: m.Uptime.Milliseconds(),
	}
	if m.RoleFor >= 0 {
		out.RoleSinceMs = m.RoleFor.Milliseconds()
	}
	if d := m.Disk; d != nil {
		out.Disk = &coordpb.Disk{
			Store: d.Store, Free: d.Free, Reserve: d.Reserve, Held: d.Held, Budget: d.Budget, Snapshot: d.Snapshot,
			Low: d.Low, Spent: d.Spent, Trouble: d.Trouble,
		}
	}
	if m.LastContact >= 0 {
		out.LastContactMs = m.LastContact.Milliseconds()
	}
	switch m.Role {
	case cluster.RoleLeader:
		out.Role = coordpb.Member_ROLE_LEADER
	case cluster.RoleVoter:
		out.Role = coordpb.Member_ROLE_VOTER
	case cluster.RoleJoining:
		out.Role = coordpb.Member_ROLE_JOINING
	case cluster.RoleObserver:
		out.Role = coordpb.Member_ROLE_OBSERVER
	case cluster.RoleMissing:
		out.Role = coordpb.Member_ROLE_MISSING
	}
	return out
}

// initTime bounds how long forming a cluster may take.
const initTime = 30 * time.Second

// Init implements coordpb.AdminServer.
func (a adminService) Init(ctx context.Context, _ *coordpb.InitRequest) (*coordpb.InitReply, error) {
	if err := a.enter(ctx, "init"); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, initTime)
	defer cancel()
	id, err := a.s.cluster.Form(ctx)
	return &coordpb.InitReply{ClusterId: id, Error: a.outcome(err)}, nil
}

// MoveLeader implements coordpb.AdminServer.
func (a adminService) MoveLeader(ctx context.Context, req *coordpb.MoveLeaderRequest) (*coordpb.MoveLeaderReply, error) {
	if err := a.enter(ctx, "move-leader", "to", fmt.Sprintf("%.64q", req.GetTo())); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, initTime)
	defer cancel()
	leader, err := a.s.cluster.Transfer(ctx, req.GetTo())
	return &coordpb.MoveLeaderReply{Leader: leader, Error: a.outcome(err)}, nil
}

// Snapshot implements coordpb.AdminServer.
func (a adminService) Snapshot(ctx context.Context, _ *coordpb.SnapshotRequest) (*coordpb.SnapshotReply, error) {
	if err := a.enter(ctx, "snapshot"); err != nil {
		return nil, err
	}
	start := time.Now()
	index, err := a.s.cluster.Snapshot()
	return &coordpb.SnapshotReply{Index: index, TookMs: time.Since(start).Milliseconds(), Error: a.outcome(err)}, nil
}

// outcome is the error of an admin call. Admins see the text of every one: they
// are the ones who must act.
func (a adminService) outcome(err error) *coordpb.Error {
	e := a.s.faults.wire(err, 0, opNone)
	if e != nil {
		e.Message = err.Error()
	}
	return e
}
