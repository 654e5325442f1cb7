package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
)

func newMembersCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the servers of the cluster; remove one, or give it a vote",
		Long: `List the servers of the cluster: what each is, whether it is well, since when,
and what is going on. SINCE is for how long a server has had its role, or has not
been heard.

A server joins by being started with a list of peers that has it. It gets a vote
when it has caught up and kept up; there is no command for it.`,
		Example: "  coordctl members\n" +
			"  coordctl members --json | jq -r '.items[] | select(.inContact | not) | .name'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.listMembers(cmd.Context()) },
	}
	cmd.AddCommand(newMembersRemoveCmd(e), newMembersPromoteCmd(e))
	return cmd
}

func (e *env) listMembers(ctx context.Context) error {
	st, err := e.clusterStatus(ctx)
	if err != nil {
		return err
	}
	l := e.newLister("Member", []string{"NODE", "ROLE", "STATE", "SINCE", "ADDRESS", "VERSION", "DETAIL"}, []string{"GRPC", "HTTP", "ID"})
	for i := range st.Servers {
		m := &st.Servers[i]
		if err := l.add(m, m.Name, m.vote(), m.State, m.since(), dash(m.Peer), dash(m.Version), m.Detail, dash(m.GRPC), dash(m.HTTP), dash(m.ID)); err != nil {
			return err
		}
	}
	return l.close()
}

// vote is the role where it matters who votes.
func (m *memberItem) vote() string {
	if m.Role == "follower" {
		return "voter"
	}
	return m.Role
}

// since is for how long the server has been as it is.
func (m *memberItem) since() string {
	ms := m.RoleSinceMs
	if !m.InContact {
		ms = m.LastContactMs
	}
	if ms == nil {
		return "-"
	}
	return ago(time.Duration(*ms) * time.Millisecond)
}

func newClusterCmd(e *env) *cobra.Command {
	return parent("cluster", "Form a cluster, and raise it after an upgrade", newClusterInitCmd(e), newClusterUpgradeCmd(e))
}

func newClusterInitCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "init",
		Short: "Form the cluster, once, when all its servers run and are empty",
		Long: `Form a cluster whose servers wait for it (cluster.bootstrap: manual). Every
listed server must answer and be empty; otherwise nothing is done and the reason
is said.`,
		Example: "  coordctl -e n1:7420 cluster init && coordctl -e n1:7420 wait ready",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.admin(cmd.Context(), "cluster init", func(ctx context.Context, a coordpb.AdminClient) error {
				reply, err := a.Init(ctx, &coordpb.InitRequest{})
				if err != nil {
					return err
				}
				if reply.Error != nil && reply.ClusterId != "" {
					return &codedError{exitPrecondition, fmt.Errorf("cluster init: the cluster is formed already, its id is %s", reply.ClusterId)}
				}
				if err := replyError("cluster init", reply.Error); err != nil {
					return err
				}
				return e.object("Cluster", map[string]string{"clusterId": reply.ClusterId}, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "the cluster is formed, its id is %s; the other servers join now (coordctl wait ready)\n", reply.ClusterId)
					return err
				})
			})
		},
	}
}

func newWaitCmd(e *env) *cobra.Command {
	return parent("wait", "Wait for a state of the cluster", newWaitReadyCmd(e))
}

func newWaitReadyCmd(e *env) *cobra.Command {
	var node string
	var stable, limit time.Duration
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Wait until the cluster, or one server, is ready",
		Example: "  coordctl wait ready --for 1m\n" +
			"  coordctl wait ready --node n2 --stable 10s",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("timeout") && !cmd.Flags().Changed("for") {
				limit = e.timeout // the wait is the request
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return e.waitReady(ctx, node, stable, limit)
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "wait for this server only")
	cmd.Flags().DurationVar(&stable, "stable", 0, "it must have been ready for this long")
	cmd.Flags().DurationVar(&limit, "for", time.Minute, "give up after this long (exit code 7); --timeout does the same here")
	return cmd
}

// readyItem is what a wait that has succeeded prints for scripts.
type readyItem struct {
	Ready bool   `json:"ready"`
	Node  string `json:"node,omitempty"` // empty: the whole cluster
}

func (e *env) waitReady(ctx context.Context, node string, stable, limit time.Duration) error {
	var since time.Time
	var why string
	for {
		now, err := e.notReady(ctx, node)
		if err != nil {
			return err
		}
		if why == "" || ctx.Err() == nil { // else the end of the wait cut the question short
			why = now
		}
		switch {
		case why != "":
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if why == "" && time.Since(since) >= stable {
			return e.object("Ready", readyItem{true, node}, func(io.Writer) error {
				e.note("ready")
				return nil
			})
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.Canceled {
				return errInterrupted
			}
			return &codedError{exitTimeout, fmt.Errorf("not ready within %s: %s", limit, why)}
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// notReady says what is missing, "" if nothing is.
func (e *env) notReady(ctx context.Context, node string) (string, error) {
	st, err := e.clusterStatus(ctx)
	if err != nil {
		if _, code := classify(err); code == exitUsage || code == exitNotPermitted {
			return "", err
		}
		return strings.ReplaceAll(describe(err), "\n", ";"), nil
	}
	var missing []string
	found := false
	for i := range st.Servers {
		m := &st.Servers[i]
		if node != "" && m.Name != node {
			continue
		}
		found = true
		if !m.ok() {
			missing = append(missing, strings.TrimSpace(fmt.Sprintf("%s is %s, %s %s", m.Name, m.State, m.Role, m.Detail)))
		}
	}
	switch {
	case st.Waiting != "":
		return st.Waiting, nil
	case st.Leader == "":
		return "there is no leader", nil
	case node != "" && !found:
		return fmt.Sprintf("the cluster has no server %q", node), nil
	case node == "" && !st.Healthy && len(missing) == 0:
		return "the leader does not answer", nil
	default:
		return strings.Join(missing, "; "), nil
	}
}
