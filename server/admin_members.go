package server

import (
	"context"
	"fmt"
	"time"

	"github.com/coordd/coord/api/coordpb"
	"github.com/coordd/coord/cluster"
)

// changeTime bounds a change of the membership: a leader hands over, a new one
// has to hear of all servers first, and then the change is committed.
const changeTime = 30 * time.Second

// RemoveMember implements coordpb.AdminServer.
func (a adminService) RemoveMember(ctx context.Context, req *coordpb.RemoveMemberRequest) (*coordpb.RemoveMemberReply, error) {
	what := "remove-member"
	if req.GetDryRun() {
		what = "remove-member-dry-run"
	}
	if err := a.enter(ctx, what, "name", quoted(req.GetName())); err != nil {
		return nil, err
	}
	done, err := a.s.removeMember(ctx, req.GetName(), req.GetDryRun())
	return &coordpb.RemoveMemberReply{Id: done.ID, Effect: done.Effect, Error: a.outcome(err)}, nil
}

// PromoteMember implements coordpb.AdminServer.
func (a adminService) PromoteMember(ctx context.Context, req *coordpb.PromoteMemberRequest) (*coordpb.PromoteMemberReply, error) {
	if err := a.enter(ctx, "promote-member", "name", quoted(req.GetName())); err != nil {
		return nil, err
	}
	done, err := a.s.promoteMember(ctx, req.GetName())
	return &coordpb.PromoteMemberReply{Id: done.ID, Error: a.outcome(err)}, nil
}

// removeMember takes a server out for an operator, on whichever port he came.
func (s *Server) removeMember(ctx context.Context, name string, dryRun bool) (cluster.MemberChange, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	done, err := s.cluster.RemoveMember(ctx, name, dryRun)
	if !dryRun {
		s.logChange("removal of a member", name, done, err)
	}
	return done, err
}

func (s *Server) promoteMember(ctx context.Context, name string) (cluster.MemberChange, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	done, err := s.cluster.PromoteMember(ctx, name)
	s.logChange("promotion of a member", name, done, err)
	return done, err
}

// logChange writes down how an operator's change of the membership ended.
func (s *Server) logChange(what, name string, done cluster.MemberChange, err error) {
	if err != nil {
		s.log.Warn(what+" failed", "event", "member_change_failed", "name", quoted(name), "err", err)
		return
	}
	s.log.Info(what, "event", "member_change_done", "member", done.ID, "effect", done.Effect)
}

// quoted is text of a caller as the log shows it.
func quoted(s string) string { return fmt.Sprintf("%.64q", s) }
