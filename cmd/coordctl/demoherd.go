package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/coordd/coord/internal/demo"
)

const maxHerd = 10_000

func newHerdCmd(e *env) *cobra.Command {
	waiters, releases := 100, 10
	d := demonstration{
		use:   "herd",
		short: "A release wakes one waiter, however many there are",
		long: `Show what the release of a lock costs. Many sessions wait in line for it, and it is
handed on a few times; the events that the servers send are counted where they arrive.
The promise: each release is told to one waiter, the next in line.` + demoPlace,
		example: "  coordctl demo herd --waiters 1000\n" +
			"  coordctl demo herd --predecessor=off",
		layers: []demoLayer{{"predecessor", demo.Predecessor, "what happens if all watch the lock's folder"}},
		run: func(ctx context.Context, o demo.Options) error {
			if waiters < 2 || waiters > maxHerd {
				return usagef("--waiters: %d is not 2 to %d", waiters, maxHerd)
			}
			if releases < 1 || releases > waiters {
				return usagef("--releases: %d is not 1 to %d, the number of waiters", releases, waiters)
			}
			return demo.Herd(ctx, demo.HerdOptions{Options: o, Waiters: waiters, Releases: releases})
		},
	}
	cmd := d.command(e)
	cmd.Flags().IntVar(&waiters, "waiters", waiters, "sessions in line")
	cmd.Flags().IntVar(&releases, "releases", releases, "handovers that are counted")
	return cmd
}
