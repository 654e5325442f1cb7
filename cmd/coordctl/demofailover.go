package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

const maxFailovers = 100

func newFailoverCmd(e *env) *cobra.Command {
	rounds := 5
	d := demonstration{
		use:   "failover",
		short: "The leader is killed right after it has granted a lock",
		long: `Show that a lock that was granted survives the leader that granted it. A worker takes
a lock, and the leader is killed with SIGKILL at once; another worker tries to get in.
A PostgreSQL that is started for this writes down who is in and when. The promise: no
lock is lost, and there is never a second owner.

It kills servers, so it starts a cluster of its own (coordd beside coordctl, or on the
PATH) and leaves the one at the endpoints alone. The exit code is 0 only if the promise
held. With --quorum=off the lock is one that a single store keeps, which tells a replica
of it later.`,
		example: "  coordctl demo failover --rounds 100\n" +
			"  coordctl demo failover --quorum=off",
		layers:     []demoLayer{{"quorum", demo.Quorum, "a granted lock forgotten"}},
		ownCluster: true,
		run: func(ctx context.Context, o demo.Options) error {
			if rounds < 1 || rounds > maxFailovers {
				return usagef("--rounds: %d is not 1 to %d", rounds, maxFailovers)
			}
			return demo.Failover(ctx, demo.FailoverOptions{Options: o, Rounds: rounds})
		},
	}
	cmd := d.command(e)
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "how often the leader is killed")
	return cmd
}
