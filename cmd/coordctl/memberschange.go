package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
)

// memberChange is a change of the membership as scripts see it.
type memberChange struct {
	Name   string `json:"name"`
	ID     string `json:"id"` // name~incarnation
	Done   bool   `json:"done"`
	Effect string `json:"effect,omitempty"` // what is left, or would be
}

func newMembersRemoveCmd(e *env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Take a server out of the cluster for good",
		Long: `Take a server out of the cluster for good. NAME is its name, or name~incarnation
where two have the same name. A leader hands over first. It is refused, with the
numbers, if what remains could not reach a quorum.

The server hears of it and ends. Its data can never be a member again: to bring
the server back, wipe its data directory and start it; it joins as a new one.
Before that, take it out of cluster.peers of the others, or it is listed as missing.`,
		Example: "  coordctl members remove n3 --dry-run\n  coordctl members remove n3 --yes",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return e.removeMember(cmd.Context(), args[0], dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be left, and change nothing")
	return cmd
}

func (e *env) removeMember(ctx context.Context, name string, dryRun bool) error {
	plan, err := e.askRemove(ctx, name, true)
	if err != nil {
		return err
	}
	if !dryRun {
		if plan, err = e.confirmedRemove(ctx, plan); err != nil {
			return err
		}
	}
	return e.object("MemberRemove", plan, func(w io.Writer) error {
		text := "removed %s: %s\n"
		if dryRun {
			text = "would remove %s, and then: %s\n"
		}
		_, err := fmt.Fprintf(w, text, plan.ID, plan.Effect)
		return err
	})
}

// confirmedRemove removes the incarnation that was asked about, and no other that
// has taken its name meanwhile.
func (e *env) confirmedRemove(ctx context.Context, plan memberChange) (memberChange, error) {
	t, err := e.resolve()
	if err != nil {
		return plan, err
	}
	question := fmt.Sprintf("Remove %s from the cluster for good? Then: %s.", plan.ID, plan.Effect)
	want := ""
	if t.Protected {
		want = plan.Name
	}
	if err := e.confirm("members remove", question, want, t.Protected); err != nil {
		return plan, err
	}
	return e.askRemove(ctx, plan.ID, false)
}

func (e *env) askRemove(ctx context.Context, name string, dryRun bool) (out memberChange, err error) {
	err = e.admin(ctx, "members remove", func(ctx context.Context, a coordpb.AdminClient) error {
		reply, err := a.RemoveMember(ctx, &coordpb.RemoveMemberRequest{Name: name, DryRun: dryRun})
		if err != nil {
			return err
		}
		out = memberChange{nameOf(reply.GetId()), reply.GetId(), !dryRun, reply.GetEffect()}
		return replyError("members remove "+oneLine(name), reply.GetError())
	})
	return out, err
}

func newMembersPromoteCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "promote NAME",
		Short: "Give a joining server its vote now, without waiting for it to be stable",
		Long: `Give a joining server its vote now. A server gets it by itself when it has caught
up and kept up for some time; this is for when that is too long. It is refused
while the server is not in contact or behind, and for an observer.`,
		Example: "  coordctl members promote n4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var done memberChange
			err := e.admin(cmd.Context(), "members promote", func(ctx context.Context, a coordpb.AdminClient) error {
				reply, err := a.PromoteMember(ctx, &coordpb.PromoteMemberRequest{Name: args[0]})
				if err != nil {
					return err
				}
				done = memberChange{Name: nameOf(reply.GetId()), ID: reply.GetId(), Done: true}
				return replyError("members promote "+oneLine(args[0]), reply.GetError())
			})
			if err != nil {
				return err
			}
			return e.object("MemberPromote", done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s votes\n", done.ID)
				return err
			})
		},
	}
}

// nameOf is the name in name~incarnation.
func nameOf(id string) string {
	name, _, _ := strings.Cut(id, "~")
	return name
}
