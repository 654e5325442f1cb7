package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/client"
	"github.com/coordd/coord/recipes/queue"
)

func newQueueCmd(e *env) *cobra.Command {
	return parent("queue", "Put work into a queue, and take it out", newQueuePutCmd(e), newQueueTakeCmd(e), newQueueLenCmd(e))
}

// queuePut is what put prints for scripts.
type queuePut struct {
	Path string `json:"path"`
	ID   string `json:"id"`
}

func newQueuePutCmd(e *env) *cobra.Command {
	var key string
	var priority int
	cmd := &cobra.Command{
		Use:   "put PATH [DATA|-|@FILE]",
		Short: "Put an item into a queue and print its id",
		Long: `Put an item into the queue at PATH and print its id.

With --key it may be repeated: while an item of this key is in the queue, and for an
hour after it is done, another put adds nothing and prints the id of the first.

` + dataHelp,
		Example: "  coordctl queue put --key order-41 /queues/orders @order.json\n" +
			"  coordctl queue put --priority -10 /queues/orders urgent",
		Args:              belowRoot(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			var opts []queue.PutOption
			if cmd.Flags().Changed("key") {
				opts = append(opts, queue.Key(key))
			}
			if priority < math.MinInt32 || priority > math.MaxInt32 {
				return usagef("--priority: %d does not fit 32 bits", priority)
			}
			data, err := e.data(args[1:])
			if err != nil {
				return err
			}
			return as("queue put", e.queuePut(cmd.Context(), args[0], data, append(opts, queue.Priority(priority))))
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "what the item is for: it is added once")
	cmd.Flags().IntVar(&priority, "priority", 0, "lower numbers come out first")
	return cmd
}

func (e *env) queuePut(ctx context.Context, path string, data []byte, opts []queue.PutOption) error {
	var id string
	err := e.withSession(ctx, func(ctx context.Context, c *client.Client) (err error) {
		id, err = queue.New(c, path).Put(ctx, data, opts...)
		return err
	})
	if err != nil {
		return err
	}
	return e.object("QueuePut", queuePut{path, id}, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, id)
		return err
	})
}

// queueLen is what len prints for scripts.
type queueLen struct {
	Path string `json:"path"`
	Len  int    `json:"len"`
}

func newQueueLenCmd(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "len PATH",
		Short: "Print how many items are in a queue",
		Long: "Print how many items are in the queue at PATH, those that are being worked on included.\n" +
			"Not counted are those that 'queue take --max-deliveries' has put aside: 'coordctl ls PATH/dead'.",
		Example:           "  coordctl queue len /queues/orders",
		Args:              withPath(cobra.ExactArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			n := 0
			err := e.with(cmd.Context(), func(ctx context.Context, c *client.Client) (err error) {
				n, err = queue.New(c, args[0]).Len(ctx)
				return err
			})
			if err != nil {
				return as("queue len", err)
			}
			return e.object("QueueLen", queueLen{args[0], n}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, n)
				return err
			})
		},
	}
}

type queueTakeOptions struct {
	wait           time.Duration
	noWait         bool
	retryAfter     time.Duration
	maxDeliveries  int
	sessionTimeout time.Duration
}

func newQueueTakeCmd(e *env) *cobra.Command {
	o := queueTakeOptions{sessionTimeout: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "take [flags] PATH [COMMAND [ARGUMENT...]]",
		Short: "Take an item out of a queue, and run a command for it",
		Long: `Wait for an item of the queue at PATH and run the command with its data on
standard input. When the command succeeds the item is done and leaves the queue.
When it fails, or this machine does, the item comes out again, so the work should be
repeatable. Everything behind PATH is the command; flags go in front of PATH.

The command finds COORD_QUEUE_ID, COORD_QUEUE_KEY, COORD_QUEUE_DELIVERIES (how often
the item was given out) and COORD_FENCING_TOKEN in its environment. It is ended when
the claim is lost.

Without a command the data is printed and the item is done then: whoever reads it and
fails has lost it.

Exit code: the command's, or 128+n for a signal; 122 the claim was lost, 123 no item
in time, 125 coordctl itself failed, 126 not executable, 127 not found.`,
		Example: "  coordctl queue take /queues/orders ./handle-order.sh\n" +
			"  while coordctl queue take --max-deliveries 5 --retry-after 1m /queues/orders ./handle-order.sh; do :; done",
		Args:              belowRoot(cobra.MinimumNArgs(1)),
		ValidArgsFunction: e.completePath,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return as("queue take", e.queueTake(cmd.Context(), &o, args[0], command(args[1:])))
		},
	}
	f := cmd.Flags()
	f.SetInterspersed(false)
	f.DurationVar(&o.wait, "wait", 0, "give up after this long without an item (0: never)")
	f.BoolVar(&o.noWait, "no-wait", false, "give up soon when there is none")
	f.DurationVar(&o.retryAfter, "retry-after", 0, "hold an item back for this long when the command failed")
	f.IntVar(&o.maxDeliveries, "max-deliveries", 0, "put an item aside, below PATH/dead, that was given out this often (0: never)")
	f.DurationVar(&o.sessionTimeout, "session-timeout", o.sessionTimeout, "how long a claim outlives a taker that vanished")
	return cmd
}

func (o *queueTakeOptions) check() error {
	switch {
	case o.wait < 0:
		return usagef("--wait: %s is below zero", o.wait)
	case o.retryAfter < 0:
		return usagef("--retry-after: %s is below zero", o.retryAfter)
	case o.sessionTimeout <= 0:
		return usagef("--session-timeout: %s is not above zero", o.sessionTimeout)
	case o.maxDeliveries < 0:
		return usagef("--max-deliveries: %d is below zero", o.maxDeliveries)
	case o.noWait && o.wait > 0:
		return usagef("--wait and --no-wait exclude each other")
	}
	return nil
}
