package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

func newWalletCmd(e *env) *cobra.Command {
	var timeline, all bool
	d := demonstration{
		use:   "wallet",
		short: "Money moves between two rows, once, whoever was paused",
		long: `Show a transfer of money between two rows of a PostgreSQL that is started for this.
It has four outcomes: AlreadyProcessed, Rejected (stale token), InsufficientBalance and
Success. The story is that of a lease of 10 s and work that takes 15 s, on a clock that
runs five times faster: node 1 has token 12 and is too slow, node 2 does the work under
token 13, and node 1 finishes after it. The promise: each attempt has its outcome, and the
sum of all balances is the same before and after.` + demoPlace,
		example: "  coordctl demo wallet\n" +
			"  coordctl demo wallet --all-outcomes\n" +
			"  coordctl demo wallet --fencing=off",
		layers: []demoLayer{
			{"fencing", demo.Fence, "node 1 pay after node 2"},
			{"idempotency", demo.Idempotency, "a repeat pay again"},
			{"credit-check", demo.CreditCheck, "half a transfer (plays all outcomes)"},
		},
		run: func(ctx context.Context, o demo.Options) error {
			if timeline && all {
				return usagef("--timeline and --all-outcomes exclude each other")
			}
			return demo.Wallet(ctx, demo.WalletOptions{Options: o, AllOutcomes: all})
		},
	}
	cmd := d.command(e)
	cmd.Flags().BoolVar(&timeline, "timeline", false, "play the story of two nodes (the default)")
	cmd.Flags().BoolVar(&all, "all-outcomes", false, "play one case for each outcome")
	return cmd
}
