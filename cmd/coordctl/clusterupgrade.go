package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/api/coordpb"
)

// upgradeItem is how far an upgrade has come, as scripts see it.
type upgradeItem struct {
	Level  uint32   `json:"level"`  // agreed on
	Common uint32   `json:"common"` // the highest that every server knows
	Behind []string `json:"behind,omitempty"`
}

func newClusterUpgradeCmd(e *env) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Let the cluster do what its servers have learned with an upgrade",
		Long: `Raise the cluster to the highest feature level that all its servers know. Do it
when every server runs the new release and is well: until then each of them can
go back to the release before, and afterwards none can. A server that does not
know the level ends, and says so.

With --dry-run it only shows the levels, and which servers are behind.`,
		Example: "  coordctl cluster upgrade --dry-run\n  coordctl cluster upgrade --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.clusterUpgrade(cmd.Context(), dryRun) },
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the levels and change nothing")
	return cmd
}

func (e *env) clusterUpgrade(ctx context.Context, dryRun bool) error {
	now, err := e.askUpgrade(ctx, false)
	if err != nil {
		return err
	}
	if dryRun || now.Common <= now.Level {
		return e.printUpgrade(now)
	}
	question := fmt.Sprintf("Raise the cluster from feature level %d to %d? No server can go back to a release that does not know it.", now.Level, now.Common)
	if err := e.confirm("cluster upgrade", question, "", false); err != nil {
		return err
	}
	if now, err = e.askUpgrade(ctx, true); err != nil {
		return err
	}
	return e.printUpgrade(now)
}

func (e *env) askUpgrade(ctx context.Context, raise bool) (out upgradeItem, err error) {
	err = e.admin(ctx, "cluster upgrade", func(ctx context.Context, a coordpb.AdminClient) error {
		reply, err := a.Upgrade(ctx, &coordpb.UpgradeRequest{Raise: raise})
		if err != nil {
			return err
		}
		out = upgradeItem{reply.GetLevel(), reply.GetCommon(), reply.GetBehind()}
		return replyError("cluster upgrade", reply.GetError())
	})
	return out, err
}

func (e *env) printUpgrade(u upgradeItem) error {
	return e.object("Upgrade", u, func(w io.Writer) error {
		text := fmt.Sprintf("feature level %d; all servers know %d: nothing to raise", u.Level, u.Common)
		if u.Common > u.Level {
			text = fmt.Sprintf("feature level %d; all servers know %d: `coordctl cluster upgrade` raises it", u.Level, u.Common)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
		for _, b := range u.Behind {
			if _, err := fmt.Fprintln(w, b); err != nil {
				return err
			}
		}
		return nil
	})
}
