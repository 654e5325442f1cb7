// Command coordctl looks into a coordd cluster and changes it.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. SIGINT and SIGTERM
// end ctx; a second one ends the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	e := newEnv(stdin, stdout, stderr)
	root := newRootCmd(e)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errInterrupted
	}
	return e.report(err)
}

func newRootCmd(e *env) *cobra.Command {
	root := &cobra.Command{
		Use:   "coordctl",
		Short: "Look into a coordd cluster, and change it",
		Long: `coordctl reads and changes the tree of a coordd cluster, shows its locks,
sessions and servers, and runs commands under a lock.

Which cluster: --endpoints, else $COORDCTL_ENDPOINTS, else the context (--context,
$COORDCTL_CONTEXT, or the one chosen with 'coordctl context use'), else
127.0.0.1:7420.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w\nhint: %s --help", err, cmd.CommandPath())
	})
	e.addGlobalFlags(root.PersistentFlags())
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return e.checkFlags() }
	root.AddCommand(
		newLsCmd(e), newTreeCmd(e), newGetCmd(e), newSetCmd(e), newCreateCmd(e), newDeleteCmd(e),
		newDeleteAllCmd(e), newStatCmd(e), newWatchCmd(e), newSyncCmd(e), newTxnCmd(e), newACLCmd(e),
		newLocksCmd(e), newLockCmd(e), newStatusCmd(e), newSessionsCmd(e), newMembersCmd(e),
		newClusterCmd(e), newWaitCmd(e), newContextCmd(e), newBenchCmd(e), newDemoCmd(e), newVersionCmd(e),
	)
	return root
}

// parent makes a command that only has others below it.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(children...)
	return cmd
}
