// Command coordctl looks into a coordd cluster and changes it.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. SIGINT, SIGTERM and
// SIGHUP end ctx; a second one ends the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, unlessIgnored(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)...)
	defer stop()
	context.AfterFunc(ctx, stop)
	e := newEnv(stdin, stdout, stderr)
	root := newRootCmd(e)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err != nil && !e.started && !errors.As(err, new(*usageError)):
		err = usagef("%w", err)
	case err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errInterrupted
	}
	if cmd != nil && holds(cmd) {
		err = ownFailure(err)
	}
	return e.report(err)
}

// unlessIgnored leaves out signals that whoever started us has switched off, as
// nohup(1) does.
func unlessIgnored(signals ...os.Signal) []os.Signal {
	var out []os.Signal
	for _, s := range signals {
		if !signal.Ignored(s) {
			out = append(out, s)
		}
	}
	return out
}
