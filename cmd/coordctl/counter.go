package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/counter"
)

func newCounterCmd(e *env) *cobra.Command {
	return parent("counter", "Count across hosts", newCounterAddCmd(e), newCounterGetCmd(e))
}

// counterValue is what the commands print for scripts. A counter may be larger
// than what a floating point number holds.
type counterValue struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

func (e *env) printCounter(path string, n int64) error {
	return e.object("Counter", counterValue{path, strconv.FormatInt(n, 10)}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, n)
		return err
	})
}

func newCounterAddCmd(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add PATH [DELTA]",
		Short: "Add to a counter and print the number",
		Long: `Add DELTA (1 unless given) to the counter at PATH and print the number right
behind it, which nobody else gets. One that does not exist is 0. A DELTA below zero
stands behind --, as in 'coordctl counter add -- /counters/stock -5'.

It is added exactly once, also if the answer is lost and asked for again. Where the
command ends without an answer ("it may have been done or not") a repeat could
count twice.`,
		Example: "  coordctl counter add /counters/invoices\n" +
			"  coordctl counter add /counters/bytes 4096",
		Args:              belowRoot(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			delta := int64(1)
			if len(args) == 2 {
				n, err := strconv.ParseInt(strings.TrimPrefix(args[1], "+"), 10, 64)
				if err != nil {
					return usagef("counter add: %q is not a whole number of 64 bits", args[1])
				}
				delta = n
			}
			var now int64
			err := e.withSession(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				now, err = counter.New(c, args[0]).Add(ctx, delta)
				return err
			})
			if err != nil {
				return as("counter add", err)
			}
			return e.printCounter(args[0], now)
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w\nhint: a DELTA below zero stands behind --: coordctl counter add -- PATH -5; else %s --help", err, cmd.CommandPath())
	})
	return cmd
}

func newCounterGetCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:               "get PATH",
		Short:             "Print a counter",
		Long:              "Print the number of the counter at PATH. One that does not exist is 0.",
		Example:           "  coordctl counter get /counters/invoices",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			var now int64
			err := e.with(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				now, err = counter.New(c, args[0]).Get(ctx)
				return err
			})
			if err != nil {
				return as("counter get", err)
			}
			return e.printCounter(args[0], now)
		},
	}
}

// withSession runs f, which writes, in a session of its own: an answer that is
// lost is asked for again, so that f is done once.
func (e *env) withSession(ctx context.Context, f func(ctx context.Context, c *client.Client) error) error {
	c, err := e.dialWith(ctx)
	if err != nil {
		return err
	}
	defer closeQuietly(c)
	p := e.pace(ctx)
	defer p.stop()
	return e.diagnose(ctx, p.result(f(p.ctx, c)))
}
