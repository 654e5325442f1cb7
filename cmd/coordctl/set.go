package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
)

// dataHelp says what a DATA argument may be.
const dataHelp = `DATA is the text itself, - for standard input, or @FILE for the content of a
file. Without DATA the znode holds null, which differs from empty data ("").`

func newSetCmd(e *env) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "set PATH [DATA|-|@FILE]",
		Short: "Set the data of a znode",
		Long: `Set the data of a znode that exists. With --version only if the znode is at that
version; otherwise the exit code is 4 and the message names both.

` + dataHelp,
		Example: "  coordctl set /app/config 'workers: 8'\n" +
			"  coordctl set --version 7 /app/config @config.yaml\n" +
			"  generate | coordctl set /app/config -",
		Args:              withPath(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkVersion(cmd, version); err != nil {
				return err
			}
			data, err := e.data(args[1:])
			if err != nil {
				return err
			}
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				st, err := c.Set(repeatable(ctx), args[0], data, version)
				if err != nil {
					return err
				}
				return e.object("Node", nodeItem{Path: args[0], Stat: newStatItem(&st)}, func(io.Writer) error { return nil })
			})
		},
	}
	versionFlag(cmd, &version)
	return cmd
}

// versionFlag is the flag of writes that ask for a version.
func versionFlag(cmd *cobra.Command, version *int64) {
	cmd.Flags().Int64Var(version, "version", client.AnyVersion, "only if the znode is at this version")
	cmd.Flags().Lookup("version").DefValue = "any"
}

// checkVersion refuses a negative version, except for -1, which is ZooKeeper's
// way to ask for none.
func checkVersion(cmd *cobra.Command, version int64) error {
	if version < client.AnyVersion {
		return usagef("%s: --version %d: versions count from 0", cmd.Name(), version)
	}
	return nil
}

func newDeleteCmd(e *env) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "delete PATH",
		Short: "Delete a znode that has no children",
		Example: "  coordctl delete /app/old\n" +
			"  coordctl delete --version 7 /app/old",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkVersion(cmd, version); err != nil {
				return err
			}
			return e.with(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.Delete(repeatable(ctx), args[0], version); err != nil {
					return err
				}
				return e.object("Node", nodeItem{Path: args[0]}, func(io.Writer) error { return nil })
			})
		},
	}
	versionFlag(cmd, &version)
	return cmd
}
