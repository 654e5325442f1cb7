package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coordd/coord/znode"
)

func newRootCmd(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "coordctl",
		Short: "Look into a coordd cluster, and change it",
		Long: `coordctl reads and changes the tree of a coordd cluster, shows its locks,
sessions and servers, and runs commands under a lock.

Which cluster: --endpoints, else $COORDCTL_ENDPOINTS, else the context (--context,
$COORDCTL_CONTEXT, or the one chosen with 'coordctl context use'), else
127.0.0.1:7420. Every global flag has such a variable.

Exit codes: 0 done, 1 failed, 2 wrong use, 3 not there, 4 another state than
asked for (exists, other version, not empty), 5 not permitted, 6 unreachable or no
quorum, 7 time limit, 8 unhealthy, 130 interrupted.`,
		SuggestionsMinimumDistance: 2,
		SilenceUsage:               true,
		SilenceErrors:              true,
		TraverseChildren:           true, // so that create has an -e of its own
		Args:                       cobra.NoArgs,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w\nhint: %s --help", err, cmd.CommandPath())
	})
	e.addGlobalFlags(root.PersistentFlags())
	root.Flags().AddFlagSet(root.PersistentFlags()) // Traverse looks here only
	root.InitDefaultHelpFlag()
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if help, err := root.Flags().GetBool("help"); err == nil && help {
			return pflag.ErrHelp // --help in front of the command
		}
		e.started, e.command = true, cmd.CommandPath()
		return e.checkFlags(root.PersistentFlags(), cmd.Flags())
	}
	root.AddCommand(
		newLsCmd(e), newTreeCmd(e), newGetCmd(e), newSetCmd(e), newCreateCmd(e), newDeleteCmd(e),
		newDeleteAllCmd(e), newStatCmd(e), newWatchCmd(e), newSyncCmd(e), newTxnCmd(e), newACLCmd(e), newImportCmd(e), newBackupCmd(e),
		newLocksCmd(e), newLockCmd(e), newStatusCmd(e), newSessionsCmd(e), newMembersCmd(e),
		newElectCmd(e), newBarrierCmd(e), newQueueCmd(e), newCounterCmd(e), newDoctorCmd(e),
		newClusterCmd(e), newWaitCmd(e), newContextCmd(e), newBenchCmd(e), newDemoCmd(e), newGuaranteesCmd(e), newVersionCmd(e),
	)
	addCompletion(root, e)
	wrongArgsAreUsage(root)
	return root
}

// addCompletion adds cobra's command now and not when the program runs, so that an
// unknown shell is an error like every other unknown command, and not success.
func addCompletion(root *cobra.Command, e *env) {
	root.SetOut(e.stdout) // the command keeps the output it finds
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range c.Commands() {
		shell.Example = "  coordctl completion " + shell.Name()
	}
}

// wrongArgsAreUsage makes a wrong number of arguments, and an unknown command,
// an error of use: exit code 2 and a way on.
func wrongArgsAreUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if cmd.HasSubCommands() && len(args) > 0 && !strings.HasPrefix(args[0], "/") {
				return unknownCommand(cmd, args[0])
			}
			if err := check(cmd, args); err != nil {
				return usagef("%w\nusage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		wrongArgsAreUsage(c)
	}
}

func unknownCommand(cmd *cobra.Command, name string) error {
	next := cmd.CommandPath() + " --help"
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		next = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return usagef("unknown command %q for %q\nhint: %s", name, cmd.CommandPath(), next)
}

// parent makes a command that only has others below it.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}

// withPath also refuses a malformed PATH, which is the first argument, before a
// server is asked.
func withPath(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch err := check(cmd, args); {
		case err != nil && len(args) == 0:
			return usagef("PATH is missing")
		case err != nil || len(args) == 0:
			return err
		default:
			return znode.ValidatePath(args[0])
		}
	}
}

// belowRoot is withPath for what is made at PATH, which the root cannot be.
func belowRoot(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := withPath(check)(cmd, args); err != nil || args[0] != "/" {
			return err
		}
		return usagef("PATH must be below /")
	}
}
