package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/barrier"
)

func newBarrierCmd(e *env) *cobra.Command {
	return parent("barrier", "Make scripts wait for a sign", newBarrierWaitCmd(e), newBarrierSignCmd(e, true), newBarrierSignCmd(e, false))
}

// barrierState is what the commands print for scripts.
type barrierState struct {
	Path   string `json:"path"`
	Raised bool   `json:"raised"`
}

func newBarrierWaitCmd(e *env) *cobra.Command {
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "wait PATH",
		Short: "Wait while a barrier is raised",
		Long: `Wait until the barrier at PATH is down, which may be at once. It ends as well if
the barrier was lowered and raised again meanwhile. Exit code 7 when it is still
raised after --for.`,
		Example: "  coordctl barrier wait /barriers/maintenance && ./import.sh\n" +
			"  coordctl barrier wait --for 10m /barriers/maintenance",
		Args:              belowRoot(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usagef("--for: %s is below zero", limit)
			}
			return as("barrier wait", e.barrierWait(cmd.Context(), args[0], limit))
		},
	}
	cmd.Flags().DurationVar(&limit, "for", 0, "give up after this long (0: never)")
	return cmd
}

func (e *env) barrierWait(ctx context.Context, path string, limit time.Duration) error {
	c, err := e.dial(ctx)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	waiting := ctx
	if limit > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err = barrier.New(c, path).Wait(waiting)
	if err != nil && ctx.Err() == nil && waiting.Err() != nil {
		return &conflictError{fmt.Sprintf("barrier %s: still raised after %s", path, limit), exitTimeout, context.DeadlineExceeded}
	}
	return err
}

func newBarrierSignCmd(e *env, raise bool) *cobra.Command {
	use, short, long := "lower PATH", "Let all go on that wait", "Lower the barrier at PATH: all that wait go on. One that is down stays so."
	if raise {
		use, short = "raise PATH", "Make those wait that come from now on"
		long = `Raise the barrier at PATH: whoever waits for it waits from now on. One that is
raised stays so. It stays raised until somebody lowers it, also when whoever has
raised it is gone.`
	}
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		Example:           "  coordctl barrier " + use[:5] + " /barriers/maintenance",
		Args:              belowRoot(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			return as("barrier", e.barrierSign(cmd.Context(), args[0], raise))
		},
	}
	return cmd
}

func (e *env) barrierSign(ctx context.Context, path string, raise bool) error {
	err := e.withSession(ctx, func(ctx context.Context, c *client.Client) error {
		b := barrier.New(c, path)
		if raise {
			return b.Raise(ctx)
		}
		return b.Lower(ctx)
	})
	if err != nil || !e.isJSON() {
		return err
	}
	return e.object("Barrier", barrierState{path, raise}, func(io.Writer) error { return nil })
}
