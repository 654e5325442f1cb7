package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/internal/zkimport"
)

func newVerifyZooKeeperCmd(e *env) *cobra.Command {
	var o importOptions
	cmd := &cobra.Command{
		Use:   "zookeeper HOSTS",
		Short: "Compare a subtree of a ZooKeeper ensemble with its copy",
		Long: `Compare a subtree of a live ZooKeeper ensemble with its copy in the cluster: every
znode must be there with the same data and ACL, its sequence counter must not be
behind, quotas must be the same, and there must be no other znodes. Ephemerals on
either side, versions and times do not count. Nothing is changed.

` + importSourceHelp + `

If anything differs the exit code is 8. What is written on either side meanwhile is
a difference too.`,
		Example: "  coordctl import verify zookeeper zk1:2181 --source-auth-file super.auth\n" +
			"  coordctl import verify zookeeper zk1:2181 --path /kafka --under /old/kafka --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(e, args[0]); err != nil {
				return err
			}
			return as("import verify", e.verifyZooKeeper(cmd.Context(), &o))
		},
	}
	o.addSourceFlags(cmd.Flags())
	return cmd
}

// verifyItem is what import verify prints for scripts.
type verifyItem struct {
	Source      []string         `json:"source"`
	Path        string           `json:"path"`
	Under       string           `json:"under"`
	Same        bool             `json:"same"`
	Znodes      int              `json:"znodes"` // that were compared
	Differences []differenceItem `json:"differences"`
	// Changed is how many znodes came or went in the ensemble meanwhile.
	Changed int `json:"changed"`
}

// differenceItem is something that differs.
type differenceItem struct {
	Path   string `json:"path"`
	What   string `json:"what"`
	Detail string `json:"detail,omitempty"`
}

func (e *env) verifyZooKeeper(ctx context.Context, o *importOptions) error {
	item := verifyItem{Source: o.hosts, Path: o.path, Under: o.under, Differences: []differenceItem{}}
	err := e.survey(ctx, o, func(ctx context.Context, v *zkimport.Survey, c *client.Client, _ *teller) error {
		found, err := v.Verify(ctx, c, o.under)
		if err != nil {
			return err
		}
		item.Znodes, item.Changed, item.Same = found.Znodes, found.Changed, len(found.Differences) == 0
		for _, d := range found.Differences {
			item.Differences = append(item.Differences, differenceItem(d))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := e.printVerification(&item); err != nil || item.Same {
		return err
	}
	return errUnhealthy
}

func (e *env) printVerification(i *verifyItem) error {
	return e.object("ImportVerification", i, func(w io.Writer) error {
		t := table{header: []string{"PATH", "DIFFERENCE", "DETAIL"}}
		for _, d := range i.Differences {
			t.rows = append(t.rows, []string{d.Path, d.What, dash(d.Detail)})
		}
		if len(t.rows) > 0 {
			if err := e.printTable(t); err != nil {
				return err
			}
		}
		if i.Changed > 0 {
			e.note("%s came or went in the ensemble meanwhile", plural(i.Changed, "znode"))
		}
		result := "all the same"
		if !i.Same {
			result = plural(len(i.Differences), "difference")
		}
		_, err := fmt.Fprintf(w, "%s compared: %s\n", plural(i.Znodes, "znode"), result)
		return err
	})
}
