// Command coordd is a server of the coordination service.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// Exit codes, as coordctl has them.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError marks mistakes in flags, arguments and configuration.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// run executes one command line and returns the exit code. The first SIGINT
// or SIGTERM ends ctx, so that the command stops in order; a second one ends
// the process.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	root := newRootCmd(stdout)
	root.SetArgs(args)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "coordd: %v\n", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

func newRootCmd(stdout io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "coordd",
		Short:         "A replicated coordination service: fenced locks, elections, configuration",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w\nhint: %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(newRunCmd(), newDevCmd(), newConfigCmd(), newVersionCmd(), newRecoverCmd(), newInspectCmd())
	root.SetOut(stdout) // the completion command keeps the output it finds
	addCompletion(root)
	wrongArgsAreUsage(root)
	return root
}

// addCompletion adds cobra's command now and not when the program runs, so that an
// unknown shell is an error of use and not success.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// wrongArgsAreUsage makes unknown commands and superfluous arguments errors of
// use: exit code 2 and a way on.
func wrongArgsAreUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usageError{fmt.Errorf("%w\nhint: %s --help", err, cmd.CommandPath())}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		wrongArgsAreUsage(c)
	}
}
